"""What a cell is as text: its parts and its compiled form."""

from __future__ import annotations

import ast
import linecache
import re
import traceback
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from .cell_names import target_names

VALUE = "__mesh_value__"
"""Under this name the value of a cell's last expression waits to be fetched."""

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_FOR = re.compile(r"^for\s")


class BadCell(Exception):
    """A cell cannot run on the mesh as it is written; the message says why and what to do."""


class CellSyntaxError(BadCell):
    """A cell is no Python; shows as Python's own message, without the frames that found it."""

    def __init__(self, error: SyntaxError, title: str) -> None:
        lines = "".join(traceback.format_exception_only(error)).splitlines()
        super().__init__(lines[-1])
        place = re.sub(r'^  File ".*", line', f"  {title}, line", lines[0])
        self._lines = [place, *lines[1:]]

    def _render_traceback_(self) -> list[str]:
        return self._lines


@dataclass(frozen=True, slots=True)
class CellSource:
    """A cell's Python and where a traceback should say that it stands."""

    text: str
    """The body, plain Python."""
    filename: str
    """What tracebacks call it, the same on node and notebook."""
    shown: str
    """The cell as the user sees it, magic line included."""
    first_line: int = 2
    """The line of `shown` at which the body starts."""

    def lines(self) -> list[str]:
        """Return the lines as `linecache` wants them."""
        return [line + "\n" for line in self.shown.splitlines()]

    def remember(self) -> None:
        """Let tracebacks in this process show the cell's lines."""
        # A modification time of None keeps linecache from looking for a file.
        linecache.cache[self.filename] = (len(self.shown), None, self.lines(), self.filename)


@lru_cache(maxsize=8)
def compiled(source: CellSource) -> CodeType:
    """Return the body's code, which leaves the value of a last expression under `VALUE`.

    Raises:
        SyntaxError: with the place in the cell as the user sees it.
    """
    padded = "\n" * (source.first_line - 1) + source.text
    tree = ast.parse(padded, source.filename)
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        keep = ast.Assign(targets=[ast.Name(VALUE, ast.Store())], value=last.value)
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(keep, last))
    code: CodeType = compile(tree, source.filename, "exec", flags=_FLAGS, dont_inherit=True)
    return code


def loop_parts(line: str) -> tuple[str, str] | None:
    """Split ``for NAME in EXPR`` into its two parts; None when `line` is no loop.

    Raises:
        BadCell: it starts like a loop and is none.
    """
    if not _FOR.match(line):
        return None
    text = line.strip().removesuffix(":")
    try:
        loop: Any = ast.parse(f"{text}: pass").body[0]
        target, items = ast.unparse(loop.target), ast.unparse(loop.iter)
        names = target_names(target)
    except SyntaxError:
        raise BadCell(f"%%mesh {line}: this is no loop; write it as `%%mesh for seed in range(8)`") from None
    if not names:
        raise BadCell(f"%%mesh {line}: the loop must bind a name, as in `%%mesh for seed in range(8)`")
    return target, items
