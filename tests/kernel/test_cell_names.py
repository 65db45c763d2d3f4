"""Names that a cell reads go in, names that it binds come out: the table of Python's ways to do either."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from computemesh.kernel import cell_names as cell_names_module
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
    "set comprehension": ("{f(v) for v in vs}", "f vs", "", ""),
    "dict comprehension": ("{k: v for k, v in d.items()}", "d", "", ""),
    "comprehension over a bound name": ("vs = a\n[v for v in vs]", "a", "vs", ""),
    "comprehension variable of the same name": ("v = a\ns = [v for v in vs]\nv", "a vs", "v s", ""),
    "comprehension with a condition of its own": ("[v for v in vs if ok(v) and go]", "go ok vs", "", ""),
    "lambda in a comprehension": ("[(lambda: v + k) for v in vs]", "k vs", "", ""),
    "async comprehension": ("x = [v async for v in s]", "s", "x", ""),
    "await in a comprehension": ("x = [await f(v) for v in vs]", "f vs", "x", ""),
    "async with": ("async with c as x:\n    x.go()", "c", "x", ""),
    "with of two": ("with a as x, b(x) as y:\n    pass", "a b", "x y", ""),
    "for with else": ("for i in s:\n    pass\nelse:\n    done()", "done s", "i", ""),
    "for over a pair": ("for a, (b, c) in s:\n    f(a)", "f s", "a b c", ""),
    "while with a walrus": ("while (n := f()):\n    g(n)", "f g", "n", ""),
    "augmented item": ("d[k] += v", "d k v", "", ""),
    "augmented attribute": ("o.n += v", "o v", "", ""),
    "augmented bound name": ("n = 0\nn += a", "a", "n", ""),
    "delete an item": ("del d[k]", "d k", "", ""),
    "delete an attribute": ("del o.x", "o", "", ""),
    "delete two": ("del a, b", "a b", "", "a b"),
    "starred assignment": ("first, *rest = s", "s", "first rest", ""),
    "swap": ("a, b = b, a", "a b", "a b", ""),
    "nested functions with nonlocal": (
        "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += k\n    return g",
        "k",
        "f",
        "",
    ),
    "default argument of the same name": ("def f(x=x):\n    return x", "x", "f", ""),
    "keyword-only default": ("def f(*, x=d):\n    return x", "d", "f", ""),
    "annotations of a function": ("def f(a: A, b: 'B' = None) -> R:\n    return g(a)", "A R g", "f", ""),
    "global deleted in a function": ("def f():\n    global t\n    del t", "t", "f", "t"),
    "class with a keyword": ("class A(Base, metaclass=M):\n    pass", "Base M", "A", ""),
    "class in a class": ("class A:\n    class B:\n        y = k\n    z = B", "k", "A", ""),
    "class attribute from a comprehension": ("class A:\n    xs = [f(v) for v in vs]", "f vs", "A", ""),
    "super": ("class A(B):\n    def m(self):\n        return super().m() + k", "B k super", "A", ""),
    "dataclass": ("@dataclass\nclass P:\n    x: int = d", "d dataclass int", "P", ""),
    "decorated method": ("class A:\n    @property\n    def m(self):\n        return k", "k property", "A", ""),
    "generator function": ("def f():\n    yield from g(k)", "g k", "f", ""),
    "try with else and finally": (
        "try:\n    a()\nexcept E:\n    b()\nelse:\n    c()\nfinally:\n    d()",
        "E a b c d",
        "",
        "",
    ),
    "except group": ("try:\n    f()\nexcept* E as g:\n    h(g)", "E f g h", "g", "g"),
    "raise from": ("raise A(x) from y", "A x y", "", ""),
    "match with a class and a guard": (
        "match p:\n    case Point(x=a) if a > k:\n        r = a",
        "Point k p",
        "r a",
        "",
    ),
    "match with a star": ("match p:\n    case [a, *b]:\n        pass\n    case _:\n        pass", "p", "a b", ""),
    "match on a value": ("match p:\n    case M.X | M.Y:\n        r = 1", "M p", "r", ""),
    "chained comparison": ("a < b <= c", "a b c", "", ""),
    "print with a format": ("print(f'{a!r:>{w}} {b=}')", "a b print w", "", ""),
    "matrix product": ("c = a @ b", "a b", "c", ""),
    "ellipsis and slices": ("x[..., a:b:c]", "a b c x", "", ""),
    "relative names in an import": ("from a.b import c as d, e", "", "d e", ""),
    "import in a function": ("def f():\n    import m\n    return m.x(k)", "k", "f", ""),
    "perhaps bound in a try": ("try:\n    x = f()\nexcept E:\n    pass\nuse(x)", "E f use x", "x", ""),
    "bound in both branches": ("if a:\n    x = 1\nelse:\n    x = 2\nx", "a x", "x", ""),
    "mutual recursion": ("def f(n):\n    return g(n)\ndef g(n):\n    return f(n)", "g", "f g", ""),
    "exec of a text": ("exec(code)", "code exec", "", ""),
    "only a text": ("'just a text'", "", "", ""),
    "boolean short cut": ("x = a and b or c", "a b c", "x", ""),
}


MAY_READ = {
    "try with a named exception": {"e"},
    "except group": {"g"},
    "match": {"v"},
    "match with a class and a guard": {"a"},
    "while with a walrus": {"n"},
    "bound in both branches": {"x"},
}
"""What straight-line code cannot decide may be read too much, never too little."""


def wrong_names(found: dict[str, list[list[str]]]) -> list[str]:
    """Return the constructs whose names were found otherwise than the table says."""
    wrong = []
    for name, (_, *expected) in CONSTRUCTS.items():
        reads, binds, deletes = (set(words.split()) for words in expected)
        optional = MAY_READ.get(name, set())
        # Builtins that no source names: they are sorted out later.
        got = set(found[name][0]) - {"AssertionError", "__build_class__"}
        if got | optional != reads | optional or found[name][1:] != [sorted(binds), sorted(deletes)]:
            wrong.append(f"{name}: {found[name]}")
    return wrong


def names_here() -> dict[str, list[list[str]]]:
    found = {name: cell_names(source) for name, (source, *_) in CONSTRUCTS.items()}
    return {name: [sorted(each.reads), sorted(each.binds), sorted(each.deletes)] for name, each in found.items()}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_names_of_a_construct(name):
    assert not [wrong for wrong in wrong_names(names_here()) if wrong.startswith(f"{name}:")]


def other_pythons() -> list[str]:
    """Return the interpreters of other versions that this machine has."""
    found = {}
    for minor in range(11, 20):
        places = [shutil.which(f"python3.{minor}"), *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
        for place in places:
            if place and minor != sys.version_info.minor and _runs(str(place)):
                found[minor] = str(place)
    return list(found.values())


def _runs(python: str) -> bool:
    # pyenv's shims are there for versions that are not chosen, and fail.
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("python", other_pythons())
def test_every_other_python_here_finds_the_same(python):
    source = Path(cell_names_module.__file__).read_text("utf-8")
    script = (
        "import json, sys, types\nmodule = types.ModuleType('cell_names'); sys.modules['cell_names'] = module\n"
        "text, sources = json.load(sys.stdin)\nexec(text, vars(module))\n"
        "found = {name: module.cell_names(source) for name, source in sources.items()}\n"
        "print(json.dumps({n: [sorted(f.reads), sorted(f.binds), sorted(f.deletes)] for n, f in found.items()}))"
    )
    given = json.dumps([source, {name: text for name, (text, *_) in CONSTRUCTS.items()}])
    done = subprocess.run([python, "-c", script], input=given, capture_output=True, text=True, check=True)
    assert wrong_names(json.loads(done.stdout)) == []


def test_the_table_is_long_enough():
    assert len(CONSTRUCTS) >= 60


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
