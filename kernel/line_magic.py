"""``%mesh``: the line magic, which asks about the mesh and about this notebook's jobs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .cell_source import BadCell

if TYPE_CHECKING:
    # A kernel that loads the extension at its start should not wait for Dask's client.
    from .job_handle import MeshJob

COMMANDS = {
    "status": "the mesh in use, as plain %mesh",
    "nodes": "its nodes",
    "connect": "connect [ADDRESS]: to the mesh known here, or to a Dask scheduler",
    "jobs": "this notebook's cells on the mesh",
    "why": "why KEY or JOB: where it runs and why there, or why it does not",
    "cancel": "cancel [JOB]: stop a job, by default the last that runs",
    "help": "this, and the options of %%mesh",
}


class JobTable:
    """A notebook's cells on the mesh, and what `mesh.jobs` knows; shows itself as text."""

    def __init__(self, cells: Sequence[MeshJob], others: Sequence[Any]) -> None:
        self.cells = tuple(cells)
        self.others = others

    def __repr__(self) -> str:
        lines = [f"{job.number:>4}  {job.status:<9}  {job.title[:50]:<50}  {job._said()}" for job in self.cells]
        parts = ["\n".join(["Cells of this notebook:", *lines])] if lines else []
        if self.others:
            parts.append(f"Submitted with mesh.submit and mesh.map (`mesh.jobs()`):\n{self.others!r}")
        return "\n\n".join(parts) or "Nothing of this notebook is on the mesh."


def answer(line: str) -> Any:
    """Do what stands after ``%mesh`` and return what is to be shown.

    Raises:
        BadCell: there is no such command, or its argument makes no sense.
        ComputeMeshError: the mesh cannot answer.
    """
    try:
        command, *arguments = shlex.split(line) or ["status"]
    except ValueError as error:
        raise BadCell(f"%mesh {line}: {error}") from None
    if command in {"help", "-h", "--help"}:
        print(help_of_line())
        return None
    if command not in COMMANDS:
        raise BadCell(
            f"%mesh {line}: there is no `{command}`; there are {', '.join(COMMANDS)}. A cell that is to run on the "
            "mesh begins with two percent signs: `%%mesh`"
        )
    _check_count(command, arguments)
    from .connection import connect, current
    from .job_handle import jobs

    if command == "status":
        return current()
    if command == "nodes":
        return current().nodes()
    if command == "connect":
        return connect(*arguments)
    if command == "jobs":
        from .jobs import jobs as submitted

        return JobTable(jobs(), submitted())
    if command == "why":
        return current().why(_key(arguments[0]))
    return _cancelled(arguments)


def help_of_line() -> str:
    """Return the help of both magics."""
    from .arguments import help_text

    width = max(map(len, COMMANDS))
    lines = [f"  %mesh {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(["The line magic:", *lines, "", "The cell magic:", help_text()])


def _check_count(command: str, arguments: Sequence[str]) -> None:
    least, most = {"why": (1, 1), "connect": (0, 1), "cancel": (0, 1)}.get(command, (0, 0))
    if not least <= len(arguments) <= most:
        raise BadCell(f"%mesh {command}: {COMMANDS[command]}; {len(arguments)} arguments were given")


def _key(text: str) -> str:
    return _job(text).key if text.isdecimal() and int(text) in {job.number for job in _cells()} else text


def _cells() -> list[MeshJob]:
    from .job_handle import jobs

    return jobs()


def _job(text: str) -> MeshJob:
    known = {job.number: job for job in _cells()}
    if not text.isdecimal() or int(text) not in known:
        numbers = ", ".join(map(str, known)) or "none"
        raise BadCell(
            f"%mesh: no cell of this notebook has job {text!r}; there are {numbers}: see `%mesh jobs`. What "
            f"mesh.submit and mesh.map have sent ends with `mesh.job({text!r}).cancel()`"
        )
    return known[int(text)]


def _cancelled(arguments: Sequence[str]) -> Any:
    if arguments:
        job = _job(arguments[0])
        if job.done():
            raise BadCell(f"%mesh cancel {job.number}: job {job.number} has ended already ({job.status})")
    else:
        running = [job for job in _cells() if not job.done()]
        if not running:
            raise BadCell("%mesh cancel: no cell of this notebook has a job that runs")
        job = running[-1]
    job.cancel()
    print(f"Job {job.number} is being cancelled.")
    return None
