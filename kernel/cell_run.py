"""Runs one cell on a node. This module is what the nodes import: nothing of IPython, nothing heavy.

The cell runs in a capsule's main thread, or in a thread of a plain Dask worker; either way in a namespace of its own,
with what it prints and displays sent live to the notebook.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from computemesh.output import current
from computemesh.surroundings import Surroundings

from .cell_names import CellNames
from .cell_source import VALUE, CellSource, compiled
from .interrupts import Interruptible, in_own_process
from .mime_bundles import WIDGET_NOTE, is_widget, mime_bundle
from .node_display import builtins_for_cell
from .node_name import node_name
from .node_output import Sink, capturing, one_capture
from .run_files import FILES, in_working_directory
from .shipping import Packed, module_names, pack, unpack
from .traceback_text import Failure, failure_from, first_line

STRETCH_SECONDS = 0.6


@dataclass(frozen=True, slots=True)
class Cell:
    """What all runs of one cell have in common."""

    source: CellSource
    names: CellNames
    run: str
    """Tells this run of the cell from all others."""
    topic: str
    """Where output goes."""
    target: str = ""
    """What ``for TARGET in …`` binds; empty for a single run."""
    timeout: float | None = None
    """Seconds after which a run is interrupted."""
    keep: bool = False
    """Leave what it binds on the node; see `kept_values`."""
    modules: tuple[tuple[str, str], ...] = ()
    """Names of installed modules that it reads, with the modules' full names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a cell came to."""

    index: int
    node: str
    names: bytes = b""
    """The names it bound, packed."""
    modules: dict[str, str] = field(default_factory=dict)
    """The names that it bound to modules, by the modules' full names."""
    deleted: tuple[str, ...] = ()
    value: bytes | None = None
    """The value of the last expression, packed; None without one."""
    value_shown: dict[str, Any] | None = None
    """How the value shows where it cannot travel."""
    left: dict[str, str] = field(default_factory=dict)
    """Names that stayed on the node, and why."""
    kept: dict[str, Packed | None] = field(default_factory=dict)
    """What is kept on the node, by ``--keep``, under its name; the value of the last expression as `VALUE`.

    The notebook learns the names alone.
    """
    late: tuple[dict[str, Any], ...] = ()
    """Displays too large to be sent live."""
    messages: int = 0
    """How many messages were sent live; they may arrive after this."""
    failure: Failure | None = None
    interrupted: bool = False
    timed_out: bool = False


class CellFailed(Exception):
    """A run of a cell raised; carries the outcome through Dask, so that Dask counts it as failed and can retry."""

    @property
    def outcome(self) -> Outcome:
        """What the run came to."""
        found: Outcome = self.args[0]
        return found

    def __str__(self) -> str:
        failure = self.outcome.failure
        return f"{failure.kind}: {failure.message}" if failure else "a cell failed"

    def __repr__(self) -> str:
        # Dask writes this into the worker's log, where the cell's values have no business.
        return f"CellFailed({str(self)!r})"


def run_cell(
    cell: Cell,
    shared: bytes,
    item: bytes | None,
    index: int,
    shared_values: Sequence[Any] = (),
    item_values: Sequence[Any] = (),
    quietly: bool = False,
) -> Outcome:
    """Run `cell` in this process and return what it came to.

    Args:
        cell: what to run.
        shared: the packed names that the cell reads.
        item: the packed item of the loop, if it is one.
        index: which run of the cell this is.
        shared_values: what the Dask futures in `shared` came to.
        item_values: what those in `item` came to.
        quietly: say that it has begun only when it has something to say.

    Raises:
        CellFailed: the cell raised.
    """
    node = node_name()
    sink = Sink(current(), cell.topic, cell.run, index, node)
    if not quietly:
        sink.start()
    running = Interruptible(cell.run)
    outcome = Outcome(index, node)
    failure: BaseException | None = None
    namespace = _namespace()
    before: frozenset[str] = frozenset()
    try:
        try:
            with capturing(sink), running.interruptible(cell.timeout), _own_main(namespace):
                cell.source.remember()
                _import_modules(cell.modules, namespace)
                namespace.update(unpack(shared, namespace, shared_values))
                if item is not None:
                    _bind_target(cell.target, unpack(item, namespace, item_values), namespace)
                files = namespace.pop(FILES, None)
                before = frozenset(namespace)
                try:
                    with in_working_directory(files):
                        _execute(compiled(cell.source), namespace)
                finally:
                    sink.figures()
        except BaseException as error:  # sys.exit() and an interrupt end a cell, not the process
            failure = error
        finally:
            running.finish()
        outcome = _collected(outcome, cell, namespace, before, keep=cell.keep and failure is None)
    except KeyboardInterrupt as late:
        # The interrupt came while results were being packed: they are lost.
        running.finish()
        failure = failure or late
    sink.close()
    outcome = replace(
        outcome,
        late=tuple(sink.late),
        messages=sink.sent,
        timed_out=running.timed_out,
        interrupted=isinstance(failure, KeyboardInterrupt),
    )
    if failure is None:
        return outcome
    outcome = replace(outcome, failure=failure_from(failure, cell.source, node, namespace))
    if outcome.interrupted:
        # Not raised: Dask would retry what the user has just stopped.
        return outcome
    raise CellFailed(outcome)


