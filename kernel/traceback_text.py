"""The traceback of a cell that failed on a node, as text that shows the cell's own lines."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .cell_source import CellSource
from .shipping import pack

CONTEXT = 2
"""Lines shown before and after the one that raised."""
LONGEST = 12
"""Frames shown; of a deeper recursion the middle is left out."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a traceback."""

    file: str
    line: int
    function: str
    source: tuple[tuple[int, str], ...]
    """Numbered lines around the one that was running."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception from a node: itself where it can travel, and how it looked there."""

    kind: str
    message: str
    node: str
    exception: bytes
    """The packed exception; empty when it cannot travel."""
    frames: tuple[Frame, ...]
    notes: tuple[str, ...] = ()
    before: Failure | None = None
    """The exception that this one was raised from, or while handling."""
    link: str = ""
    """How this one led to the next."""


def failure_from(error: BaseException, source: CellSource, node: str, home: dict[str, Any]) -> Failure:
    """Return `error` ready to travel; frames before the cell's first are ours and left out."""
    frames = _frames(error.__traceback__, source)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = None
    if cause is not None:
        link = "The above exception was the direct cause of" if error.__cause__ else "During its handling came"
        before = Failure(
            type(cause).__name__, _message(cause), "", b"", _frames(cause.__traceback__, source), (), None, link
        )
    return Failure(
        type(error).__name__,
        _message(error),
        node,
        _packed(error, home),
        frames,
        tuple(str(note) for note in getattr(error, "__notes__", ())),
        before,
    )


def _message(error: BaseException) -> str:
    try:
        if isinstance(error, SyntaxError):
            return traceback.format_exception_only(error)[-1].partition(": ")[2].strip()
        return str(error)
    except Exception:  # a user's __str__ may raise anything
        return "<its message could not be made>"


def _packed(error: BaseException, home: dict[str, Any]) -> bytes:
    bare = error.with_traceback(None)
    bare.__cause__ = bare.__context__ = None
    try:
        return pack(bare, home).data
    except Exception:  # an exception may hold anything
        return b""


def _frames(steps: TracebackType | None, source: CellSource) -> tuple[Frame, ...]:
    summary = list(traceback.StackSummary.extract(traceback.walk_tb(steps), lookup_lines=False))
    first = next((n for n, step in enumerate(summary) if step.filename == source.filename), None)
    if first is None:
        # It failed before the cell's first line, or in its syntax: none of the frames is the user's.
        return ()
    kept = summary[first:]
    if len(kept) > LONGEST:
        kept = kept[: LONGEST // 2] + kept[-LONGEST // 2 :]
    return tuple(
        Frame(step.filename, step.lineno or 0, step.name, _around(step.filename, step.lineno or 0)) for step in kept
    )


def _around(file: str, line: int) -> tuple[tuple[int, str], ...]:
    lines = linecache.getlines(file)
    start, end = max(1, line - CONTEXT), min(len(lines), line + CONTEXT)
    return tuple((number, lines[number - 1].rstrip("\n")) for number in range(start, end + 1))


def render(failure: Failure, title_of: Callable[[str], str]) -> list[str]:
    """Return the lines of a traceback; `title_of` says what a file is called, such as ``Cell In[3]``."""
    lines: list[str] = []
    if failure.before is not None:
        lines = [*render(failure.before, title_of), "", f"{failure.before.link} the following exception:", ""]
    lines += ["-" * 75, f"{failure.kind:<42}Traceback (most recent call last)"]
    for frame in failure.frames:
        title = title_of(frame.file)
        where = f"File {title}:{frame.line}" if title == frame.file else f"{title}, line {frame.line}"
        lines.append(where if frame.function == "<module>" else f"{where}, in {frame.function}")
        # The lines of another cell are known here only.
        lines.extend(_numbered(frame.source or _around(frame.file, frame.line), frame.line))
        lines.append("")
    message = failure.message
    lines.append(f"{failure.kind}: {message}" if message else failure.kind)
    lines.extend(failure.notes)
    if failure.node:
        lines.append(f"on node {failure.node}")
    return lines


def _numbered(source: Sequence[tuple[int, str]], current: int) -> list[str]:
    width = max((len(str(number)) for number, _ in source), default=1)
    return [
        f"----> {number:>{width}} {text}" if number == current else f"      {number:>{width}} {text}"
        for number, text in source
    ]


class Rendered:
    """What IPython calls to show an exception that came from a node; as an instance of a class it can be pickled."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)

    def __call__(self) -> list[str]:
        """Return the traceback's lines, as IPython wants them."""
        return list(self.lines)


def first_line(error: Exception) -> str:
    """Return what an error says first; its kind when it says nothing."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
