"""Names that a cell reads go in, names that it binds come out: the table of Python's ways to do either."""

from __future__ import annotations

import pytest

from computemesh.kernel.cell_names import cell_names, target_names

CONSTRUCTS = {
    "plain read": ("a + b", "a b", "", ""),
    "assignment": ("x = a", "a", "x", ""),
    "bound before it is read": ("x = 1\ny = x", "", "x y", ""),
    "read before it is bound": ("y = x\nx = 1", "x", "x y", ""),
    "bound only perhaps": ("if a:\n    x = 1\nx", "a x", "x", ""),
    "augmented assignment": ("total += 1", "total", "total", ""),
    "delete": ("del x", "x", "", "x"),
    "delete what the cell bound": ("x = 1\ndel x", "", "x", "x"),
    "unpacking": ("a, (b, *c) = d", "d", "a b c", ""),
    "chained assignment": ("a = b = c", "c", "a b", ""),
    "item assignment": ("d['k'] = v", "d v", "", ""),
    "attribute assignment": ("o.x = v", "o v", "", ""),
    "annotated assignment": ("x: int = a", "a int", "x", ""),
    "walrus": ("(n := a) + n", "a", "n", ""),
    "walrus in a comprehension": ("[last := v for v in vs]", "vs", "last", ""),
    "list comprehension": ("[v * k for v in vs if v]", "k vs", "", ""),
    "nested comprehension": ("{i: [j for j in g(i)] for i in items}", "g items", "", ""),
    "generator expression": ("sum(v for v in vs)", "sum vs", "", ""),
    "for loop": ("for i in items:\n    use(i)", "items use", "i", ""),
    "while loop": ("while go:\n    go = step()", "go step", "go", ""),
    "with": ("with opened() as f:\n    f.read()", "opened", "f", ""),
    "import": ("import numpy as np\nnp.zeros(n)", "n", "np", ""),
    "import of a submodule": ("import os.path\nos.path.join(a)", "a", "os", ""),
    "from import": ("from math import pi as p\np * r", "r", "p", ""),
    "function": ("def f(x, y=d):\n    return x + k", "d k", "f", ""),
    "recursive function": ("def f(n):\n    return f(n - 1)", "f", "f", ""),
    "function with locals": ("def f():\n    t = 1\n    return t", "", "f", ""),
    "closure": ("def f():\n    t = a\n    def g():\n        return t + b\n    return g", "a b", "f", ""),
    "global in a function": ("def f():\n    global count\n    count = a", "a", "count f", ""),
    "lambda": ("f = lambda x: x + k", "k", "f", ""),
    "decorator": ("@deco\ndef f():\n    pass", "deco", "f", ""),
    "class": ("class A(Base):\n    x = k\n    def m(self):\n        return g(self.x)", "Base g k", "A", ""),
    "class that reads its own names": ("class A:\n    x = 1\n    y = x", "", "A", ""),
    "async function": ("async def f():\n    await g()", "g", "f", ""),
    "top-level await": ("x = await g(a)", "a g", "x", ""),
    "top-level async for": ("async for i in s:\n    t(i)", "s t", "i", ""),
    "try with a named exception": ("try:\n    f()\nexcept E as e:\n    g(e)", "E e f g", "e", "e"),
    "match": ("match p:\n    case {'k': v}:\n        r = v", "p v", "r v", ""),
    "f-string": ("s = f'{a:{w}}'", "a w", "s", ""),
    "conditional expression": ("x = a if c else b", "a b c", "x", ""),
    "starred call": ("f(*args, **kw)", "args f kw", "", ""),
    "assert": ("assert ok, message", "message ok", "", ""),
    "slice": ("x[a:b]", "a b x", "", ""),
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_names_of_a_construct(name):
    source, reads, binds, deletes = CONSTRUCTS[name]
    found = cell_names(source)
    # What straight-line code cannot decide may be read too much, never too little: builtins are sorted out later.
    optional = {"e", "v"} if name in {"try with a named exception", "match"} else set()
    assert found.reads - {"AssertionError"} | optional == set(reads.split()) | optional
    assert found.binds == set(binds.split())
    assert found.deletes == set(deletes.split())


def test_star_import_is_known_to_bind_unknown_names():
    assert cell_names("from math import *").star
    assert not cell_names("import math").star


def test_the_loop_target_is_no_read():
    assert cell_names("x + k", "x").reads == {"k"}


@pytest.mark.parametrize(
    ("target", "names"), [("x", ("x",)), ("a, b", ("a", "b")), ("(a, (b, c))", ("a", "b", "c")), ("d[k]", ())]
)
def test_target_names(target, names):
    assert sorted(target_names(target)) == sorted(names)
