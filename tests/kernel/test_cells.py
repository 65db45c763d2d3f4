"""%%mesh runs a cell on a node as though it had run here."""

from __future__ import annotations

import os
import sys
import time

import pytest

from computemesh.errors import CannotShip, Interrupted, MeshError


def test_names_go_in_and_come_back(notebook):
    notebook.value("a = 20")
    assert notebook.value("%%mesh\nb = a + 1\nb * 2") == 42
    assert notebook.value("b") == 21


def test_it_runs_elsewhere(notebook):
    assert notebook.value("%%mesh\nimport os\nos.getpid()") != os.getpid()


def test_a_semicolon_silences(notebook):
    ran = notebook.cell("%%mesh\n1 + 1;")
    assert "Out" not in ran.out


def test_a_loop_gives_lists_in_the_order_of_its_items(notebook):
    notebook.value("k = 10\nimport time")
    assert notebook.value("%%mesh for i in [3, 1, 2]\ntime.sleep(i / 50)\nx = i * k\nx + 1") == [31, 11, 21]
    assert notebook.value("x") == [30, 10, 20]


def test_a_loop_unpacks_its_items(notebook):
    assert notebook.value("%%mesh for a, (b, c) in [(1, (2, 3)), (4, (5, 6))]\na + b + c") == [6, 15]


def test_an_empty_loop_binds_empty_lists(notebook):
    assert notebook.value("%%mesh for i in []\nx = i") is None
    assert notebook.value("x") == []


def test_each_runs_once_on_every_node(notebook):
    pids = notebook.value("%%mesh --each\nimport os\nos.getpid()")
    assert len(set(pids)) == 2


def test_output_name(notebook):
    ran = notebook.cell("%%mesh for i in range(3) -o squares\ni * i")
    assert ran.result is None
    assert notebook.value("squares") == [0, 1, 4]


def test_notebook_functions_go_by_value_with_their_globals(notebook):
    notebook.value("scale = 3\ndef inner(x): return x * scale\ndef outer(x): return inner(x) + 1")
    assert notebook.value("%%mesh\nouter(5)") == 16
    assert notebook.value("%%mesh\nscale = 100\nouter(5)") == 501, "functions see the cell's own globals, as here"


def test_functions_that_come_back_live_in_the_notebook(notebook):
    notebook.value("rate = 2")
    notebook.value("%%mesh\ndef scaled(x):\n    return x * rate")
    notebook.value("rate = 7")
    assert notebook.value("scaled(3)") == 21
    assert notebook.value("scaled.__globals__ is globals()")


def test_classes_and_their_instances_keep_their_identity(notebook):
    notebook.value(
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
        "    def more(self): return self.x + step\nstep = 5"
    )
    notebook.value("%%mesh\np = P(1)\nq = p.more()")
    assert notebook.value("isinstance(p, P), q, P(1) == p") == (True, 6, True)


def test_what_is_shared_stays_shared(notebook):
    notebook.value("%%mesh\na = []\nb = a")
    assert notebook.value("a is b")


def test_deleted_names_are_deleted_here(notebook):
    notebook.value("gone = 1")
    notebook.value("%%mesh\ndel gone")
    assert "gone" not in notebook.names


def test_what_is_changed_in_place_stays_as_it_was_here(notebook):
    notebook.value("items = [1]")
    assert notebook.value("%%mesh\nitems.append(2)\nlen(items)") == 2
    assert notebook.value("items") == [1]


def test_top_level_await(notebook):
    assert notebook.value(
        "%%mesh\nimport asyncio\nawait asyncio.sleep(0.01)\n[await asyncio.sleep(0, i) for i in 'ab']"
    ) == [
        "a",
        "b",
    ]


def test_star_import(notebook):
    notebook.value("%%mesh\nfrom string import *")
    assert notebook.value("digits") == "0123456789"


def test_printed_lines_carry_the_node_when_there_are_several(notebook):
    assert notebook.cell("%%mesh\nprint('one')\nimport sys\nprint('two', file=sys.stderr)").out == "one\n"
    ran = notebook.cell("%%mesh for i in range(4)\nprint('run', i)")
    assert sorted(line.partition("] ")[2] for line in ran.out.splitlines()) == [f"run {i}" for i in range(4)]
    assert all(line.startswith("[worker ") for line in ran.out.splitlines())


def test_long_output_arrives_whole_and_in_order(notebook):
    ran = notebook.cell("%%mesh\nfor i in range(20_000): print(i)")
    assert ran.out == "".join(f"{i}\n" for i in range(20_000))


