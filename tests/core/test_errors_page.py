"""The drawn tree of errors is the tree of the classes, in the module and on the page."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from computemesh import errors

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if each.__module__ == errors.__name__]


def drawn(text: str) -> dict[str, str]:
    """Return each class of a drawing with the one that it hangs from."""
    parents, found = {}, {}
    for line in text.splitlines():
        match = re.match(r"^(?:    )?([│├└─ ]*)([A-Z]\w+)", line)
        if match and (match[2] == "ComputeMeshError" or match[1]):
            depth = len(match[1]) // 4
            parents[depth] = match[2]
            found[match[2]] = parents.get(depth - 1, "")
    return found


@pytest.mark.parametrize("text", [PAGE.read_text("utf-8").split("```")[1], errors.__doc__], ids=["page", "module"])
def test_the_drawing_is_the_tree(text):
    tree = {each.__name__: "" if each is errors.ComputeMeshError else each.__bases__[0].__name__ for each in CLASSES}
    assert drawn(text) == tree


def test_the_page_says_of_each_what_to_do():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*)\|", PAGE.read_text("utf-8"), flags=re.MULTILINE))
    leaves = {each.__name__: each for each in CLASSES if not each.__subclasses__()}
    assert set(rows) == set(leaves)
    for name, also in rows.items():
        built_in = [base.__name__ for base in leaves[name].__bases__ if base.__module__ == "builtins"]
        assert re.findall(r"`(\w+)`", also) == built_in


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_survives_the_way_from_a_node(kind):
    error = kind("what", [ValueError("x")]) if kind is errors.MeshError else kind("what")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == "what"
    assert inspect.getdoc(kind)
