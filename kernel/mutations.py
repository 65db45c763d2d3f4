"""Finds names that a cell changes in place, where that can be seen: such changes stay on the node.

Only what is certain is told: an item or attribute that is set, a method of Python's own containers whose only purpose
is to change them, ``inplace=True``. A name that the cell binds anywhere is its own affair and comes back.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

_METHODS: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert", "remove", "reverse", "sort", "clear", "pop"}),
    dict: frozenset({"update", "setdefault", "clear", "pop", "popitem"}),
    set: frozenset(
        {
            "add", "update", "remove", "discard", "clear", "pop",
            "difference_update", "intersection_update", "symmetric_difference_update",
        }
    ),
    bytearray: frozenset({"append", "extend", "insert", "clear", "pop", "remove", "reverse"}),
    deque: frozenset({"append", "appendleft", "extend", "extendleft", "pop", "popleft", "rotate", "clear"}),
}  # fmt: skip


def changed_in_place(text: str, home: Mapping[str, Any], elsewhere: frozenset[str]) -> tuple[str, ...]:
    """Return the names of `home` that the cell visibly changes in place.

    `elsewhere` are names that the cell binds, gets from its loop or brings back by ``--return``.
    """
    found = {}
    tree = ast.parse(text)
    # Also the variables of comprehensions, which bytecode does not count among the cell's names.
    own = elsewhere | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and _is_stored(node)}
    for name, method in _changes(tree):
        if name in own or name not in home or isinstance(home[name], ModuleType):
            continue
        if method and not any(isinstance(home[name], kind) and method in known for kind, known in _METHODS.items()):
            continue
        found[name] = True
    return tuple(found)


def warning_text(names: tuple[str, ...]) -> str:
    """Return the one warning for a cell."""
    shown = " and ".join(f"`{name}`" for name in names)
    verb, them = ("is", "it stays") if len(names) == 1 else ("are", "they stay")
    return (
        f"{shown} {verb} changed in place on the node, where a copy is: here {them} as before. "
        f"To bring the change back, add `--return {' '.join(names)}` or bind a name to it\n"
    )


def _changes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (name, method) of each change; method is empty where an item or attribute is set or deleted."""
    for node in _own(tree):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield _root(node), ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name):
                yield node.func.value.id, node.func.attr
            if any(word.arg == "inplace" and _is_true(word.value) for word in node.keywords):
                yield _root(node.func), ""


def _own(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run as part of the cell itself: a function's names are its own."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield child
        yield from _own(child)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
