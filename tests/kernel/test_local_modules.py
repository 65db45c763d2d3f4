"""Modules and packages beside the notebook work on the nodes, as they are now, by whatever road the code goes."""

from __future__ import annotations

import importlib
import sys
import textwrap

import dask
import pytest

import computemesh as face
from computemesh.errors import CannotShip
from computemesh.kernel import module_sources
from computemesh.kernel.module_sources import activate, bundle_of
from computemesh.kernel.shipping import imported_by


@pytest.fixture(autouse=True)
def beside(tmp_path, monkeypatch):
    """A folder that the notebook is in."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    importlib.invalidate_caches()


MODULE = """
    SCALE = 3

    def scaled(x):
        return helper(x) * SCALE

    def helper(x):
        return x + 1

    class Point:
        def __init__(self, x):
            self.x = x
        def __eq__(self, other):
            return isinstance(other, Point) and other.x == self.x
        __hash__ = None
"""


def test_a_module_works_in_every_road(mesh, beside):
    """dask/distributed#344, #3185, #7834; pangeo#187: `ModuleNotFoundError` for a helper next to the notebook."""
    write(beside, {"road_helper.py": MODULE})
    helper = importlib.import_module("road_helper")
    assert face.submit(helper.scaled, 1).result() == 6
    assert face.gather(face.map(lambda x: helper.scaled(x), [1, 2])) == [6, 9]
    assert mesh.client.submit(helper.scaled, 1).result() == 6, "Dask's own submit"
    assert dask.delayed(helper.scaled)(1).compute(scheduler=mesh.client) == 6
    import dask.array as da

    assert da.ones(4, chunks=2).map_blocks(helper.scaled).sum().compute(scheduler=mesh.client) == 24


def test_its_objects_go_and_come_back_as_themselves(mesh, beside):
    write(beside, {"point_helper.py": MODULE})
    helper = importlib.import_module("point_helper")
    made = face.submit(helper.Point, 5)
    assert made.result() == helper.Point(5)
    assert type(made.result()) is helper.Point
    assert face.submit(lambda point: point.x, made).result() == 5
    assert face.submit(lambda point: point.x, helper.Point(7)).result() == 7


def test_an_edit_is_noticed_after_reload_and_on_import(mesh, beside):
    write(beside, {"edited_helper.py": "def f():\n    return 1\n"})
    helper = importlib.import_module("edited_helper")

    def importing():
        import edited_helper

        return edited_helper.f()

    assert face.submit(helper.f).result() == 1
    assert face.gather([face.submit(importing) for _ in range(4)]) == [1] * 4
    write(beside, {"edited_helper.py": "def f():\n    return 22\n"})
    importlib.reload(helper)
    assert face.submit(helper.f).result() == 22
    assert face.gather([face.submit(importing) for _ in range(4)]) == [22] * 4
    assert mesh.client.submit(helper.f, pure=False).result() == 22


def test_code_that_imports_a_package_finds_it_with_its_data(mesh, beside):
    write(
        beside,
        {
            "own_package/__init__.py": "from .inner import value\nDATA = 7\n",
            "own_package/inner/__init__.py": "from ..tools import double\nfrom own_sibling import ONE\n"
            "def value():\n    from .later import extra\n    return double(ONE) + extra\n",
            "own_package/inner/later.py": "extra = 100\n",
            "own_package/tools.py": "def double(x):\n    return 2 * x\n",
            "own_package/words.txt": "hello",
            "own_sibling.py": "ONE = 1\n",
        },
    )

    def importing():
        import importlib.resources

        import own_package
        from own_package.inner import value

        return value(), own_package.DATA, importlib.resources.files("own_package").joinpath("words.txt").read_text()

    assert face.submit(importing).result() == (102, 7, "hello")
    package = importlib.import_module("own_package")
    assert face.submit(package.value).result() == 102, "by value, with an import inside the function"
    assert face.submit(lambda: package.inner.value()).result() == 102


def test_ours_wins_over_one_of_the_same_name_on_the_node(mesh, beside, tmp_path_factory):
    theirs = tmp_path_factory.mktemp("theirs")
    write(theirs, {"twice_helper.py": "WHO = 'theirs'\n"})
    write(beside, {"twice_helper.py": "WHO = 'ours'\n"})

    def prepared(folder):
        import sys

        sys.path.insert(0, folder)
        import twice_helper

        return twice_helper.WHO

    assert set(mesh.client.run(prepared, str(theirs)).values()) == {"theirs"}

    def asking():
        import twice_helper

        return twice_helper.WHO

    assert face.gather([face.submit(asking) for _ in range(6)]) == ["ours"] * 6


def test_another_version_is_said_once(beside, tmp_path_factory, monkeypatch):
    theirs = tmp_path_factory.mktemp("theirs")
    write(theirs, {"said_helper.py": "WHO = 'theirs'\n"})
    monkeypatch.setattr(module_sources, "_active", {})
    monkeypatch.setattr(module_sources, "_folders", {})
    monkeypatch.setattr(sys, "path", [str(theirs), *sys.path])
    assert importlib.import_module("said_helper").WHO == "theirs"
    said = []
    monkeypatch.setattr(module_sources.log, "warning", lambda text, *values: said.append(text % values))
    for text in ("first", "second"):
        activate(module_sources.Bundle((("said_helper.py", f"WHO = {text!r}\n".encode()),)).data)
        assert text == importlib.import_module("said_helper").WHO
    assert len(said) == 1
    assert said[0].startswith(f"Module said_helper comes from the notebook, not from {theirs}")
    del sys.modules["said_helper"]


def test_only_local_modules_go_along_and_only_those_that_are_imported(beside):
    write(beside, {"one_helper.py": "import json, other_helper\n", "other_helper.py": "", "unused_helper.py": ""})
    bundle = bundle_of({"one_helper", "numpy", "os.path", "computemesh.errors"})
    assert [path for path, _ in bundle.files] == ["one_helper.py", "other_helper.py"]
    assert bundle_of({"numpy", "nowhere"}) is None
    write(beside, {"one_helper.py": "import unused_helper\n"})
    assert [path for path, _ in bundle_of({"one_helper"}).files] == ["one_helper.py", "unused_helper.py"]


def test_a_package_with_too_much_in_it_is_refused_by_name(beside, monkeypatch):
    monkeypatch.setattr(module_sources, "PACKAGE_LIMIT", 1000)
    write(beside, {"fat_package/__init__.py": "", "fat_package/data.txt": "x" * 2000})
    with pytest.raises(CannotShip, match=r"`fat_package`.*mesh.upload"):
        bundle_of({"fat_package"})


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import a, b.c", {"a", "b.c"}),
        ("from a.b import c", {"a.b"}),
        ("from . import a\nfrom .b import c\nfrom ..d import e", set()),
        ("def f():\n    import a\n    class C:\n        from b import c", {"a", "b"}),
        ("x = lambda: __import__('a')", set()),
        ("import a as b", {"a"}),
        ("from a import *", {"a"}),
    ],
)
def test_imports_are_found_in_code(source, found):
    assert imported_by(compile(source, "x", "exec")) == found
