"""Turns the runs of a cell into Dask tasks: the ones that run it, and for ``--keep`` the ones that tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dask

from computemesh.requirement import Requirement

from .cell_run import Cell, run_cell, shared_data
from .cell_source import VALUE
from .futures import mesh_future
from .kept_values import outcome_of, run_and_keep, value_of
from .shipping import Packed

SERIES = "mesh-series"
"""Annotation by which a node runs a cell's runs one after another in the same process."""
INLINE_BYTES = 50_000
"""Shared values above this become a task of their own, so that each node gets them once."""


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


@dataclass(frozen=True, slots=True)
class Tasks:
    """The futures of a cell's runs."""

    runs: list[Any]
    outcomes: list[Any]
    """Each run's `Outcome`; the same futures, unless its names are kept."""


def submit_runs(client: Any, cell: Cell, shared: Packed, items: Sequence[Item], options: Options) -> Tasks:
    """Send all runs of a cell."""
    prefix = f"cell_{_short_hash(cell.source.text)}-{cell.run}"
    data: Any = shared.data
    series = {SERIES: cell.run} if len(items) > 1 else {}
    with dask.annotate(mesh=_annotation(options), **series):
        if len(items) > 1 and len(data) > INLINE_BYTES:
            with dask.annotate(mesh={}):
                data = client.submit(shared_data, data, key=f"{prefix.replace('-', '_names-', 1)}", pure=False)
        if len(items) > 1 and not any(item.worker for item in items):
            runs = _mapped(client, prefix, cell, shared, data, items, options)
        else:
            runs = [_one(client, prefix, cell, shared, data, items, index, options) for index in range(len(items))]
    if not cell.keep:
        return Tasks(runs, runs)
    with dask.annotate(mesh={}):
        keys = [f"{prefix.replace('-', '_outcome-', 1)}-{index}" for index in range(len(runs))]
        return Tasks(runs, client.map(outcome_of, runs, key=keys, pure=False))


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
