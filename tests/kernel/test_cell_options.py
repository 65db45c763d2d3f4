"""What the line of %%mesh may ask for, and what cells may hold, on real workers."""

from __future__ import annotations

import pytest


def test_ship_sends_these_names_and_no_others(notebook):
    notebook.value("a, b = 1, 2\ncode = 'a + b'")
    assert isinstance(notebook.cell("%%mesh\neval(code)").error, NameError), "what only exec reads cannot be seen"
    assert notebook.value("%%mesh --ship a b code\neval(code)") == 3
    assert isinstance(notebook.cell("%%mesh --ship none\na").error, NameError)
    ran = notebook.cell("%%mesh --ship a nothing\n1")
    assert "--ship nothing: the notebook has no `nothing`" in ran.err


def test_ship_takes_along_what_its_functions_use(notebook):
    notebook.value("k = 4\ndef f(x): return x * k")
    assert notebook.value("%%mesh --ship f\nf(2)") == 8


def test_return_brings_back_these_names_and_no_others(notebook):
    notebook.value("%%mesh --return y\nx = 1\ny = 2")
    assert notebook.value("y") == 2
    assert "x" not in notebook.names
    notebook.value("%%mesh --return hidden\nglobals()['hidden'] = 5")
    assert notebook.value("hidden") == 5
    notebook.value("%%mesh --return none\nq = 1")
    assert "q" not in notebook.names
    assert "`gone` did not come back" in notebook.cell("%%mesh --return gone\n1").err


def test_where_chooses_nodes(notebook, mesh):
    first, second = mesh.nodes().names
    for name in (first, second):
        runs = notebook.value(f"%%mesh for i in range(4) --where \"name == '{name}'\"\nimport os\nos.getpid()")
        assert len(set(runs)) == 1
    assert len(notebook.value("%%mesh --each --where \"name == 'worker 0'\"\n1")) == 1
    ran = notebook.cell("%%mesh --where \"site == 'oslo'\"\n1")
    assert "No node meets --where \"site == 'oslo'\": worker 0 (site -)" in ran.err


def test_later_options_are_refused(notebook):
    ran = notebook.cell("%%mesh --replicas 3\n1")
    assert "--replicas 3: replicas comes with a later release" in ran.err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("%%mesh", "incomplete"),
        ("%%mesh for n in range(3)\n", "incomplete"),
        ("%%mesh for n in range(3)\nn * n", "incomplete"),
        ("%%mesh for n in range(3)\nn * n\n\n", "complete"),
    ],
)
def test_a_console_waits_for_the_cells_body(local, text, found):
    """`jupyter console` asks after each line whether the cell is complete; a blank line ends it."""
    assert local.shell.check_complete(text)[0] == found


@pytest.mark.parametrize(
    "text", ["%%mesh --help", "%%mesh?", "%%mesh --help\n", "\n%%mesh -h\n\n", "%%mesh --help\n1/0"]
)
def test_help_needs_no_body(notebook, text):
    ran = notebook.cell(text)
    assert ran.error is None
    assert "--no-wait" in ran.out
    assert "usage: %%mesh" in ran.out


def test_an_empty_cell_says_what_to_do(notebook):
    ran = notebook.cell("%%mesh for i in range(3)")
    assert "the cell is empty" in ran.err


def test_other_empty_magics_are_ipythons(notebook):
    assert "is a cell magic, but the cell body is empty" in notebook.cell("%%timeit").err


# ---------------------------------------------------------------- the line magic


def test_the_line_magic(notebook):
    assert "2 nodes" in repr(notebook.value("%mesh"))
    assert len(notebook.value("%mesh nodes")) == 2
    assert "this notebook's cells" in notebook.cell("%mesh help").out
    notebook.value("%%mesh\n1 + 1")
    notebook.value("import computemesh as mesh\nfuture = mesh.submit(abs, -3)\nfuture.result()")
    listed = repr(notebook.value("%mesh jobs"))
    assert f"{notebook.names['_mesh'].number}  finished" in listed
    assert "submit abs" in listed
    number = notebook.names["_mesh"].number
    assert notebook.names["_mesh"].keys[0] in repr(notebook.value(f"%mesh why {number}"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%mesh nonsense", "there is no `nonsense`; there are status, nodes"),
        ("%mesh cancel", "no cell of this notebook has a job that runs"),
        ("%mesh cancel 999999", "no cell of this notebook has job '999999'"),
        ("%mesh why", "why KEY or JOB"),
        ("%mesh nodes now", "1 arguments were given"),
        ("%mesh for x in y", "two percent signs"),
    ],
)
def test_a_bad_line_says_what_there_is(notebook, line, said):
    notebook.names.pop("_mesh", None)
    ran = notebook.cell(line)
    assert said in ran.err + ran.out
    assert "Traceback" not in ran.out + ran.err


