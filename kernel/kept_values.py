"""``--keep``: what a cell binds stays on the mesh, and the notebook holds futures of it.

A run's task then has the names as its result, each packed by itself. Small tasks hang from it: one tells the notebook
how the run went, and one for each name is that name's value wherever it is needed. As all of them are Dask's own,
what dies with a node is made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from .cell_run import Cell, Outcome, run_cell
from .shipping import unpack


@dataclass(frozen=True)
class KeptRun:
    """The result of a run whose names are kept."""

    outcome: Outcome
    names: dict[str, bytes]
    needs: dict[str, frozenset[str]]
    """For each name the globals that functions in its value use."""

    def __sizeof__(self) -> int:
        # Dask weighs a worker's memory by this.
        return 1000 + sum(map(len, self.names.values()))


def run_and_keep(
    cell: Cell,
    shared: Any,
    item: bytes | None,
    index: int,
    shared_values: Sequence[Any] = (),
    item_values: Sequence[Any] = (),
) -> KeptRun:
    """Run a cell as `run_cell` does, and keep what it bound.

    Raises:
        CellFailed: the cell raised; then nothing is kept.
    """
    outcome = run_cell(cell, shared, item, index, shared_values, item_values)
    packed = {name: each for name, each in outcome.kept.items() if each is not None}
    return KeptRun(
        replace(outcome, kept=dict.fromkeys(packed)),
        {name: each.data for name, each in packed.items()},
        {name: each.needs for name, each in packed.items()},
    )


def outcome_of(kept: KeptRun) -> Outcome:
    """Return how the run went, without what it bound."""
    return kept.outcome


def value_of(kept: KeptRun, name: str) -> Any:
    """Return the value of one name; functions find the names beside them that they use."""
    home: dict[str, Any] = {"__name__": "__main__"}
    for each, module in kept.outcome.modules.items():
        home[each] = import_module(module)
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each in kept.names and each not in home:
            home[each] = unpack(kept.names[each], home)
            waiting += kept.needs[each]
    return home[name]
