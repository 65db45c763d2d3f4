"""Packs what a cell reads from the notebook, and refuses by name what cannot or should not travel."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

from computemesh.errors import CannotShip
from computemesh.gates import in_words

from .cell_names import globals_of
from .shipping import Packed, pack

NOTEBOOK_ONLY = frozenset({"In", "Out", "exit", "quit", "get_ipython", "display", "_ih", "_oh", "_dh"})
"""Names that every notebook has and that mean nothing on a node."""


def names_to_ship(reads: Iterable[str], home: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that the cell needs from `home`, with those that its functions there use in turn."""
    found: set[str] = set()
    waiting = set(reads)
    while waiting:
        name = waiting.pop()
        if name in found or name not in home or not _belongs_to_user(name, home[name]):
            continue
        found.add(name)
        value = home[name]
        if isinstance(value, FunctionType) and value.__globals__ is home:
            waiting |= globals_of(value.__code__)
    return frozenset(found)


def pack_names(reads: Iterable[str], home: dict[str, Any], limit: int) -> Packed:
    """Pack the names that the cell reads, and what they use in turn.

    Raises:
        CannotShip: a variable cannot travel or is too big, named.
    """
    names = names_to_ship(reads, home)
    _refuse_big(names, home, limit)
    while True:
        try:
            packed = pack({name: home[name] for name in sorted(names)}, home, local_modules=True)
        except Exception as error:  # pickling runs the user's own code
            raise _culprit(names, home, error) from None
        # Methods and closures show what they use only when they are pickled.
        further = names_to_ship(packed.needs, home) - names
        if not further:
            break
        names |= further
        _refuse_big(further, home, limit)
    if len(packed.data) > limit:
        sizes = {name: len(pack(home[name], home, local_modules=True).data) for name in names}
        name = max(sizes, key=lambda each: sizes[each])
        raise _too_big(name, sizes[name], len(packed.data), limit)
    return packed


def pack_item(item: Any, home: dict[str, Any], number: int) -> Packed:
    """Pack one item of the loop.

    Raises:
        CannotShip: it cannot travel; says which it is.
    """
    try:
        return pack(item, home, local_modules=True)
    except Exception as error:  # pickling runs the user's own code
        raise CannotShip(f"Cannot send item {number} of the loop, {_kind(item)}, to the mesh: {error}") from None


def _belongs_to_user(name: str, value: Any) -> bool:
    if name in NOTEBOOK_ONLY or (name.startswith("__") and name.endswith("__")):
        return False
    # IPython puts its own `open` into the notebook.
    return not (hasattr(builtins, name) and str(getattr(value, "__module__", "")).startswith("IPython."))


def _refuse_big(names: Iterable[str], home: Mapping[str, Any], limit: int) -> None:
    """Refuse before pickling what says of itself that it is too big: pickling it would take memory and time."""
    for name in names:
        size = getattr(home[name], "nbytes", None)
        if isinstance(size, int) and size > limit and not hasattr(home[name], "__dask_graph__"):
            raise _too_big(name, size, size, limit)


def _too_big(name: str, size: int, total: int, limit: int) -> CannotShip:
    whole = f" of {in_words(total)} in all" if total != size else ""
    return CannotShip(
        f"`{name}` is {in_words(size)}{whole}, more than the {in_words(limit)} that a cell may send: make or load it "
        f"inside the mesh cell, send a smaller part, or allow it with `--ship-limit {in_words(total * 1.1)}`"
    )


def _culprit(names: Iterable[str], home: dict[str, Any], error: Exception) -> CannotShip:
    for name in sorted(names):
        try:
            pack(home[name], home, local_modules=True)
        except Exception as own:  # pickling runs the user's own code
            return CannotShip(
                f"Cannot send `{name}`, {_kind(home[name])}, to the mesh: {own}. Make it inside the mesh cell, or "
                "leave it out"
            )
    return CannotShip(f"Cannot send what this cell reads to the mesh: {error}")


def _kind(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