def test_connect_to_nobody_is_one_sentence(notebook):
    ran = notebook.cell("%mesh connect tcp://127.0.0.1:1")
    assert "No Dask scheduler answers at tcp://127.0.0.1:1" in ran.out
    assert "line_magic" not in ran.out


def test_cancel_by_number(notebook):
    job = notebook.value("%%mesh --no-wait\nimport time\nfor _ in range(3000): time.sleep(0.01)")
    assert "is being cancelled" in notebook.cell(f"%mesh cancel {job.number}").out
    assert job._ended.wait(30)
    assert job.status == "cancelled"
    assert "has ended already" in notebook.cell(f"%mesh cancel {job.number}").err


# ---------------------------------------------------------------- what cells may hold


def test_dataclasses_generators_and_methods(notebook):
    notebook.value(
        "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n"
        "    tags: list = field(default_factory=list)\n    @property\n    def twice(self): return self.x * 2\n"
        "    @classmethod\n    def of(cls, x): return cls(x)\n    @staticmethod\n"
        "    def k(): return offset\noffset = 7\n"
        "def numbers(n):\n    for i in range(n):\n        yield P(i)"
    )
    assert notebook.value("%%mesh\n[p.twice for p in numbers(3)], P.of(2) < P(3), P.k()") == ([0, 2, 4], True, 7)
    notebook.value("%%mesh\nps = list(numbers(2))")
    assert notebook.value("ps == [P(0), P(1)]")


def test_classes_made_in_the_cell_live_on_here(notebook):
    notebook.value("rate = 2")
    notebook.value(
        "%%mesh\nfrom enum import Enum\nclass Colour(Enum):\n    RED = 1\nclass Base:\n    def m(self): return rate\n"
        "class Child(Base):\n    def m(self): return super().m() + 1\nc = Child()\nred = Colour.RED"
    )
    assert notebook.value("c.m(), isinstance(c, Base), red is Colour.RED") == (3, True, True)


def test_augmented_assignment_del_and_comprehensions(notebook):
    notebook.value("total, d = 1, {'a': 1}")
    assert notebook.value("%%mesh\ntotal += 5\nsquares = {k: v for k, v in zip('ab', range(2))}\ndel d\ntotal") == 6
    assert notebook.value("total, squares") == (6, {"a": 0, "b": 1})
    assert "d" not in notebook.names


def test_await_over_a_loop_of_items(notebook):
    notebook.value("import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x + 1")
    assert notebook.value("%%mesh for x in range(3)\nasync with asyncio.timeout(5):\n    y = await f(x)\ny") == [
        1,
        2,
        3,
    ]


def test_dask_collections_and_delayed_go_in(notebook):
    notebook.value(
        "import dask, dask.array as da, dask.bag as db\nx = da.ones((4, 4), chunks=2)\nd = dask.delayed(sum)([1, 2])"
    )
    assert notebook.value("%%mesh\nfloat(x.sum().compute()), d.compute()") == (16.0, 3)
    notebook.value("p = x.persist()")
    assert notebook.value("%%mesh\nfloat(p.sum().compute())") == 16.0
    notebook.value("%%mesh\ny = x + 1")
    assert notebook.value("float(y.sum().compute())") == 32.0


def test_loops_and_functions_of_the_notebook_may_call_the_magic(notebook):
    notebook.value("import computemesh as mesh\nfrom IPython import get_ipython")
    notebook.value("got = []\nfor i in range(3):\n    got.append(mesh.run('i * 10'))")
    assert notebook.value("got") == [0, 10, 20]
    notebook.value("for k in range(2):\n    get_ipython().run_cell_magic('mesh', '', 'last = k')")
    assert notebook.value("last") == 1


def test_pandas_comes_back_as_pandas(notebook):
    notebook.value("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})")
    ran = notebook.cell("%%mesh\ndf2 = df.assign(b=df.a * 2)\ndf2")
    assert list(ran.result.b) == [2, 4]
    assert notebook.value("df2.shape") == (2, 2)


# ---------------------------------------------------------------- files


def test_files_go_along_and_lie_there_as_here(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("1,2")
    (tmp_path / "y.txt").write_text("y")
    assert notebook.value("%%mesh --file data y.txt\nopen('data/x.csv').read() + open('y.txt').read()") == "1,2y"
    assert notebook.value("%%mesh for i in range(3) --file y.txt\nopen('y.txt').read() * i") == ["", "y", "yy"]
    ran = notebook.cell("%%mesh --file nowhere\n1")
    assert "nowhere" in ran.out + ran.err
    assert isinstance(notebook.cell("%%mesh\nopen('y.txt')").error, FileNotFoundError), "only where they were asked for"
