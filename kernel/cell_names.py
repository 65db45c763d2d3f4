"""Finds which of the notebook's names a cell reads, binds and deletes.

It looks at the bytecode, where every way to bind or read a name has already been reduced to a few instructions. What
only happens at run time (``globals()["x"] = 1``, ``exec``) cannot be seen here, and a value that is changed in place
is not bound: such changes stay on the node.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

_LOADS = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})
_DELETES = frozenset({"DELETE_NAME", "DELETE_GLOBAL"})
_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL"})
_PYTHONS_OWN = frozenset({"__annotations__", "__conditional_annotations__", "__doc__"})
"""Names that Python itself sets for annotations and for a text in the first line."""
_OPTIMIZED = 0x1
"""The flag of a function's code; a class body lacks it."""


@dataclass(frozen=True, slots=True)
class CellNames:
    """The names of one cell, in the sense of the notebook's globals."""

    reads: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()
    star: bool = False
    """The cell has a ``from … import *`` and so binds names that only running it shows."""


def cell_names(source: str, target: str = "") -> CellNames:
    """Return the globals that `source` may need from the notebook and those that it may bind or delete.

    `target` is the target of ``%%mesh for TARGET in …``: bound before the cell starts.

    Raises:
        SyntaxError: `source` is no Python.
    """
    code = compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    reads: set[str] = set()
    binds: set[str] = set()
    deletes: set[str] = set()
    bound = set(target_names(target)) if target else set()
    straight = True
    star = False
    block: set[str] = set()
    guarded = _first_guarded(code)
    for step in dis.get_instructions(code):
        if step.offset >= guarded:
            # Inside `try` and `with` an exception may pass over a binding.
            straight = False
        if step.is_jump_target or step.opname == "PUSH_EXC_INFO":
            # Control may come here from elsewhere: what was bound just before need not be.
            block.clear()
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            # From here on a binding may not happen, so it no longer spares a later read.
            straight = False
        if step.opname in _STORES:
            binds.add(step.argval)
            (bound if straight else block).add(step.argval)
        elif step.opname in _LOADS and step.argval not in bound | block:
            reads.add(step.argval)
        elif step.opname in _DELETES:
            deletes.add(step.argval)
            if step.argval not in bound | block:
                reads.add(step.argval)
            bound.discard(step.argval)
            block.discard(step.argval)
        elif isinstance(step.argval, CodeType):
            inner = _inner_names(step.argval)
            reads |= inner.reads - bound - block
            binds |= inner.binds
            deletes |= inner.deletes
        star = star or _imports_all(step)
    return CellNames(frozenset(reads - _PYTHONS_OWN), frozenset(binds - _PYTHONS_OWN), frozenset(deletes), star)


def _first_guarded(code: CodeType) -> float:
    """Return where the first instruction stands whose exceptions are caught; infinity without one."""
    # Every coroutine as a whole turns StopIteration into an error; that catches nothing.
    whole = {
        step.offset
        for step in dis.get_instructions(code)
        if step.opname == "CALL_INTRINSIC_1" and "STOPITERATION" in str(step.argrepr)
    }
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return min((entry.start for entry in entries if entry.target not in whole), default=float("inf"))


def target_names(target: str) -> tuple[str, ...]:
    """Return the names that the target of a ``for`` binds, such as ``a`` and ``b`` of ``a, b``."""
    tree = ast.parse(f"for {target} in (): pass")
    return tuple(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def globals_of(code: CodeType) -> frozenset[str]:
    """Return the globals that a function with this code may read or change, its inner functions' included."""
    names = _inner_names(code)
    return names.reads | names.binds | names.deletes


def _inner_names(outer: CodeType) -> CellNames:
    """Return the globals of a function or class body and all that is defined in it."""
    reads: set[str] = set()
    binds: set[str] = set()
    deletes: set[str] = set()
    for code in _walk(outer):
        # A class body binds its own names with STORE_NAME; only what it says `global` about is the notebook's.
        own: set[str] = set()
        class_body = not code.co_flags & _OPTIMIZED
        for step in dis.get_instructions(code):
            if step.opname in _LOADS and step.argval not in own:
                reads.add(step.argval)
            elif step.opname == "STORE_GLOBAL":
                binds.add(step.argval)
            elif step.opname == "DELETE_GLOBAL":
                deletes.add(step.argval)
                reads.add(step.argval)
            elif step.opname == "STORE_NAME" and class_body:
                own.add(step.argval)
    return CellNames(
        frozenset(reads - {"__name__", "__module__", "__qualname__"}), frozenset(binds), frozenset(deletes)
    )


def _walk(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _walk(constant)


def _imports_all(step: dis.Instruction) -> bool:
    if step.opname == "IMPORT_STAR":
        return True
    return step.opname == "CALL_INTRINSIC_1" and "IMPORT_STAR" in str(step.argrepr)