def test_displays_and_figures_come_back(notebook):
    ran = notebook.cell(
        "%%mesh\nfrom IPython.display import HTML, display as show\nshow(HTML('<b>1</b>'))\ndisplay(HTML('<b>2</b>'))\n"
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([2, 1])\n3"
    )
    assert ran.error is None
    assert ran.result == 3
    assert ran.out.count("<IPython.core.display.HTML object>") == 2
    assert ran.out.count("<Figure size") == 2


def test_what_cannot_come_back_stays_and_says_so(notebook):
    ran = notebook.cell("%%mesh\nimport threading\nlock = threading.Lock()\nfine = 1")
    assert ran.error is None
    assert "`lock` stayed on node" in ran.err
    assert notebook.value("fine") == 1
    ran = notebook.cell("%%mesh\n(i for i in range(3))")
    assert ran.error is None
    assert "generator object" in ran.out


# ---------------------------------------------------------------- errors


def test_one_failure_raises_the_original_type_with_the_cells_own_lines(notebook):
    notebook.value("def divide(a, b):\n    return a / b")
    ran = notebook.cell("%%mesh\nbefore = 1\nx = divide(1, 0)")
    assert isinstance(ran.error, ZeroDivisionError)
    number = notebook.shell.execution_count - 1
    assert f"Cell In[{number}], line 3" in ran.out
    assert "----> 3 x = divide(1, 0)" in ran.out
    assert f"Cell In[{number - 1}], line 2, in divide" in ran.out
    assert "----> 2     return a / b" in ran.out
    assert "on node worker" in ran.out
    assert "run_cell" not in ran.out, "our own frames are left out"
    assert notebook.value("before") == 1, "what was bound before the error stays bound, as here"


def test_an_exception_class_of_the_notebook_is_the_same_class(notebook):
    notebook.value("class Mine(Exception): pass")
    notebook.value("%%mesh\nclass Theirs(Exception): pass")
    for name in ("Mine", "Theirs"):
        ran = notebook.cell(f"%%mesh\nraise {name}('no')")
        assert type(ran.error) is notebook.names[name]


def test_one_of_several_failures_raises_the_original_type(notebook):
    ran = notebook.cell("%%mesh for i in range(3)\nif i == 1: raise KeyError('k')")
    assert isinstance(ran.error, KeyError)
    assert "1 of 3 runs failed" in ran.out


def test_several_failures_raise_one_error_that_holds_them(notebook):
    ran = notebook.cell("%%mesh for i in range(6)\nif i: raise ValueError(i)")
    assert isinstance(ran.error, MeshError)
    assert [error.args for error in ran.error.errors] == [(i,) for i in range(1, 6)]
    assert "5 of 6 runs failed" in ran.out
    assert "and 2 more" in ran.out


def test_an_exception_that_cannot_travel_is_told(notebook):
    ran = notebook.cell(
        "%%mesh\nimport threading\nclass Bad(Exception):\n    pass\ne = Bad('x')\ne.lock = threading.Lock()\nraise e"
    )
    assert isinstance(ran.error, MeshError)
    assert "Bad: x" in str(ran.error)
    assert "----> 7 raise e" in ran.out


def test_chained_exceptions_show_their_cause(notebook):
    ran = notebook.cell("%%mesh\ntry:\n    {}['k']\nexcept KeyError as e:\n    raise RuntimeError('outer') from e")
    assert isinstance(ran.error, RuntimeError)
    assert "KeyError: 'k'" in ran.out
    assert "direct cause" in ran.out


def test_sys_exit_is_the_cells_end_not_the_workers(notebook):
    ran = notebook.cell("%%mesh\nimport sys\nsys.exit(3)")
    assert isinstance(ran.error, SystemExit)
    assert len(notebook.value("%%mesh --each\n1")) == 2


def test_retries(notebook, tmp_path):
    notebook.value(f"flag = {str(tmp_path / 'flag')!r}\nimport os")
    text = "\nif not os.path.exists(flag):\n    open(flag, 'w').close()\n    raise OSError('first time')\n'second'"
    assert notebook.value("%%mesh --retries 1" + text) == "second"


def test_a_timeout_stops_the_run(notebook):
    ran = notebook.cell("%%mesh --timeout 0.3\nwhile True: pass")
    assert isinstance(ran.error, Interrupted)
    assert "0.3 s" in str(ran.error)
    assert len(notebook.value("%%mesh --each\n1")) == 2, "the workers live on"


# ---------------------------------------------------------------- refused before anything runs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%%mesh\n!ls -l", "!ls -l"),
        ("%%mesh\nfiles = !ls", "files = !ls"),
        ("%%mesh\n%timeit 1", "%timeit 1"),
        ("%%mesh\nlen?", "len?"),
        ("%%mesh\nname = input('who?')", "input()"),
        ("%%mesh --bogus\n1", "--bogus"),
        ("%%mesh --ram much\n1", "ram='much'"),
        ("%%mesh for i in 5\n1", "int cannot be gone over"),
    ],
)
def test_a_bad_cell_is_refused_with_its_reason(notebook, text, said):
    ran = notebook.cell(text)
    assert ran.error is not None
    assert said in ran.err + ran.out
    assert "Traceback" not in ran.out


