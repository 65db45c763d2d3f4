"""What is asked of a node that runs a notebook, and what it answers.

The node's worker imports this module alone, which is light; all that runs a notebook is imported in the task's own
process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRANTED, REFUSED = "go", "do not"


@dataclass(frozen=True, slots=True)
class NotebookJob:
    """A notebook and how to run it."""

    notebook: str
    """As JSON."""
    run: str
    topic: str
    kernel_name: str
    live_text: bool = False
    """Send what cells print as it comes, for ``--log-output``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """nbclient's own: ``timeout``, ``startup_timeout`` and so on."""
    first: int = 0
    """The first cell to run; those before it have run, and the kernel is brought to where they left it."""
    state_limit: int = 0
    """Save the kernel's state after cells, up to so many bytes; 0: not at all."""


@dataclass(frozen=True, slots=True)
class NotebookOutcome:
    """The notebook with its outputs, as JSON, and whether it was stopped."""

    notebook: str
    node: str
    messages: int
    interrupted: bool = False


def run_notebook(job: NotebookJob, state: bytes | None = None) -> NotebookOutcome:
    """Run a notebook in a kernel on this node and return it with its outputs.

    A failing cell ends the run and is in the outputs, as with papermill. With `state` the kernel is brought there
    first; `job.first` says which cell comes next.
    """
    from .notebook_run import execute

    return execute(job, state)


def answer_leave(leave: str, granted: bool) -> None:
    """Let a notebook on this node begin, or end it before it begins; called by its owner."""
    unfinished = Path(f"{leave}.part")
    with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
        unfinished.write_text(GRANTED if granted else REFUSED)
        unfinished.replace(leave)


def read_part(file: str, offset: int, size: int) -> bytes:
    """Return a part of a file on this node; the notebook's owner fetches states with it.

    The last part leaves a mark beside the file.
    """
    with Path(file).open("rb") as stream:
        stream.seek(offset)
        part = stream.read(size)
        if stream.tell() == Path(file).stat().st_size:
            mark_of(Path(file)).touch()
        return part


def mark_of(file: Path) -> Path:
    """Return where it shows that a file has been fetched."""
    return file.with_name(f"{file.name}.read")
