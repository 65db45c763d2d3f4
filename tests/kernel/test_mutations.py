"""What a cell changes in place stays on the node; where that can be seen, it is said, and never falsely."""

from __future__ import annotations

import collections
import types

import pytest

from computemesh.kernel.cell_names import cell_names
from computemesh.kernel.mutations import changed_in_place


class Thing:
    def append(self, x):
        pass


HOME = {
    "data": [1],
    "d": {"k": [1]},
    "s": {1},
    "q": collections.deque(),
    "c": collections.Counter(),
    "thing": Thing(),
    "module": types,
    "x": 1,
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("data.append(2)", "data"),
        ("for i in range(3):\n    data.append(i)", "data"),
        ("if x:\n    with open('f') as f:\n        d['k'] = f.read()", "d"),
        ("d['k'] = 2", "d"),
        ("d['k'].append(2)\nd['k'][0] = 2", "d"),
        ("d['k'] += [2]", "d"),
        ("del d['k']", "d"),
        ("d.update(a=1)", "d"),
        ("s.add(2)", "s"),
        ("q.appendleft(1)", "q"),
        ("c.update('abc')", "c"),
        ("thing.value = 2", "thing"),
        ("thing.a.b[0] = 2", "thing"),
        ("last = data.pop()", "data"),
        ("thing.fillna(0, inplace=True)", "thing"),
        ("data.append(1)\nd['k'] = 2", "data d"),
        ("(d['a'], thing.b) = 1, 2", "d thing"),
    ],
)
def test_seen(text, names):
    assert changed_in_place(text, HOME, cell_names(text).binds) == tuple(names.split())


@pytest.mark.parametrize(
    "text",
    [
        "data = []\ndata.append(1)",
        "data = [*data, 1]",
        "data += [1]",
        "fresh = {}\nfresh['k'] = 1",
        "thing.append(1)",
        "module.x = 1",
        "data.count(1)",
        "d.get('k')",
        "y = d['k']",
        "def f(data):\n    data.append(1)",
        "[d.update(a=1) for d in []]",
        "unknown.append(1)",
        "thing.fillna(0, inplace=False)",
        "sorted(data)",
        "for d in []:\n    d['k'] = 1",
        "x.append",
    ],
)
def test_no_false_alarm(text):
    assert changed_in_place(text, HOME, cell_names(text).binds) == ()


def test_the_cell_says_so_once_and_what_to_do(notebook):
    notebook.value("data = [1]")
    ran = notebook.cell("%%mesh for i in range(3)\ndata.append(i)\nlen(data)")
    assert ran.result == [2, 2, 2]
    assert ran.err.count("`data` is changed in place") == 1
    assert "--return data" in ran.err
    assert notebook.value("data") == [1]


def test_return_brings_the_change_back(notebook):
    notebook.value("data = [1]")
    ran = notebook.cell("%%mesh --return data\ndata.append(2)\nother = 1")
    assert ran.err == ""
    assert notebook.value("data") == [1, 2]
    assert "other" not in notebook.names
