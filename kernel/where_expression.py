"""``--where "ram > 32 and site == 'berlin'"``: which nodes may run a cell, by a condition over their facts."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from computemesh import conditions
from computemesh.errors import BadRequirement

from .cell_source import BadCell
from .node_list import NodeRow

FACTS: dict[str, str] = {
    "name": "the node's name",
    "site": "where it stands",
    "pools": "its pools, as in 'gpu' in pools",
    "os": "linux, windows or darwin",
    "cores": "cores lent",
    "ram": "memory in GB",
    "gpus": "number of GPUs",
    "vram": "memory of its largest GPU in GB",
    "load": "CPU in percent",
    "score": "NodeScore, 0 to 1",
    "available": "whether it takes tasks now",
}

_EXAMPLE = "write it as --where \"ram > 32 and site == 'berlin'\""


def facts_of(row: NodeRow) -> dict[str, Any]:
    """Return what `--where` may ask about a node, in the units that people write."""
    return {
        "name": row.name,
        "site": row.site,
        "pools": row.pools,
        "os": row.os.lower() or None,
        "cores": row.cores,
        "ram": row.ram / 1e9 if row.ram else None,
        "gpus": len(row.gpus),
        "vram": row.vram / 1e9 if row.gpus else 0.0,
        "load": row.load,
        "score": row.score,
        "available": row.available,
    }


def check_where(text: str) -> ast.expr:
    """Read a condition.

    Raises:
        BadCell: it is no condition, or asks for something that is no fact, named.
    """
    try:
        return conditions.read(text, FACTS)
    except conditions.BadCondition as error:
        raise BadCell(f"%%mesh --where: {error}; {_EXAMPLE}") from None


def matching(text: str, rows: Iterable[NodeRow]) -> list[str]:
    """Return the workers of the nodes that meet the condition.

    Raises:
        BadCell: it is no condition.
        BadRequirement: no node meets it; says what the nodes have.
    """
    condition, found, seen = check_where(text), [], []
    asked = conditions.names_in(condition)
    for row in rows:
        facts = facts_of(row)
        try:
            met = conditions.value(condition, facts)
        except conditions.BadCondition as error:
            raise BadCell(f"%%mesh --where {text!r}: {error}") from None
        if met and row.worker:
            found.append(row.worker)
        seen.append(f"{row.name} ({', '.join(f'{name} {_fact(facts[name])}' for name in asked)})")
    if not found:
        have = "; ".join(seen[:10]) + (f" and {len(seen) - 10} more" if len(seen) > 10 else "") or "there is no node"
        raise BadRequirement(f'No node meets --where "{text}": {have}')
    return found


def _fact(value: Any) -> str:
    if value is None:
        return "unknown"
    return f"{value:.3g}" if isinstance(value, float) else str(value) or "-"
