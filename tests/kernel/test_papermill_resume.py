"""A papermill notebook on the mesh goes on after its last finished cell, whatever died."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile

import nbformat
import papermill
import psutil
import pytest
from nbclient.exceptions import DeadKernelError

from computemesh.errors import BadConfiguration
from computemesh.kernel import notebook_follow
from computemesh.kernel.notebook_keep import Kept, keep, read_kept

from .test_papermill import written

COUNTED = """
import computemesh, random
class Model:
    def __init__(self, n): self.n = n
def scaled(factor): return factor * n
model, n = Model(3), n + 1
random.seed(7); first_draw = random.random()
open("beside.txt", "w").write("here")
"""
READ_BACK = """
n = 100
print(scaled(2), model.n, type(model) is Model, random.random(), open("beside.txt").read())
"""


def run(source, target, **options):
    return papermill.execute_notebook(
        source, target, engine_name="mesh", progress_bar=False, checkpoint=True, **options
    )


def runs_once(log, name):
    """A cell that leaves a line in `log` each time that it runs."""
    return f"open({str(log)!r}, 'a').write('{name}\\n')"


def next_cell(state):
    """The cell that a kept state goes on with; 0 while there is none."""
    if not state.exists():
        return 0
    with zipfile.ZipFile(state) as archive:
        return json.loads(archive.read("about.json"))["cell"]


def once(flag, code):
    """A cell that runs `code` the first time only."""
    return f"import os, signal\nif not os.path.exists({str(flag)!r}):\n    open({str(flag)!r}, 'w').close()\n    {code}"


def test_after_a_node_dies_it_goes_on_after_its_last_finished_cell(mesh, tmp_path, caplog):
    """nteract/papermill#824, #524, #476: a long run is lost at cell 28 of 36, and there is no way to go on."""
    log, flag = tmp_path / "log", tmp_path / "flag"
    # The kernel's parent is the node's worker, which the second cell kills as a crash would.
    source = written(
        tmp_path / "in.ipynb", COUNTED, runs_once(log, "first"), once(flag, "os.kill(os.getppid(), 9)"), READ_BACK
    )
    with caplog.at_level(logging.WARNING, "papermill"):
        done = run(source, tmp_path / "out.ipynb")
    assert done.cells[-1].outputs[0]["text"] == f"200 3 True {_draws()[1]} here\n"
    assert log.read_text() == "first\n"
    assert "goes on after cell 3" in caplog.text
    assert [cell.execution_count for cell in done.cells] == [1, 2, 3, 4, 5]
    assert not (tmp_path / "out.ipynb.mesh-state").exists()


def test_an_output_that_is_too_large_for_a_message_is_not_lost_on_the_way(mesh, tmp_path):
    flag = tmp_path / "flag"
    source = written(
        tmp_path / "in.ipynb", "print('x' * 400_000)", once(flag, "os.kill(os.getppid(), 9)"), "print('end')"
    )
    done = run(source, tmp_path / "out.ipynb")
    assert done.cells[1].outputs[0]["text"] == "x" * 400_000 + "\n"
    assert done.cells[-1].outputs[0]["text"] == "end\n"


def test_after_its_kernel_died_it_goes_on_and_a_cell_that_always_kills_it_ends_it(mesh, tmp_path):
    """nteract/papermill#125, #478: it hangs when its kernel is killed, or runs out of memory."""
    log, flag = tmp_path / "log", tmp_path / "flag"
    source = written(
        tmp_path / "in.ipynb", runs_once(log, "first"), once(flag, "os.kill(os.getpid(), 9)"), "print('whole')"
    )
    done = run(source, tmp_path / "out.ipynb")
    assert done.cells[-1].outputs[0]["text"] == "whole\n"
    assert log.read_text() == "first\n"
    always = written(tmp_path / "always.ipynb", "import os, signal\nos.kill(os.getpid(), 9)")
    with pytest.raises(DeadKernelError):
        run(always, tmp_path / "out.ipynb")


