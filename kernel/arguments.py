"""Reads the line of ``%%mesh``: a loop, options, or both."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass
from typing import Any, NoReturn

from computemesh.errors import BadConfiguration, BadRequirement
from computemesh.requirement import FIELDS, NOTHING, Requirement, requirement_from
from computemesh.task_spec import task_spec_from

from .cell_source import BadCell, loop_parts

_OPTION_START = re.compile(r"(?:^|\s)(?=--?[a-zA-Z])")


@dataclass(frozen=True, slots=True)
class Line:
    """What the line of ``%%mesh`` says."""

    target: str = ""
    """What ``for TARGET in ITEMS`` binds; empty without a loop."""
    items: str = ""
    """The expression to go over."""
    each: bool = False
    output: str = ""
    requirement: Requirement = NOTHING
    retries: int = 0
    timeout: float | None = None
    progress_after: float | None = None
    """Seconds, None for the configured time, negative for never."""
    ship_limit: int | None = None
    help: bool = False


def parse_line(text: str) -> Line:
    """Read the line after ``%%mesh``.

    Raises:
        BadCell: it cannot be understood.
        BadRequirement: a value makes no sense, named.
    """
    loop, options = split_loop(text.strip())
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise BadCell(f"%%mesh {text}: {error}") from None
    found = parser().parse_args(words)
    target, items = loop or ("", "")
    if loop and found.each:
        raise BadCell("%%mesh: a loop goes over items, --each over nodes; use one of them")
    asked = {name: getattr(found, name) for name in FIELDS if getattr(found, name, None) is not None}
    if found.output is not None and not found.output.isidentifier():
        raise BadCell(f"%%mesh -o {found.output}: give the name of a variable")
    return Line(
        target=target,
        items=items,
        each=found.each,
        output=found.output or "",
        requirement=requirement_from(asked),
        retries=found.retries,
        timeout=None if found.timeout is None else task_spec_from({"timeout": found.timeout}).timeout,
        progress_after=_progress_after(found.progress_after),
        ship_limit=None if found.ship_limit is None else _bytes("--ship-limit", found.ship_limit),
        help=found.help,
    )


def split_loop(text: str) -> tuple[tuple[str, str] | None, str]:
    """Split a line into its loop, if it has one, and its options, which may stand before or after it.

    Raises:
        BadCell: there is text that is neither.
    """
    before, found, after = _partition_for(text)
    if not found:
        return None, text
    ends = [match.start() for match in _OPTION_START.finditer(after)] + [len(after)]
    for end in ends:
        # The first end that leaves a whole loop: an option cannot start inside an expression.
        try:
            loop = loop_parts(after[:end].strip())
        except BadCell:
            continue
        return loop, f"{before} {after[end:]}".strip()
    return loop_parts(after), before


def _partition_for(text: str) -> tuple[str, bool, str]:
    match = re.search(r"(?:^|\s)(?=for\s)", text)
    if match is None:
        return text, False, ""
    return text[: match.start()], True, text[match.end() :]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadCell(f"%%mesh: {message}; `%mesh --help` lists what there is")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = _Parser(
        prog="%%mesh",
        usage="%%%%mesh [for NAME in ITEMS] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
        description=(
            "Run the cell on the mesh as though it ran here: names that it reads go in, names that it binds\n"
            "come back, output streams live, figures and the last expression come back. Values that are changed\n"
            "in place stay as they were here; bind a name to bring them back.\n\n"
            "  %%mesh                        once, on one node\n"
            "  %%mesh for seed in range(8)   once for each item; names and the last expression become lists\n"
            "  %%mesh --each                 once on every node"
        ),
    )
    add = made.add_argument
    add("--each", action="store_true", help="run once on every node, at the same time")
    add("-o", "--output", metavar="NAME", help="put the result into NAME instead of showing it")
    add("--retries", metavar="N", type=int, default=0, help="run again up to N times what raised")
    add("--timeout", metavar="TIME", help="stop a run after TIME, such as 30 or '5 min'")
    add("--progress-after", metavar="TIME", help="show progress after TIME; -1 for never")
    add("--ship-limit", metavar="SIZE", help="most that the cell may send along, such as 2GB")
    needs = made.add_argument_group("what the node must have")
    needs.add_argument("--cpu", metavar="N", help="cores")
    needs.add_argument("--ram", metavar="SIZE", help="memory, such as 16GB")
    needs.add_argument("--gpu", metavar="N", help="GPUs; 0.5 is a share of one")
    needs.add_argument("--vram", metavar="SIZE", help="memory of one GPU")
    needs.add_argument("--cuda", metavar="VERSION", help="oldest CUDA version")
    needs.add_argument("--network", metavar="RATE", help="throughput, such as 1Gbps")
    needs.add_argument("--battery", metavar="PERCENT", help="least charge when on battery")
    needs.add_argument("--pool", metavar="NAME", help="a pool of nodes")
    needs.add_argument("--packages", metavar="PACKAGE", nargs="+", help="Python packages, such as 'torch>=2.4'")
    add("-h", "--help", action="store_true", help="show this")
    return made


def help_text() -> str:
    """Return what ``%%mesh --help`` shows."""
    return parser().format_help()


def _progress_after(text: str | None) -> float | None:
    if text is None:
        return None
    return -1.0 if text.strip().startswith("-") else _seconds("--progress-after", text)


def _seconds(option: str, text: str) -> float:
    return _parsed(option, text, "parse_timedelta", "a time such as 30 or '5 min'")


def _bytes(option: str, text: str) -> int:
    return int(_parsed(option, text, "parse_bytes", "a size such as 2GB"))


def _parsed(option: str, text: str, reader: str, expected: str) -> float:
    import dask.utils

    try:
        found: Any = getattr(dask.utils, reader)(text)
        number = float(found)
    except (TypeError, ValueError, KeyError):
        number = -1.0
    if number < 0:
        raise BadCell(f"%%mesh {option} {text}: give {expected}")
    return number


BAD_LINE = (BadCell, BadRequirement, BadConfiguration)
"""What a line that cannot be used raises."""
