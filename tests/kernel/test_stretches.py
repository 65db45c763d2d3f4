"""A loop of many short runs: a task takes a stretch of them, and a process of the node takes all of a cell's tasks."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from computemesh.kernel.cell_tasks import LONGEST_STRETCH, stretch_sizes


@given(st.integers(1, 5000), st.integers(1, 300))
def test_long_stretches_come_first_and_single_runs_last(items, slots):
    sizes = stretch_sizes(items, slots)
    assert sum(sizes) == items
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= LONGEST_STRETCH
    assert sizes[-1] == 1
    left = items
    for size in sizes:
        # Every slot can still have work when this one is taken.
        assert size == 1 or size * slots <= left
        left -= size


def test_a_long_run_between_short_ones_is_shown_as_running(capsules, tmp_path):
    gate = tmp_path / "gate"
    code = f"""%%mesh for n in range(64) --no-wait
import os, time
while n == 1 and not os.path.exists({str(gate)!r}):
    time.sleep(0.01)
n
"""
    job = capsules.value(code)
    try:
        deadline = time.monotonic() + 60
        while 1 not in job._run.progress().running and time.monotonic() < deadline:
            time.sleep(0.02)
        assert 1 in job._run.progress().running
    finally:
        gate.touch()
    assert job.result() == list(range(64))


def test_many_short_runs_come_back_in_order_from_few_tasks(capsules):
    values = capsules.value("%%mesh for n in range(200)\nsquare = n * n\nsquare")
    assert values == [n * n for n in range(200)]
    assert capsules.names["square"] == values
    assert len(set(capsules.names["_mesh"].keys)) < 100


def test_printing_runs_are_no_strangers_to_one_another(capsules):
    ran = capsules.cell("%%mesh for n in range(200)\nprint(n)\nimport os\nos.getpid()")
    assert ran.error is None
    assert len(set(ran.result)) <= 8


def test_runs_of_one_cell_share_a_process_and_leave_nothing_to_one_another(capsules):
    code = """%%mesh for n in range(64)
import os, signal
seen = "left" in globals() or "LEFT" in os.environ or signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
left = os.environ["LEFT"] = "here"
seen = seen or os.umask(0o007) == 0o007
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
here = os.getcwd()
os.chdir("/")
(os.getpid(), seen, here)
"""
    found = capsules.value(code)
    assert len({process for process, _, _ in found}) <= 8
    assert not any(seen for _, seen, _ in found)
    assert "/" not in {folder for _, _, folder in found}


def test_what_a_run_prints_stays_its_own(capsules):
    ran = capsules.cell(
        "%%mesh for n in range(40) --show-all\nimport os\nprint('py', n)\nos.system(f'echo sh {n}')\nNone"
    )
    assert ran.error is None
    job = capsules.names["_mesh"]
    for n in range(40):
        assert sorted(str(job.output(n)).split("\n")[:2]) == [f"py {n}", f"sh {n}"]


def test_a_long_run_among_many_does_not_hold_up_those_behind_it(capsules, tmp_path):
    # The first run waits for the last: were both in one task, neither would end.
    gate = tmp_path / "gate"
    code = f"""%%mesh for n in range(40)
import os, time
if n == 39:
    open({str(gate)!r}, "w").close()
while n == 0 and not os.path.exists({str(gate)!r}):
    time.sleep(0.01)
n
"""
    assert capsules.value(code) == list(range(40))


def test_one_that_raises_raises_and_the_others_run(capsules, tmp_path):
    log = tmp_path / "log"
    ran = capsules.cell(f"%%mesh for n in range(50)\nopen({str(log)!r}, 'a').write(f'{{n}} ')\n1 / (n - 7)")
    assert isinstance(ran.error, ZeroDivisionError)
    assert sorted(map(int, log.read_text().split())) == list(range(50))


def test_one_that_kills_its_process_is_named_and_the_others_have_their_results(capsules):
    ran = capsules.cell("%%mesh for n in range(50)\nimport os\nif n == 7:\n    os.kill(os.getpid(), 9)\nn")
    assert "SIGKILL" in str(ran.error)
    assert "1 of 50 runs failed: run 7" in ran.out


def test_a_thread_or_child_that_a_run_leaves_behind_does_not_see_the_next(capsules):
    code = """%%mesh for n in range(40)
import os, subprocess
if n == 3:
    subprocess.Popen(["sleep", "100"])
os.getpid()
"""
    found = capsules.value(code)
    assert found[3] not in found[4:]


def test_an_interrupt_ends_all_and_the_next_cell_runs(capsules, interrupt_after):
    interrupt_after(1.0)
    ran = capsules.cell("%%mesh for n in range(2000)\nimport time\ntime.sleep(0.05)\nn")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert capsules.value("%%mesh for n in range(40)\nn") == list(range(40))


def test_in_a_plain_workers_threads_it_is_the_same(notebook):
    assert notebook.value("%%mesh for n in range(100)\nn * 2") == [2 * n for n in range(100)]
    ran = notebook.cell("%%mesh for n in range(50)\n1 / (n - 7)")
    assert isinstance(ran.error, ZeroDivisionError)


def test_retries_and_time_limits_are_each_runs_own(capsules, tmp_path):
    code = f"""%%mesh for n in range(40) --retries 1
import os
name = os.path.join({str(tmp_path)!r}, str(n))
first = not os.path.exists(name)
open(name, "w").close()
assert not (first and n % 10 == 0)
n
"""
    assert capsules.value(code) == list(range(40))
    assert len(list(tmp_path.iterdir())) == 40
