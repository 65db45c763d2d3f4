"""Conditions over a node's facts, such as ``ram > 32 and site == 'berlin'``, read safely and decided at once.

Only comparisons, ``and``, ``or``, ``not``, ``in``, numbers, sizes, texts and the facts' names mean something; the rest
is refused with its name. A fact that nobody knows makes a comparison unknown, and unknown is no match.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any


class BadCondition(ValueError):
    """It is no condition, or asks for something that is no fact; says which."""


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
_QUOTED = re.compile(r"""("[^"]*"|'[^']*')""")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(kB|MB|GB|TB|KiB|MiB|GiB|TiB)\b")


def read(text: str, facts: Collection[str], functions: Collection[str] = ()) -> ast.expr:
    """Read a condition over `facts`; `functions` may be called with one text. Sizes such as 8GB become numbers of GB.

    Raises:
        BadCondition: it is none, or asks for something else, named.
    """
    try:
        tree = ast.parse(_with_sizes(text.strip()), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise BadCondition(f"{text!r} is no condition ({error})") from None
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called.add(id(node.func))
            _check_call(node, functions)
        elif isinstance(node, ast.Name):
            if node.id not in facts and id(node) not in called:
                raise BadCondition(f"there is no fact {node.id!r}; there are {', '.join(facts)}")
        elif isinstance(node, ast.Constant):
            if not isinstance(node.value, int | float | str | bool):
                raise BadCondition(f"{node.value!r} has no meaning in a condition")
        elif not isinstance(node, (*_ALLOWED, *_COMPARE, ast.Tuple, ast.List)):
            raise BadCondition(f"`{_shown(node)}` is not allowed in a condition")
    return tree.body


def _check_call(node: ast.Call, functions: Collection[str]) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    texts = [each for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if name not in functions or node.keywords or len(texts) != 1 or len(node.args) != 1:
        raise BadCondition(f"`{_shown(node)}` is not allowed in a condition")


def _with_sizes(text: str) -> str:
    from dask.utils import parse_bytes

    def in_gigabytes(found: re.Match[str]) -> str:
        return repr(parse_bytes(f"{found[1]}{found[2]}") / 1e9)

    parts = _QUOTED.split(text)
    return "".join(part if number % 2 else _SIZE.sub(in_gigabytes, part) for number, part in enumerate(parts))


def names_in(condition: ast.expr) -> list[str]:
    """Return the facts that a condition asks for."""
    return sorted({node.id for node in ast.walk(condition) if isinstance(node, ast.Name)})


def value(
    condition: ast.expr, facts: Mapping[str, Any], functions: Mapping[str, Callable[[str], Any]] | None = None
) -> Any:
    """Return what a condition says of `facts`; None is unknown, and stays unknown through ``not``, ``and``, ``or``.

    Raises:
        BadCondition: it compares what cannot be compared.
    """
    match condition:
        case ast.Name(id=name):
            return facts[name]
        case ast.Constant(value=constant):
            return constant
        case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(text))]):
            return (functions or {})[name](text)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(value(part, facts, functions) for part in parts)
        case ast.UnaryOp(op=op, operand=inner):
            found = value(inner, facts, functions)
            if isinstance(op, ast.USub):
                return -found
            return None if found is None else not found
        case ast.BoolOp(op=op, values=parts):
            values = [value(part, facts, functions) for part in parts]
            deciding = isinstance(op, ast.Or)
            if any(each is not None and bool(each) is deciding for each in values):
                return deciding
            return None if None in values else not deciding
        case ast.Compare(left=left, ops=ops, comparators=rights):
            return _compared(value(left, facts, functions), ops, [value(part, facts, functions) for part in rights])
    raise BadCondition(f"`{_shown(condition)}` is not allowed in a condition")


def _compared(left: Any, ops: list[ast.cmpop], rights: list[Any]) -> bool | None:
    for op, right in zip(ops, rights, strict=True):
        if left is None or right is None:
            return None
        try:
            if not _COMPARE[type(op)](left, right):
                return False
        except TypeError:
            raise BadCondition(f"{left!r} cannot be compared with {right!r}; ram and vram are numbers of GB") from None
        left = right
    return True


def _shown(node: ast.AST) -> str:
    try:
        return ast.unparse(node) or type(node).__name__
    except Exception:  # operators alone cannot be written
        return type(node).__name__
