"""Cells in capsules, as on a real mesh: what C and subprocesses print comes home, and anything can be interrupted."""

from __future__ import annotations

import os
import time

import pytest


def test_it_runs_in_a_process_of_its_own(capsules):
    pids = [capsules.value("%%mesh\nimport os\nos.getpid()") for _ in range(2)]
    assert len({*pids, os.getpid()}) == 3


def test_subprocesses_print_into_the_notebook_in_order(capsules):
    ran = capsules.cell(
        "%%mesh\nimport subprocess, sys, os\nprint('one')\nsubprocess.run(['echo', 'two'])\nprint('three')\n"
        "subprocess.run('echo four >&2', shell=True)\nos.write(1, b'five\\n')\nsys.stdout.buffer.write(b'six\\n')\n"
        "sys.stdout.buffer.flush()\nprint('seven');"
    )
    assert ran.error is None
    assert ran.out == "one\ntwo\nthree\nfive\nsix\nseven\n"
    assert ran.err == "four\n"


def test_c_code_prints_into_the_notebook(capsules):
    ran = capsules.cell("%%mesh\nimport ctypes\nlibc = ctypes.CDLL(None)\nlibc.printf(b'from %d C\\n', 1)\ndel libc;")
    assert ran.error is None
    assert ran.out == "from 1 C\n"


def test_much_output_past_python_arrives_whole(capsules):
    ran = capsules.cell("%%mesh\nimport subprocess\nsubprocess.run(['seq', '50000']);")
    assert ran.out == "".join(f"{n}\n" for n in range(1, 50_001))


def test_a_process_left_behind_does_not_hold_the_cell(capsules):
    start = time.monotonic()
    assert capsules.value("%%mesh\nimport subprocess\np = subprocess.Popen(['sleep', '60'])\np.pid > 0")
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.sleep(120)",
        "while True: pass",
        "import ctypes\nctypes.CDLL(None).sleep(120)",
        "import numpy as np\nm = np.ones((3000, 3000))\nwhile True: m @ m",
        "import subprocess\nsubprocess.run(['sleep', '120'])",
    ],
    ids=["sleep", "python loop", "C call", "matmul", "subprocess"],
)
def test_interrupt_stops_whatever_runs(capsules, interrupt_after, code):
    interrupt_after(1.5)
    start = time.monotonic()
    ran = capsules.cell(f"%%mesh\n{code}")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert time.monotonic() - start < 40
    assert "Interrupted" in ran.err
    assert capsules.value("%%mesh\n6 * 7") == 42


def test_an_interrupt_does_not_disturb_another_notebook(capsules, capsule_cluster, interrupt_after):
    from distributed import Client

    with Client(capsule_cluster, set_as_default=False) as other:
        theirs = other.submit(_slowly, pure=False)
        interrupt_after(1.0)
        ran = capsules.cell("%%mesh\nimport time\ntime.sleep(60)")
        assert isinstance(ran.error, KeyboardInterrupt)
        assert theirs.result(timeout=60) == "whole"


def _slowly() -> str:
    time.sleep(2.5)
    return "whole"


def test_a_timeout_ends_a_blocking_call(capsules):
    from computemesh.errors import ComputeMeshError

    start = time.monotonic()
    ran = capsules.cell("%%mesh --timeout 0.5\nimport time\ntime.sleep(60)")
    assert isinstance(ran.error, ComputeMeshError)
    assert time.monotonic() - start < 30


def test_warnings_and_logging_in_a_capsule(capsules):
    ran = capsules.cell(
        "%%mesh for i in range(4)\nimport warnings, logging\nlogging.basicConfig(level=logging.INFO, force=True)\n"
        "warnings.warn('careful')\nlogging.getLogger('mine').info('step %d', i)"
    )
    assert ran.error is None
    assert ran.err.count("careful") == 2, "once as a warning, once as its source line"
    assert f"Cell In[{capsules.shell.execution_count - 1}], line 4: UserWarning: careful" in ran.err
    assert sorted(line[-1] for line in ran.err.splitlines() if "INFO:mine:step" in line) == list("0123")


def test_kept_values_are_made_in_capsules_and_stay_on_the_mesh(capsules):
    capsules.value("import computemesh as mesh\nk = 3")
    capsules.value("%%mesh --keep\nimport os\nbig = list(range(1000))\ndef f(x): return x * k + len(big)\nf(1)")
    assert "MeshFuture" in type(capsules.names["big"]).__name__
    assert capsules.value("mesh.gather([big])[0][-1]") == 999
    assert capsules.value("%%mesh\nsum(big)") == 499_500
    assert capsules.value("mesh.submit(len, big).result()") == 1000


def test_processes_that_the_cell_forks_print_into_the_notebook(capsules):
    ran = capsules.cell(
        "%%mesh\nimport multiprocessing, os\ndef work(n):\n    print('child', n)\n    display(n)\n    return n * 2\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n    doubled = pool.map(work, range(6))\n"
        "print('parent')"
    )
    assert ran.error is None
    assert capsules.names["doubled"] == [0, 2, 4, 6, 8, 10]
    lines = ran.out.splitlines()
    assert sorted(line for line in lines if line.startswith("child")) == [f"child {n}" for n in range(6)]
    assert lines[-1] == "parent"


def test_objects_whose_class_uses_a_module_while_it_is_made_come_back(capsules):
    capsules.value(
        "%%mesh\nimport threading as t\nclass Safe:\n    def __init__(self): self.lock = t.Lock()\n"
        "    def __getstate__(self): return {}\n    def __setstate__(self, state): self.lock = t.Lock()\na = Safe()"
    )
    assert capsules.value("a.lock.locked()") is False


def test_objects_whose_class_uses_a_module_while_it_is_made_go_in(capsules):
    capsules.value(
        "import threading\nclass Safe:\n    def __init__(self): self.lock = threading.Lock()\n"
        "    def __getstate__(self): return {}\n    def __setstate__(self, state): self.lock = threading.Lock()\n"
        "a_safe = Safe()\ndef use(): return a_safe.lock.locked()"
    )
    assert capsules.value("%%mesh\na_safe.lock.locked()") is False
    assert capsules.value("%%mesh\nuse()") is False


def test_where_holds_with_the_meshs_plugin_too(capsules):
    names = capsules.value("import computemesh as mesh\n[row.name for row in mesh.nodes()]")
    workers = []
    for name in names:
        # A capsule's parent is the worker's zygote, and that one's the worker.
        found = capsules.value(
            f"%%mesh for i in range(4) --where \"name == '{name}'\"\nimport os, psutil\n"
            "psutil.Process(os.getppid()).ppid()"
        )
        assert len(set(found)) == 1
        workers += found
    assert len(set(workers)) == 2
