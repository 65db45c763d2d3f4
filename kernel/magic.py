"""``%%mesh``: runs a cell on the mesh as though it had run here. Also ``mesh.run``, the same for a string of code."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from computemesh import config
from computemesh.errors import BadRequirement, ComputeMeshError, MeshError, NoMesh

from .arguments import Line, help_text, parse_line
from .cell_job import CellRun, Item, Options
from .cell_names import CellNames, cell_names, target_names
from .cell_run import Cell, Outcome
from .cell_source import BadCell, CellSource, CellSyntaxError, check_plain, compiled
from .connection import Mesh, current
from .failures import raised_from
from .live_output import Screen
from .output_router import topic_of
from .ship_names import pack_item, pack_names
from .shipping import Packed, unpack


@dataclass(frozen=True, slots=True)
class Notebook:
    """Where a cell comes from and where its names and its output go."""

    home: dict[str, Any]
    """The globals that it reads and binds."""
    screen: Screen
    title_of: Callable[[str], str]
    """What tracebacks call a file: ``Cell In[3]`` for a cell, else the file's name."""


def run_text(line: str, raw: str, source: CellSource, notebook: Notebook) -> Any:
    """Run a cell on the mesh, bind what it binds, and return the value of its last expression.

    Raises:
        BadCell, BadRequirement, CannotShip: it cannot run as it is; nothing has run.
        Exception: what the cell raised, with the remote traceback; `MeshError` when several runs did.
    """
    said = parse_line(line)
    if said.help:
        notebook.screen.text("stdout", help_text())
        return None
    try:
        compiled(source)
    except SyntaxError as error:
        raise CellSyntaxError(error, notebook.title_of(source.filename)) from None
    names = cell_names(source.text, said.target)
    check_plain(raw, source.text, frozenset(notebook.home) | names.binds)
    items = _items(said, notebook.home)
    if items is not None and not items:
        return _bind([], names, said, notebook)
    limit = config.size("notebook.ship-limit") if said.ship_limit is None else said.ship_limit
    loop_names = frozenset(target_names(said.target)) if said.target else frozenset()
    shared = pack_names(names.reads - loop_names, notebook.home, limit)
    mesh = current()
    cell = Cell(
        source=source,
        names=names,
        run=uuid.uuid4().hex[:12],
        topic=topic_of(mesh.client),
        target=said.target,
        timeout=said.timeout,
    )
    runs = _runs(mesh, items, said, shared, notebook)
    found = CellRun(mesh, cell, shared, runs, _options(said), notebook.screen).outcomes()
    return _settled(found, names, said, notebook)


def run(source: str, options: str = "") -> Any:
    """Run code on the mesh as `%%mesh` runs a cell, and return the value of its last expression.

    Names are read from and bound in the notebook, or the calling module. `options` is what would stand on the line
    after ``%%mesh``: ``mesh.run("simulate(seed)", "for seed in range(8) --retries 2")``.

    Raises:
        BadRequirement: the code or the options cannot be used as they are.
        CannotShip: a variable cannot travel.
        Exception: what the code raised; `MeshError` when several runs did.
    """
    import textwrap

    from .screens import screen_here

    home = _home_of_caller()
    number = uuid.uuid4().hex[:6]
    text = textwrap.dedent(source)
    cell = CellSource(text, f"<mesh.run {number}>", text, first_line=1)
    cell.remember()
    try:
        return run_text(options, text, cell, Notebook(home, screen_here(), str))
    except BadCell as error:
        raise BadRequirement(str(error)) from None


def _home_of_caller() -> dict[str, Any]:
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is not None:
        home: dict[str, Any] = shell.user_ns
        return home
    return sys._getframe(2).f_globals


# ---------------------------------------------------------------- in


def _items(said: Line, home: dict[str, Any]) -> list[Any] | None:
    if not said.target:
        return None
    found = eval(said.items, home)  # noqa: S307 - the user's own expression, in the notebook
    try:
        return list(found)
    except TypeError:
        raise BadCell(f"%%mesh for {said.target} in {said.items}: {type(found).__name__} cannot be gone over") from None


