"""Packs what a cell reads from the notebook, and refuses by name what cannot or should not travel."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

from computemesh.errors import CannotShip
from computemesh.gates import in_words

from .blobs import LARGE
from .cell_names import globals_of
from .local_modules import by_value
from .shipping import Packed, Packer, Part, imported_by, pack

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


def pack_names(reads: Iterable[str], home: dict[str, Any], limit: int, code: CodeType | None = None) -> Packed:
    """Pack the names that the cell reads, and what they use in turn.

    Args:
        reads: the names.
        home: the notebook's globals.
        limit: bytes in all that may go.
        code: the cell's own code; the local modules that it imports go along.

    Raises:
        CannotShip: a variable cannot travel or is too big, named.
    """
    names = names_to_ship(reads, home)
    parts = _packed_in_order(sorted(names), home, limit)
    first_small = next((number for number, part in enumerate(parts[0]) if len(part.stream) < LARGE), len(parts[0]))  # type: ignore[arg-type]
    if any(len(part.stream) >= LARGE for part in parts[0][first_small:]):  # type: ignore[arg-type]
        # A pickle refers back by number. With the large ones first, what is small may change and they stay the same,
        # so that they need not be sent anew.
        by_size = sorted(parts[0], key=lambda part: (len(part.stream) < LARGE, part.name))  # type: ignore[arg-type]
        parts = _packed_in_order([part.name for part in by_size], home, limit)
    packed = replace(parts[1].packed(named=True), variables=True)
    return packed if code is None else replace(packed, imports=packed.imports | imported_by(code))


def _packed_in_order(names: Iterable[str], home: dict[str, Any], limit: int) -> tuple[list[Part], Packer]:
    packer = Packer(home, local_modules=True)
    parts: list[Part] = []
    waiting = list(names)
    _refuse_big(waiting, home, limit)
    while waiting:
        for name in waiting:
            try:
                parts.append(packer.add(name, home[name]))
            except Exception as error:  # pickling runs the user's own code
                raise _cannot_send(name, home[name], error) from None
            _refuse_sum(parts, limit)
        # Methods and closures show what they use only when they are pickled.
        known = {part.name for part in parts}
        waiting = sorted(names_to_ship(packer.needs, home) - known)
        _refuse_big(waiting, home, limit)
    return parts, packer


def pack_items(items: Iterable[Any], home: dict[str, Any]) -> list[Packed]:
    """Pack the items of a loop, each by itself.

    Raises:
        CannotShip: one cannot travel; says which it is.
    """
    with by_value():
        return [_packed_item(item, home, number) for number, item in enumerate(items)]


def _packed_item(item: Any, home: dict[str, Any], number: int) -> Packed:
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


def _refuse_sum(parts: Iterable[Part], limit: int) -> None:
    sizes = {part.name: part.size for part in parts}
    total = sum(sizes.values())
    if total > limit:
        name = max(sizes, key=lambda each: sizes[each])
        raise _too_big(name, sizes[name], total, limit)


def _too_big(name: str, size: int, total: int, limit: int) -> CannotShip:
    whole = f" of {in_words(total)} in all" if total != size else ""
    return CannotShip(
        f"`{name}` is {in_words(size)}{whole}, more than the {in_words(limit)} that a cell may send: make or load it "
        f"inside the mesh cell, send a smaller part, or allow it with `--ship-limit {in_words(total * 1.1)}`"
    )


def _cannot_send(name: str, value: Any, error: Exception) -> CannotShip:
    return CannotShip(
        f"Cannot send `{name}`, {_kind(value)}, to the mesh: {error}. Make it inside the mesh cell, or leave it out"
    )


def _kind(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
