"""Reads the line of ``%%mesh``: a loop, options, or both."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass
from typing import Any, NoReturn

from computemesh.errors import BadRequirement
from computemesh.requirement import FIELDS, NOTHING, Requirement, requirement_from
from computemesh.task_spec import task_spec_from

from .cell_source import BadCell, loop_parts
from .where_expression import check_where

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
    no_wait: bool = False
    keep: bool = False
    where: str = ""
    """A condition over the nodes' facts, checked by `where_expression`."""
    ship: tuple[str, ...] | None = None
    """The names that go in; None for those that the cell reads."""
    returns: tuple[str, ...] | None = None
    """The names that come back; None for those that the cell binds."""
    files: tuple[str, ...] = ()
    ship_limit: int | None = None
    cap: int | None = None
    """Lines shown of each run when there are several; None for the configured number, -1 for all."""
    help: bool = False

    @property
    def single(self) -> bool:
        """Whether the cell runs once: neither for items nor on each node."""
        return not self.target and not self.each


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
    _refuse_later({name: getattr(found, name) for name in ("replicas", "checkpoint")})
    if found.where is not None:
        check_where(found.where)
    return Line(
        target=target,
        items=items,
        each=found.each,
        output=found.output or "",
        requirement=requirement_from(asked),
        retries=found.retries,
        timeout=None if found.timeout is None else task_spec_from({"timeout": found.timeout}).timeout,
        progress_after=_progress_after(found.progress_after),
        no_wait=found.no_wait,
        keep=found.keep,
        where=found.where or "",
        ship=_names("--ship", found.ship),
        returns=_names("--return", found.returns),
        files=tuple(found.file or ()),
        ship_limit=None if found.ship_limit is None else _bytes("--ship-limit", found.ship_limit),
        cap=-1 if found.show_all else _cap(found.cap),
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
        raise BadCell(f"%%mesh: {message}; `%%mesh --help` lists what there is")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = _Parser(
        prog="%%mesh",
        usage="%%%%mesh [for NAME in ITEMS] [options]",
        # Not by the terminal's width, which a notebook does not have.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=110),
        add_help=False,
        allow_abbrev=False,
        description=(
            "Run the cell on the mesh as though it ran here: names that it reads go in, names that it binds\n"
            "come back, output streams live, figures and the last expression come back. Values that are changed\n"
            "in place stay as they were here; bind a name, or use --return, to bring them back.\n\n"
            "  %%mesh                        once, on one node\n"
            "  %%mesh for seed in range(8)   once for each item; names and the last expression become lists\n"
            "  %%mesh --each                 once on every node"
        ),
        epilog=("`_mesh` is the last job: _mesh.result(), .cancel(), .output(run). `%mesh help` lists the line magic."),
    )
    runs = made.add_argument_group("how it runs").add_argument
    runs("--each", action="store_true", help="run once on every node, at the same time")
    runs("--no-wait", action="store_true", help="return a handle at once: .result(), .cancel(), .done(), .status")
    runs("--retries", metavar="N", type=int, default=0, help="run again up to N times what raised")
    runs("--timeout", metavar="TIME", help="stop a run after TIME, such as 30 or '5 min'")
    runs("--replicas", metavar="N", help="comes with a later release")
    runs("--checkpoint", metavar="TIME", help="comes with a later release")
    names = made.add_argument_group("what goes in and comes back").add_argument
    names("-o", "--output", metavar="NAME", help="put the result into NAME instead of showing it")
    names("--keep", action="store_true", help="leave what it binds and its value on the mesh, as futures")
    names("--ship", metavar="NAME", nargs="+", help="send these names and no others; 'none' for none")
    names(
        "--return",
        dest="returns",
        metavar="NAME",
        nargs="+",
        help="bring back these names and no others; 'none' for none",
    )
    names("--file", metavar="PATH", nargs="+", help="send files and folders along; they lie there as they lie here")
    names("--ship-limit", metavar="SIZE", help="most that the cell may send along, such as 2GB")
    shows = made.add_argument_group("what it shows").add_argument
    shows("--progress-after", metavar="TIME", help="show progress after TIME; -1 for never")
    shows("--cap", metavar="LINES", help="lines shown of each run when there are several; _mesh.output() has all")
    shows("--show-all", action="store_true", help="show all lines of each run")
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
    needs.add_argument(
        "--where", metavar="EXPR", help="such as \"ram > 32 and site == 'berlin'\", decided when the cell is sent"
    )
    made.add_argument("-h", "--help", action="store_true", help="show this")
    return made


def option_names() -> dict[str, str]:
    """Return every long option with its help, for completion."""
    return {
        name: action.help or ""
        for action in parser()._actions
        for name in action.option_strings
        if name.startswith("--")
    }


def help_text() -> str:
    """Return what ``%%mesh --help`` shows."""
    return parser().format_help()


def _refuse_later(found: dict[str, str | None]) -> None:
    from .tasks import LATER

    for name, value in found.items():
        if value is not None and name in LATER:
            raise BadRequirement(f"%%mesh --{name} {value}: {name} comes with a later release; leave it out for now")


def _names(option: str, words: list[str] | None) -> tuple[str, ...] | None:
    """Return the names of ``--ship a b`` or ``--ship a,b``; the word ``none`` alone gives none."""
    if words is None:
        return None
    found = tuple(name for word in words for name in word.split(",") if name)
    if found == ("none",):
        return ()
    for name in found:
        if not name.isidentifier():
            raise BadCell(f"%%mesh {option} {name}: give names of variables, or 'none'")
    return found


def _cap(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise BadCell(f"%%mesh --cap {text}: give a number of lines, or use --show-all")
    return int(text)


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