def test_after_this_process_was_killed_the_same_command_goes_on(cluster, mesh, tmp_path):
    log, target = tmp_path / "log", tmp_path / "out.ipynb"
    source = written(tmp_path / "in.ipynb", runs_once(log, "first"), _wait_for(tmp_path / "go"), "print('whole')")
    process = _command(cluster, source, target)
    _until(lambda: next_cell(tmp_path / "out.ipynb.mesh-state") == 2, process)
    process.kill()
    process.wait()
    (tmp_path / "go").touch()
    done = run(source, target)
    assert done.cells[-1].outputs[0]["text"] == "whole\n"
    assert log.read_text() == "first\n"


def test_sigterm_stops_the_notebook_and_saves_what_its_cell_had_shown(cluster, mesh, tmp_path):
    """nteract/papermill#508: SIGTERM is not passed on to the kernel."""
    target, said = tmp_path / "out.ipynb", tmp_path / "said"
    shows = f"print('shown', flush=True)\nopen({str(said)!r}, 'w').close()\n"
    source = written(tmp_path / "in.ipynb", shows + _wait_for(tmp_path / "never"))
    process = _command(cluster, source, target)
    workers = [psutil.Process(pid) for pid in mesh.client.run(os.getpid).values()]
    _until(lambda: said.exists() and "running" in target.read_text(), process)
    time.sleep(1.0)  # from the kernel's socket into the notebook in its runner's memory, of which nothing tells
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert "shown" in str(nbformat.read(target, as_version=4).cells[1].outputs)
    _until(lambda: not _kernels(workers), process, running=False)


def test_a_name_that_cannot_be_saved_is_told_and_its_cells_run_again(mesh, tmp_path, caplog):
    log, flag = tmp_path / "log", tmp_path / "flag"
    source = written(
        tmp_path / "in.ipynb",
        runs_once(log, "first"),
        "import threading\nlock = threading.Lock()\n" + runs_once(log, "second"),
        once(flag, "os.kill(os.getppid(), 9)"),
        "print(lock.locked())",
    )
    with caplog.at_level(logging.WARNING, "papermill"):
        done = run(source, tmp_path / "out.ipynb")
    assert done.cells[-1].outputs[0]["text"] == "False\n"
    assert log.read_text() == "first\nsecond\nsecond\n"
    assert caplog.text.count("has `lock`") == 1


def test_one_that_is_stopped_by_its_owner_ends_at_once(mesh, tmp_path):
    stop = threading.Event()
    source = written(tmp_path / "in.ipynb", _wait_for(tmp_path / "never"))

    def watch(message):
        if message["kind"] == "cell-start" and message["cell"] == 1:
            stop.set()

    with pytest.raises(notebook_follow.Stopped):
        run(source, tmp_path / "out.ipynb", stop=stop, watch=watch)


def test_a_state_of_another_notebook_or_a_damaged_one_is_refused(tmp_path):
    one = nbformat.read(written(tmp_path / "one.ipynb", "x = 1"), as_version=4)
    other = nbformat.read(written(tmp_path / "other.ipynb", "x = 2"), as_version=4)
    file = tmp_path / "state"
    assert read_kept(file, one) is None
    keep(Kept.of(one, 1, b"state"), file)
    assert file.stat().st_mode & 0o077 == 0
    assert read_kept(file, one).cell == 1
    with pytest.raises(BadConfiguration, match="not those of the kept state"):
        read_kept(file, other)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(BadConfiguration, match="cannot be read"):
        read_kept(file, one)


def _draws():
    import random

    random.seed(7)
    return random.random(), random.random()


def _wait_for(file):
    return f"import os, time\nwhile not os.path.exists({str(file)!r}):\n    time.sleep(0.05)"


def _command(cluster, source, target):
    code = (
        "import computemesh as mesh, papermill\n"
        f"mesh.connect({cluster.scheduler_address!r})\n"
        f"papermill.execute_notebook({str(source)!r}, {str(target)!r}, engine_name='mesh', progress_bar=False, "
        "checkpoint=True)"
    )
    started.append(subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL))
    return started[-1]


started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def nobody_left():
    """A test that failed leaves no notebook that holds the slots of those after it."""
    yield
    while started:
        process = started.pop()
        process.kill()
        process.wait()


def _until(condition, process, bound=60, running=True):
    deadline = time.monotonic() + bound
    while not condition():
        assert time.monotonic() < deadline
        assert not running or process.poll() is None
        time.sleep(0.05)


def _kernels(workers):
    return [
        child for worker in workers for child in worker.children(recursive=True) if "ipykernel" in str(child.cmdline())
    ]
