"""``--where "ram > 32 and site == 'berlin'"``: a condition over a node's facts, read safely and decided at once.

Only comparisons, ``and``, ``or``, ``not``, ``in``, numbers, texts and the facts' names mean something; everything else
is refused with its name. A fact that nobody knows makes a comparison unknown, and unknown is no match.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_ALLOWED = (ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Load)


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


def check_where(text: str) -> ast.Expression:
    """Read a condition.

    Raises:
        BadCell: it is no condition, or asks for something that is no fact, named.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise BadCell(f"%%mesh --where {text!r} is no condition ({error}): {_example()}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id not in FACTS:
                raise BadCell(f"%%mesh --where: there is no fact {node.id!r}; there are {', '.join(FACTS)}")
        elif isinstance(node, ast.Constant):
            if not isinstance(node.value, int | float | str | bool):
                raise BadCell(f"%%mesh --where: {node.value!r} has no meaning here; {_example()}")
        elif not isinstance(node, (*_ALLOWED, *_COMPARE, ast.Tuple, ast.List)):
            raise BadCell(f"%%mesh --where: `{_shown(node)}` is not allowed in a condition; {_example()}")
    return tree


def matching(text: str, rows: Iterable[NodeRow]) -> list[str]:
    """Return the workers of the nodes that meet the condition.

    Raises:
        BadCell: it is no condition.
        BadRequirement: no node meets it; says what the nodes have.
    """
    tree, found, seen = check_where(text), [], []
    asked = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    for row in rows:
        facts = facts_of(row)
        if _value(tree.body, facts, text) and row.worker:
            found.append(row.worker)
        seen.append(f"{row.name} ({', '.join(f'{name} {_fact(facts[name])}' for name in asked)})")
    if not found:
        have = "; ".join(seen[:10]) + (f" and {len(seen) - 10} more" if len(seen) > 10 else "") or "there is no node"
        raise BadRequirement(f'No node meets --where "{text}": {have}')
    return found


def _value(node: ast.expr, facts: Mapping[str, Any], text: str) -> Any:
    """Return what `node` says of a node; None is unknown, and stays unknown through ``not``, ``and`` and ``or``."""
    match node:
        case ast.Name(id=name):
            return facts[name]
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part, facts, text) for part in parts)
        case ast.UnaryOp(op=op, operand=inner):
            value = _value(inner, facts, text)
            if isinstance(op, ast.USub):
                return -value
            return None if value is None else not value
        case ast.BoolOp(op=op, values=parts):
            values = [_value(part, facts, text) for part in parts]
            deciding = isinstance(op, ast.Or)
            if any(value is not None and bool(value) is deciding for value in values):
                return deciding
            return None if None in values else not deciding
        case ast.Compare(left=left, ops=ops, comparators=rights):
            return _compared(_value(left, facts, text), ops, [_value(part, facts, text) for part in rights], text)
    raise BadCell(f"%%mesh --where {text!r}: {_example()}")


def _compared(left: Any, ops: list[ast.cmpop], rights: list[Any], text: str) -> bool | None:
    for op, right in zip(ops, rights, strict=True):
        if left is None or right is None:
            return None
        try:
            if not _COMPARE[type(op)](left, right):
                return False
        except TypeError:
            raise BadCell(
                f"%%mesh --where {text!r}: {left!r} cannot be compared with {right!r}; ram and vram are numbers of GB"
            ) from None
        left = right
    return True


def _fact(value: Any) -> str:
    if value is None:
        return "unknown"
    return f"{value:.3g}" if isinstance(value, float) else str(value) or "-"


def _shown(node: ast.AST) -> str:
    try:
        return ast.unparse(node) or type(node).__name__
    except Exception:  # operators alone cannot be written
        return type(node).__name__


def _example() -> str:
    return "write it as --where \"ram > 32 and site == 'berlin'\""