def _runs(mesh: Mesh, items: Sequence[Any] | None, said: Line, shared: Packed, notebook: Notebook) -> list[Item]:
    if said.each:
        workers = [row.worker for row in mesh.nodes() if row.available and row.worker]
        if not workers:
            raise NoMesh("No node takes tasks at the moment: `mesh.nodes()` says why")
        return [Item(worker=worker) for worker in workers]
    if items is None:
        return [Item()]
    return [Item(pack_item(item, notebook.home, number)) for number, item in enumerate(items)]


def _options(said: Line) -> Options:
    after = config.seconds("notebook.progress-after") if said.progress_after is None else said.progress_after
    return Options(requirement=said.requirement, retries=said.retries, timeout=said.timeout, progress_after=after)


# ---------------------------------------------------------------- out


def _settled(
    found: Sequence[Outcome | BaseException],
    names: CellNames,
    said: Line,
    notebook: Notebook,
) -> Any:
    failed = [each for each in found if not isinstance(each, Outcome) or each.failure is not None]
    whole = [each for each in found if isinstance(each, Outcome)]
    single = not said.target and not said.each
    if not failed:
        return _bind(whole, names, said, notebook)
    if single and whole:
        # As here, what the cell had bound before it raised stays bound.
        _bind_names(_names_of(whole[0], notebook), names, whole, notebook, single=True)
    raise raised_from(failed, len(found), notebook.title_of, notebook.home, said.timeout)


def _bind(outcomes: Sequence[Outcome], names: CellNames, said: Line, notebook: Notebook) -> Any:
    """Bind the names that came back and return the value, or the list of values."""
    single = not said.target and not said.each
    by_run = [_names_of(outcome, notebook) for outcome in outcomes]
    values = [_value(outcome, notebook) for outcome in outcomes]
    if single:
        _bind_names(by_run[0], names, outcomes, notebook, single=True)
    else:
        bound = sorted({name for found in by_run for name in found})
        if not outcomes:
            bound = sorted(names.binds)
        modules = {name for outcome in outcomes for name in outcome.modules}
        lists: dict[str, Any] = {name: [found.get(name) for found in by_run] for name in bound if name not in modules}
        # Each run imports the same module; a list of it would help nobody.
        lists |= {name: next(found[name] for found in by_run if name in found) for name in modules & set(bound)}
        _bind_names(lists, names, outcomes, notebook, single=False)
    # A last line such as print(...) gives None in every run, which is no result, as it is none here.
    has_value = any(value is not None for value in values)
    result: Any = (values[0] if values else None) if single else (values if has_value else None)
    if said.output:
        notebook.home[said.output] = result if single or has_value else []
        return None
    return result


def _names_of(outcome: Outcome, notebook: Notebook) -> dict[str, Any]:
    from importlib import import_module

    found: dict[str, Any] = {}
    if outcome.names:
        try:
            found = unpack(outcome.names, notebook.home)
        except Exception as error:
            raise MeshError(
                f"What the cell bound on node {outcome.node} cannot be read here: {type(error).__name__}: {error}. "
                "Install here what is missing, or convert it on the node",
                [error],
            ) from None
    left = dict(outcome.left)
    for name, module in outcome.modules.items():
        try:
            found[name] = import_module(module)
        except ImportError as error:
            left[name] = str(error)
    for name, why in left.items():
        shown = name if " " in name else f"`{name}`"
        notebook.screen.text("stderr", f"{shown} stayed on node {outcome.node}: {why}\n")
    return found


def _bind_names(
    found: Mapping[str, Any],
    names: CellNames,
    outcomes: Sequence[Outcome],
    notebook: Notebook,
    *,
    single: bool,
) -> None:
    notebook.home.update(found)
    if single:
        for name in outcomes[0].deleted:
            notebook.home.pop(name, None)


def _value(outcome: Outcome, notebook: Notebook) -> Any:
    if outcome.value_shown is not None:
        notebook.screen.display(outcome.value_shown, {}, None, False)
        return None
    return None if outcome.value is None else unpack(outcome.value, notebook.home)


def plain_error(error: ComputeMeshError) -> list[str]:
    """Return how a notebook shows one of our errors: the message, without our frames."""
    return [f"{type(error).__name__}: {error}"]
