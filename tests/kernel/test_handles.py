"""--no-wait gives a handle, and _mesh is the handle of the last cell."""

from __future__ import annotations

import threading
import time

import pytest

from computemesh.errors import Interrupted
from computemesh.kernel.job_handle import MeshJob


def test_the_handle_comes_at_once_and_binds_when_asked(notebook, tmp_path):
    gate = tmp_path / "gate"
    notebook.value(f"gate = {str(gate)!r}")
    job = notebook.value(
        "%%mesh --no-wait\nimport os, time\nwhile not os.path.exists(gate): time.sleep(0.01)\nx = 5\nx + 1"
    )
    assert isinstance(job, MeshJob)
    assert not job.done()
    assert job.status in {"waiting", "running"}
    assert "x" not in notebook.names
    with pytest.raises(TimeoutError, match="it goes on"):
        job.result(timeout=0.05)
    gate.touch()
    assert job.result(timeout=60) == 6
    assert notebook.names["x"] == 5
    assert (job.done(), job.status) == (True, "finished")
    assert job.result() == 6, "and again"
    assert job.names["x"] == 5


def test_other_cells_run_meanwhile(notebook, tmp_path):
    gate = tmp_path / "gate"
    notebook.value(f"gate = {str(gate)!r}")
    job = notebook.value("%%mesh --no-wait\nimport os, time\nwhile not os.path.exists(gate): time.sleep(0.01)\n'slow'")
    assert notebook.value("%%mesh\n'quick'") == "quick"
    assert notebook.value("1 + 1") == 2
    gate.touch()
    assert job.result(60) == "slow"


def test_a_loop_without_waiting_gives_its_list(notebook):
    assert notebook.value("%%mesh for i in range(4) --no-wait\ny = i * i\ny").result(60) == [0, 1, 4, 9]
    assert notebook.names["y"] == [0, 1, 4, 9]


def test_a_failure_is_raised_where_the_result_is_asked_for(notebook):
    notebook.value("%%mesh --no-wait -o job\n1 / 0")
    ran = notebook.cell("job.result()")
    assert isinstance(ran.error, ZeroDivisionError)
    assert "----> 2 1 / 0" in ran.out
    assert notebook.names["job"].status == "failed"


def test_cancel_stops_what_runs(notebook):
    job = notebook.value("%%mesh for i in range(5) --no-wait\nimport time\nfor _ in range(3000): time.sleep(0.01)")
    deadline = time.monotonic() + 30
    while job.status != "running":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.cancel()
    with pytest.raises(Interrupted, match="was cancelled"):
        job.result(timeout=60)
    assert job.status == "cancelled"
    assert notebook.value("%%mesh for i in range(2)\ni") == [0, 1], "the workers are free again"


def test_mesh_is_the_last_job(notebook):
    notebook.value("%%mesh\nz = 3\nz + 1")
    job = notebook.names["_mesh"]
    assert isinstance(job, MeshJob)
    assert (job.done(), job.status, job.result()) == (True, "finished", 4)
    notebook.cell("%%mesh\n1 / 0")
    assert notebook.names["_mesh"] is not job
    assert notebook.names["_mesh"].status == "failed"


def test_output_shows_all_that_a_run_printed(notebook):
    ran = notebook.cell("%%mesh for i in range(3) --cap 2\nfor k in range(5): print('line', i, k)")
    assert len([line for line in ran.out.splitlines() if "line" in line]) == 6
    assert ran.err.count("`_mesh.output(") == 3
    assert notebook.value("_mesh.output(1)").splitlines() == [f"line 1 {k}" for k in range(5)]
    assert repr(notebook.value("_mesh.output(1)")) == "\n".join(f"line 1 {k}" for k in range(5))
    whole = notebook.value("_mesh.output()")
    assert all(f"line {i} {k}" in whole for i in range(3) for k in range(5))
    with pytest.raises(IndexError, match="counted from 0"):
        notebook.names["_mesh"].output(7)


def test_show_all_and_the_configured_cap(notebook):
    import dask

    text = "\nfor k in range(300): print(k)"
    assert len(notebook.cell("%%mesh for i in range(2)" + text).out.splitlines()) == 400
    assert len(notebook.cell("%%mesh for i in range(2) --show-all" + text).out.splitlines()) == 600
    with dask.config.set({"computemesh.notebook.output-cap": 10}):
        assert len(notebook.cell("%%mesh for i in range(2)" + text).out.splitlines()) == 20
    ran = notebook.cell("%%mesh for i in range(2)\nfor k in range(100): print('x' * 10_000)")
    assert len(ran.out) < 200_000, "64 kB a run"


def test_a_job_says_how_it_is(notebook):
    job = notebook.value("%%mesh for i in range(3) --no-wait\ni")
    assert repr(job).startswith(f"<MeshJob {job.number}: ")
    job.result(60)
    assert "3 runs on worker" in repr(job)
    assert "finished" in job._repr_mimebundle_()["text/html"]
    assert len(job.nodes) == 3
    assert len(job.keys) == 3