def test_a_syntax_error_shows_the_cells_line(notebook):
    ran = notebook.cell("%%mesh\nx = 1\ny = = 2")
    assert f"Cell In[{notebook.shell.execution_count - 1}], line 3" in ran.out
    assert "SyntaxError: invalid syntax" in ran.out
    assert "cell_source" not in ran.out


def test_a_variable_that_cannot_travel_is_named(notebook):
    notebook.value("import threading\nlock = threading.Lock()\ndef f(): return lock")
    for cell in ("lock.locked()", "f()"):
        ran = notebook.cell(f"%%mesh\n{cell}")
        assert isinstance(ran.error, CannotShip)
        assert "`lock`, a _thread.lock" in ran.out
    ran = notebook.cell("%%mesh for i in [1, lock]\ni")
    assert "item 1 of the loop" in ran.out


def test_a_big_variable_is_refused_with_its_size_and_can_be_allowed(notebook):
    notebook.value("import numpy as np\nbig = np.ones(3_000_000)\ntext = 'x' * 3_000_000")
    ran = notebook.cell("%%mesh --ship-limit 2MB\nbig.sum()")
    assert isinstance(ran.error, CannotShip)
    assert "`big` is 24 MB" in ran.out
    assert "`text` is 3 MB" in notebook.cell("%%mesh --ship-limit 2MB\nlen(text)").out
    assert notebook.value("%%mesh\nbig.sum()") == 3_000_000


# ---------------------------------------------------------------- modules, futures, threads


def test_a_module_beside_the_notebook_goes_by_value(notebook, tmp_path, monkeypatch):
    (tmp_path / "beside_the_notebook.py").write_text("K = 4\ndef times(x):\n    return x * K\n")
    monkeypatch.syspath_prepend(tmp_path)
    notebook.value("import beside_the_notebook\nfrom beside_the_notebook import times")
    assert notebook.value("%%mesh\ntimes(2), beside_the_notebook.times(3)") == (8, 12)
    del sys.modules["beside_the_notebook"]


def test_futures_arrive_as_their_values(notebook):
    notebook.value("import computemesh as mesh\nf = mesh.submit(lambda: 5)\nfs = mesh.map(lambda x: x * x, range(3))")
    assert notebook.value("%%mesh\nf + 1") == 6
    assert notebook.value("%%mesh\nsum(fs)") == 5
    assert notebook.value("%%mesh for g in fs\n(g, f)") == [(0, 5), (1, 5), (4, 5)]


def test_shared_names_are_sent_once_however_many_runs(notebook, mesh):
    notebook.value("data = 'x' * 200_000")
    assert notebook.value("%%mesh for i in range(6)\nlen(data)") == [200_000] * 6
    deadline = time.monotonic() + 10
    while mesh.client.who_has() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not mesh.client.who_has(), "and forgotten when the cell is done"


def test_the_scheduler_forgets_the_output_it_need_not_keep(notebook, mesh):
    def topics() -> set[str]:
        return {topic for topic in mesh.client.get_events() if topic.startswith("mesh-output")}

    before = topics()
    for _ in range(3):
        notebook.value("%%mesh for i in range(20)\nprint('x' * 1000)")
    assert topics() - before == {f"mesh-output-{mesh.client.id}"}, "one for each client, not for each cell"


def test_run_does_the_same_for_a_string_of_code(notebook):
    notebook.value("import computemesh as mesh\nn = 4")
    assert notebook.value("mesh.run('m = n + 1\\nm * 2')") == 10
    assert notebook.value("m") == 5
    assert notebook.value("mesh.run('i * n', 'for i in range(3)')") == [0, 4, 8]
    ran = notebook.cell("mesh.run('1 / 0')")
    assert isinstance(ran.error, ZeroDivisionError)


def test_dask_computes_on_the_mesh(notebook):
    assert notebook.value("import dask, os\ndask.delayed(os.getpid)().compute()") != os.getpid()


def test_interrupt_cancels_what_waits_and_stops_what_runs(notebook, interrupt_after):
    notebook.value("import time")
    interrupt_after(1.0)
    ran = notebook.cell("%%mesh for i in range(6)\nfor _ in range(3000): time.sleep(0.01)\nx = 1")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert "2 running were stopped, 4 waiting were cancelled" in ran.err
    assert "x" not in notebook.names
    assert sorted(notebook.value("%%mesh for i in range(2)\ni")) == [0, 1], "the workers are free again"
