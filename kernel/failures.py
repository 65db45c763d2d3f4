"""Makes the exception that a failed cell raises in the notebook."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from computemesh.errors import Interrupted, MeshError, TaskDied

from .cell_run import Outcome
from .shipping import unpack
from .traceback_text import Rendered, render

SHOWN = 3
"""Tracebacks shown when several runs failed."""


def raised_from(
    numbered: Sequence[tuple[int, Outcome | BaseException]],
    total: int,
    title_of: Callable[[str], str],
    home: dict[str, Any],
    timeout: float | None,
) -> BaseException:
    """Return what to raise: one failure's own exception, else a `MeshError` that holds them all.

    `numbered` are the runs that failed, with their numbers.
    """
    failed = [each for _, each in numbered]
    errors = [_error(each, home, timeout) for each in failed]
    texts = [_lines(each, error, title_of) for each, error in zip(failed, errors, strict=True)]
    if len(failed) == 1:
        error = errors[0]
        lines = texts[0]
        if total > 1:
            lines = [*lines, f"1 of {total} runs failed{_which(numbered[0][0])}."]
        return _shown_as(error, lines)
    first, where = errors[0], _node(failed[0])
    message = f"{len(failed)} of {total} runs failed; the first{where}: {type(first).__name__}: {first}"
    shown = [
        line
        for (number, _), text in zip(numbered[:SHOWN], texts, strict=False)
        for line in (f"Failed{_which(number)}:", *text, "")
    ]
    if len(failed) > SHOWN:
        shown.append(f"and {len(failed) - SHOWN} more; all are in the exception's `.errors`")
    return _shown_as(MeshError(message, errors), [*shown, f"MeshError: {len(failed)} of {total} runs failed"])


def _error(found: Outcome | BaseException, home: dict[str, Any], timeout: float | None) -> BaseException:
    if not isinstance(found, Outcome):
        return _in_our_words(found)
    failure = found.failure
    if failure is None:
        return TaskDied(f"A run on node {found.node} ended without a result")
    if found.timed_out:
        return Interrupted(f"A run on node {found.node} took longer than its {timeout:g} s and was stopped")
    if found.interrupted:
        return Interrupted(f"A run was interrupted on node {found.node}")
    if failure.exception:
        try:
            error = unpack(failure.exception, home)
        except Exception:  # its class may not exist here, or refuse its own arguments
            error = None
        if isinstance(error, BaseException):
            return error
    return MeshError(f"{failure.kind}: {failure.message} (on node {failure.node}; the exception cannot travel)", ())


def _in_our_words(error: BaseException) -> BaseException:
    name = type(error).__name__
    if name == "KilledWorker":
        return TaskDied(f"The processes that ran this cell ended again and again, perhaps out of memory: {error}")
    if isinstance(error, ModuleNotFoundError) and "computemesh" in str(error):
        return TaskDied("The nodes of this cluster have no computemesh installed: install it there as here")
    return error


def _lines(found: Outcome | BaseException, error: BaseException, title_of: Callable[[str], str]) -> list[str]:
    if isinstance(found, Outcome) and found.failure is not None and not isinstance(error, Interrupted):
        advice = advice_on(error, found.node)
        return [*render(found.failure, title_of), *([advice] if advice else [])]
    return [f"{type(error).__name__}: {error}"]


def advice_on(error: BaseException, node: str) -> str:
    """Return what to do about a file that is here and not on the node; empty for all other errors."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str) or not error.filename:
        return ""
    try:
        here = Path(error.filename).exists()
    except (OSError, ValueError):
        return ""
    if not here:
        return ""
    name = error.filename
    return (
        f"{name} is on this machine and not on node {node}: send it along with `%%mesh --file {shlex.quote(name)}`, or "
        f"once for all with `mesh.upload({name!r})`"
    )


def _which(number: int) -> str:
    return f": run {number}, counted from 0"


def _node(found: Outcome | BaseException) -> str:
    return f", on node {found.node}" if isinstance(found, Outcome) else ""


def _shown_as(error: BaseException, lines: list[str]) -> BaseException:
    try:
        error._render_traceback_ = Rendered(lines)  # type: ignore[attr-defined]
        error.add_note("\n".join(["On the mesh:", *lines]))
    except (AttributeError, TypeError):
        # An exception with slots is shown as Python shows it.
        pass
    return error