def test_mesh_run_reads_the_callers_locals(notebook):
    notebook.value("import computemesh as mesh\nscale = 3\ndef inner(v): return v * scale")
    notebook.value(
        "def outer(a):\n    b = 4\n    helper = lambda v: v + b\n    return mesh.run('r = inner(a) + helper(1)\\nr')"
    )
    assert notebook.value("outer(2)") == 2 * 3 + 1 + 4
    assert "r" not in notebook.names, "a function's names are its own"
    assert not {"a", "b", "helper"} & notebook.names.keys(), "and its locals leave no trace"
    assert notebook.names["_mesh"].names["r"] == 11
    notebook.value("def over(items):\n    return mesh.run('i * scale', 'for i in items')")
    assert notebook.value("over([1, 2])") == [3, 6]
    assert notebook.value("[mesh.run('n + 1') for n in range(3)]") == [1, 2, 3]


def test_mesh_run_prefers_the_local_name_and_leaves_the_global(notebook):
    notebook.value("import computemesh as mesh\nv = 'global'\ndef f(v):\n    return mesh.run('v')")
    assert notebook.value("f('local'), v") == ("local", "global")
    notebook.cell("def g(lock):\n    return mesh.run('lock')\nimport threading")
    assert "lock" in str(notebook.cell("g(threading.Lock())").error)
    assert "lock" not in notebook.names


def test_a_waiting_cell_can_be_cancelled_from_elsewhere(notebook):
    def cancel() -> None:
        job = notebook.names["_mesh"]
        while job.status != "running":
            time.sleep(0.01)
        job.cancel()

    notebook.value("%%mesh\n1")
    del notebook.names["_mesh"]
    timer = threading.Timer(1.0, cancel)
    timer.start()
    ran = notebook.cell("%%mesh\nimport time\nfor _ in range(3000): time.sleep(0.01)")
    timer.join()
    assert isinstance(ran.error, Interrupted)
    assert "was cancelled" in ran.out
    assert notebook.names["_mesh"].status == "cancelled"


def test_interrupting_the_wait_leaves_the_job(notebook, interrupt_after, tmp_path):
    gate = tmp_path / "gate"
    notebook.value(f"gate = {str(gate)!r}")
    notebook.value("%%mesh --no-wait -o job\nimport os, time\nwhile not os.path.exists(gate): time.sleep(0.01)\n7")
    interrupt_after(0.5)
    assert isinstance(notebook.cell("job.result()").error, KeyboardInterrupt)
    assert not notebook.names["job"].done()
    gate.touch()
    assert notebook.value("job.result()") == 7


def test_a_handle_stays_here_and_says_so(notebook):
    notebook.value("%%mesh\n1")
    ran = notebook.cell("%%mesh\n_mesh.status")
    assert "`_mesh`" in ran.out
    assert "Use what its .result() returns" in ran.out


# ---------------------------------------------------------------- keep


def test_kept_names_are_futures_that_go_on(notebook):
    notebook.value("import computemesh as mesh")
    assert type(notebook.value("%%mesh --keep\na = [1, 2]\nb = len(a)\na[0] + 10")).__name__ == "MeshFuture"
    assert {type(notebook.names[name]).__name__ for name in "ab"} == {"MeshFuture"}
    assert notebook.value("mesh.gather([a, b, _mesh.result()])") == [[1, 2], 2, 11]
    assert notebook.value("%%mesh\nsum(a) + b") == 5
    assert notebook.value("mesh.submit(sum, a).result()") == 3


def test_kept_loops_are_lists_of_futures(notebook):
    notebook.value("import computemesh as mesh")
    notebook.value("%%mesh for i in range(3) --keep\nc = i * 2")
    assert notebook.value("mesh.gather(c)") == [0, 2, 4]
    assert notebook.value("%%mesh for v in c\nv + 1") == [1, 3, 5]


def test_a_kept_function_finds_the_names_beside_it(notebook):
    notebook.value("import computemesh as mesh")
    notebook.value("%%mesh --keep\nrate = 3\ndef inner(x): return x * rate\ndef outer(x): return inner(x) + 1")
    assert notebook.value("mesh.gather(outer)(2)") == 7


def test_what_cannot_be_kept_says_so(notebook):
    ran = notebook.cell("%%mesh --keep\nimport threading\nlock = threading.Lock()\nfine = 1\nlock")
    assert "`lock` stayed on node" in ran.err
    assert "the last expression's value stayed on node" in ran.err
    assert type(notebook.names["fine"]).__name__ == "MeshFuture"


def test_a_failing_kept_cell_raises_as_ever(notebook):
    ran = notebook.cell("%%mesh --keep\nbefore = 1\n{}['k']")
    assert isinstance(ran.error, KeyError)
    assert notebook.value("before") == 1
