"""Turns the runs of a cell into Dask tasks: the ones that run it, and for ``--keep`` the ones that tell of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import dask

from computemesh.protocol import SERIES
from computemesh.requirement import Requirement

from .blobs import SHARED_BYTES, once_a_node
from .cell_run import Cell, run_cell, run_stretch
from .cell_source import VALUE
from .futures import mesh_future
from .kept_values import outcome_of, run_and_keep, value_of
from .shipping import Packed

MANY_RUNS = 32
"""Fewer runs than that are each a task of their own."""
LEFT_PER_SLOT = 2
"""Stretches of its size that each slot could still take when one is cut: so the last are short, and all slots end
together (guided self-scheduling, Polychronopoulos and Kuck 1987)."""
LONGEST_STRETCH = 40


@dataclass(frozen=True, slots=True)
class Options:
    """How a cell is to run."""

    requirement: Requirement = field(default_factory=Requirement)
    retries: int = 0
    timeout: float | None = None
    progress_after: float = 2.0
    """Seconds; negative for never."""
    priority: int = 0
    workers: tuple[str, ...] = ()
    """The workers that may run it, by ``--where``; empty for all."""
    cap_lines: int = -1
    """Lines shown of each run when there are several; negative for all."""
    cap_characters: int = 64_000
    handle: str = "_mesh"
    """How the user reaches the job, for what is not shown."""


@dataclass(frozen=True, slots=True)
class Item:
    """One run of a cell."""

    packed: Packed | None = None
    """The loop's item; None for a single run."""
    worker: str = ""
    """The worker that it must run on, for ``--each``."""