def run_stretch(
    cell: Cell, shared: bytes, items: Sequence[bytes], indices: Sequence[int], shared_values: Sequence[Any] = ()
) -> list[Outcome]:
    """Run several items one after another and return what they came to.

    Short runs cost their own time so, and not that of a task each. When `STRETCH_SECONDS` are over it returns what it
    has, and the notebook sends the rest anew: long runs are spread as though each had been sent alone. So it does when
    a run has left a thread or a child process behind, which the next must not meet.
    """
    began = time.monotonic()
    found: list[Outcome] = []
    with one_capture():
        around = Surroundings() if in_own_process() else None
        for index, item in zip(indices, items, strict=True):
            try:
                outcome = run_cell(cell, shared, item, index, shared_values, quietly=bool(found))
            except CellFailed as failed:
                outcome = failed.outcome
            except KeyboardInterrupt:
                break
            found.append(outcome)
            if around is not None:
                around.restore()
            left_behind = around is not None and not around.clean()
            if outcome.interrupted or left_behind or time.monotonic() - began > STRETCH_SECONDS:
                break
    return found


def _namespace() -> dict[str, Any]:
    namespace = vars(types.ModuleType("__main__"))
    namespace["__builtins__"] = builtins_for_cell()
    return namespace


def _import_modules(modules: Sequence[tuple[str, str]], namespace: dict[str, Any]) -> None:
    """Import before the names are unpacked: their classes may use the modules while their objects are made."""
    for name, module in modules:
        # What is missing here fails with its own words when it is unpacked.
        with suppress(Exception):
            namespace[name] = import_module(module)


def _bind_target(target: str, item: Any, namespace: dict[str, Any]) -> None:
    namespace["__mesh_item__"] = item
    exec(_binding(target), namespace)  # noqa: S102 - the user's own loop target
    del namespace["__mesh_item__"]


@lru_cache(maxsize=8)
def _binding(target: str) -> types.CodeType:
    return compile(f"{target} = __mesh_item__", "<item>", "exec")


def _execute(code: types.CodeType, namespace: dict[str, Any]) -> None:
    result = eval(code, namespace)  # noqa: S307 - running the user's code is what a node is for
    if inspect.iscoroutine(result):
        asyncio.run(result)


def _collected(
    outcome: Outcome, cell: Cell, namespace: dict[str, Any], before: frozenset[str], *, keep: bool
) -> Outcome:
    """Pack what the cell bound and the value of its last expression, or `keep` each by itself."""
    names = cell.names.binds
    if cell.names.star:
        names = names | {name for name in namespace if name not in before and not name.startswith("_")}
    found = {name: namespace[name] for name in sorted(names) if name in namespace}
    modules = module_names(found)
    deleted = tuple(sorted(name for name in cell.names.deletes if name not in namespace))
    if keep:
        if VALUE in namespace:
            found[VALUE] = namespace[VALUE]
        kept, left = _kept({name: found[name] for name in found if name not in modules}, namespace)
        return replace(outcome, kept=kept, modules=modules, left=left, deleted=deleted)
    data, left = _packed_names({name: found[name] for name in found if name not in modules}, namespace)
    value, value_shown = None, None
    if VALUE in namespace:
        try:
            value = _travelling(namespace[VALUE], namespace)
        except Exception as error:  # pickling runs the user's own code
            value_shown = mime_bundle(namespace[VALUE])
            left = {**left, "the last expression's value": first_line(error)}
    return replace(
        outcome, names=data, modules=modules, left=left, value=value, value_shown=value_shown, deleted=deleted
    )


def _packed_names(found: dict[str, Any], home: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Pack names together, so that what they share stays shared; leave out those that cannot travel."""
    left: dict[str, str] = {}
    for name in [name for name, value in found.items() if is_widget(value)]:
        left[name] = WIDGET_NOTE
        del found[name]
    if not found:
        return b"", left
    try:
        return pack(found, home).data, left
    except Exception:  # pickling runs the user's own code
        for name, value in list(found.items()):
            try:
                _travelling(value, home)
            except Exception as error:
                left[name] = first_line(error)
                del found[name]
    return pack(found, home).data, left


def _kept(found: dict[str, Any], home: dict[str, Any]) -> tuple[dict[str, Packed | None], dict[str, str]]:
    """Pack each name by itself, since each may be wanted elsewhere."""
    kept: dict[str, Packed | None] = {}
    left: dict[str, str] = {}
    for name, value in found.items():
        try:
            if is_widget(value):
                raise TypeError(WIDGET_NOTE)  # noqa: TRY301 - told as what cannot be pickled is
            kept[name] = pack(value, home)
        except Exception as error:  # pickling runs the user's own code
            left["the last expression's value" if name == VALUE else name] = first_line(error)
    return kept, left


def _travelling(value: Any, home: dict[str, Any]) -> bytes:
    if is_widget(value):
        raise TypeError(WIDGET_NOTE)
    return pack(value, home).data


@contextmanager
def _own_main(namespace: dict[str, Any]) -> Iterator[None]:
    """In a process of its own, let ``__main__`` be the cell, so that pickle finds the classes it defines."""
    if not in_own_process():
        yield
        return
    stock = sys.modules["__main__"]
    main = types.ModuleType("__main__")
    # A module's dictionary cannot be replaced; one that looks names up in the cell's serves as well.
    main.__class__ = _CellMain
    main.__dict__["_cell"] = namespace
    sys.modules["__main__"] = main
    try:
        yield
    finally:
        sys.modules["__main__"] = stock


class _CellMain(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_cell"][name]
        except KeyError:
            raise AttributeError(name) from None