class Tasks:
    """The runs of one cell as Dask tasks; a task may run a stretch of several short ones."""

    def __init__(self, client: Any, cell: Cell, shared: Packed, items: Sequence[Item], options: Options) -> None:
        self._client, self._cell, self._shared = client, cell, shared
        self._items, self._options = items, options
        self._prefix = f"cell_{_short_hash(cell.source.text)}-{cell.run}"
        self._data: Any = shared.data
        self._sent = 0
        self._series = uuid.uuid4().hex
        """Not to be guessed: whoever knows it could have a task run in the same process."""
        self.runs: list[Any] = [None] * len(items)
        """The future of each run's task."""
        self.outcomes: list[Any] = [None] * len(items)
        """The future of each run's `Outcome`; the same, unless its names are kept."""
        self.keys: list[str] = []
        """The key of each run's task; they stay when the futures have been let go."""
        self.indices: dict[Any, tuple[int, ...]] = {}
        """The runs of each outcome's future, by its key."""

    def send(self) -> list[Any]:
        """Send all runs; return the futures of their outcomes."""
        several = len(self._items) > 1
        with self._annotated():
            if several and len(self._data) > SHARED_BYTES:
                self._data = once_a_node(self._client, self._data, self._prefix.replace("-", "_names-", 1))
            if self._in_stretches():
                sizes = stretch_sizes(len(self._items), max(1, sum(self._client.nthreads().values())))
                if sizes[0] > 1:
                    self.keys = [""] * len(self._items)
                    return self._stretches(range(len(self._items)), sizes)
            arguments = (self._client, self._prefix, self._cell, self._shared, self._data, self._items)
            if several and not any(item.worker for item in self._items):
                runs = _mapped(*arguments, self._options)
            else:
                runs = [_one(*arguments, index, self._options) for index in range(len(self._items))]
        self.runs = self.outcomes = runs
        self.keys = [future.key for future in runs]
        if self._cell.keep:
            with dask.annotate(mesh={}):
                keys = [f"{self._prefix.replace('-', '_outcome-', 1)}-{index}" for index in range(len(runs))]
                self.outcomes = self._client.map(outcome_of, runs, key=keys, pure=False)
        self.indices = {future.key: (index,) for index, future in enumerate(self.outcomes)}
        return self.outcomes

    def send_again(self, indices: Sequence[int], size: int) -> list[Any]:
        """Send some runs anew, in stretches of `size`; return the futures of their outcomes."""
        with self._annotated():
            whole, rest = divmod(len(indices), size)
            return self._stretches(indices, [size] * whole + [rest] * bool(rest))

    def forget(self) -> None:
        """Let go of all futures, and of what was sent."""
        self.runs, self.outcomes = [], []
        self._data, self._items = b"", ()

    def _annotated(self) -> Any:
        series = {SERIES: self._series} if len(self._items) > 1 else {}
        return dask.annotate(mesh=_annotation(self._options), **series)

    def _in_stretches(self) -> bool:
        """Return whether a task may run several items."""
        alone = self._options.retries or self._options.timeout is not None or self._cell.keep
        if alone or any(item.packed is None or item.packed.futures for item in self._items):
            return False
        return len(self._items) >= MANY_RUNS

    def _stretches(self, indices: Sequence[int], sizes: Sequence[int]) -> list[Any]:
        ends = list(accumulate(sizes))
        parts = [tuple(indices[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
        self._sent += 1
        futures: list[Any] = self._client.map(
            run_stretch,
            [self._cell] * len(parts),
            [self._data] * len(parts),
            [[self._packed(index) for index in part] for part in parts],
            parts,
            [list(self._shared.futures)] * len(parts),
            key=[f"{self._prefix}-{part[0]}.{self._sent}" for part in parts],
            workers=list(self._options.workers) or None,
            priority=self._options.priority,
            pure=False,
        )
        for part, future in zip(parts, futures, strict=True):
            self.indices[future.key] = part
            for index in part:
                self.runs[index] = self.outcomes[index] = future
                self.keys[index] = future.key
        return futures

    def _packed(self, index: int) -> bytes:
        packed = self._items[index].packed
        return packed.data if packed is not None else b""


def stretch_sizes(items: int, slots: int) -> list[int]:
    """Return into stretches of how many items a loop is cut: long ones first."""
    sizes: list[int] = []
    while items:
        size = max(1, min(LONGEST_STRETCH, items // (slots * LEFT_PER_SLOT)))
        sizes.append(size)
        items -= size
    return sizes


def kept_future(client: Any, run: Any, name: str) -> Any:
    """Return a `MeshFuture` of a name that `run` has kept."""
    shown = "value" if name == VALUE else name
    with dask.annotate(mesh={}):
        return mesh_future(client.submit(value_of, run, name, key=f"{shown}-of-{run.key}", pure=False))


def _mapped(
    client: Any, prefix: str, cell: Cell, shared: Packed, data: Any, items: Sequence[Item], options: Options
) -> list[Any]:
    count = len(items)
    futures: list[Any] = client.map(
        run_and_keep if cell.keep else run_cell,
        [cell] * count,
        [data] * count,
        [item.packed.data if item.packed else None for item in items],
        range(count),
        # Futures in the packed values are numbered; Dask fills these arguments with their results.
        [list(shared.futures)] * count,
        [list(item.packed.futures) if item.packed else [] for item in items],
        key=[f"{prefix}-{index}" for index in range(count)],
        workers=list(options.workers) or None,
        retries=options.retries,
        priority=options.priority,
        pure=False,
    )
    return futures


def _one(
    client: Any,
    prefix: str,
    cell: Cell,
    shared: Packed,
    data: Any,
    items: Sequence[Item],
    index: int,
    options: Options,
) -> Any:
    item = items[index]
    return client.submit(
        run_and_keep if cell.keep else run_cell,
        cell,
        data,
        item.packed.data if item.packed else None,
        index,
        list(shared.futures),
        list(item.packed.futures) if item.packed else [],
        key=f"{prefix}-{index}",
        workers=[item.worker] if item.worker else list(options.workers) or None,
        retries=options.retries,
        priority=options.priority,
        pure=False,
    )


def _annotation(options: Options) -> dict[str, Any]:
    asked: dict[str, Any] = {**options.requirement.to_spec(), "executor": "capsule"}
    if options.timeout is not None:
        # The cell interrupts itself in time and keeps what it has; this limit is for one that does not.
        asked["timeout"] = options.timeout + 1.0
    return asked


def _short_hash(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:6]
