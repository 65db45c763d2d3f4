"""``%%mesh``: runs a cell on the mesh as though it had run here. Also ``mesh.run``, the same for a string of code."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from computemesh import config
from computemesh.errors import BadRequirement, CannotShip, NoMesh

from .arguments import Line, help_text, parse_line
from .cell_job import CellRun
from .cell_names import CellNames, cell_names, target_names
from .cell_run import Cell
from .cell_source import BadCell, CellSource, CellSyntaxError, compiled
from .cell_tasks import Item, Options
from .connection import Mesh, current
from .job_handle import MeshJob
from .mutations import changed_in_place, warning_text
from .output_router import topic_of
from .pinned_screen import screen_behind
from .refusals import check_names, check_plain, with_culprit
from .settling import Notebook, settled
from .ship_names import pack_items, pack_names
from .ship_once import Shipment
from .shipping import Packed
from .uploads import uploads_for, with_files
from .where_expression import matching


def run_text(line: str, raw: str, source: CellSource, notebook: Notebook) -> Any:
    """Run a cell on the mesh, bind what it binds, and return the value of its last expression.

    With ``--no-wait`` return the job's handle at once.

    Raises:
        BadCell, BadRequirement, CannotShip: it cannot run as it is; nothing has run.
        Exception: what the cell raised, with the remote traceback; `MeshError` when several runs did.
    """
    said = parse_line(line)
    if said.help:
        notebook.screen.text("stdout", help_text())
        return None
    if not raw.strip():
        raise BadCell("%%mesh: the cell is empty; write the code below this line. `%%mesh --help` lists the options")
    names = _checked_names(said, raw, source, notebook)
    with notebook.with_locals():
        items = _items(said, notebook)
        if items is not None and not items:
            return settled([], names, said, notebook, {})
        shared, packed = _packed(said, names, compiled(source), items, notebook)
    mesh = current()
    behind = screen_behind()
    screen = behind if said.no_wait else notebook.screen
    cell = Cell(
        source=source,
        names=names,
        run=uuid.uuid4().hex[:12],
        topic=topic_of(mesh.client),
        target=said.target,
        timeout=said.timeout,
        keep=said.keep,
        modules=_installed_modules(names.reads | shared.needs, notebook.home),
    )
    options = _options(said, mesh)
    shared, packed = _shipped(mesh, said, shared, packed)
    runs = [Item(worker=worker) for worker in _each(mesh, options)] if said.each else packed
    running = CellRun(mesh, cell, shared, runs, options, screen, notebook.title_of)
    job = MeshJob(
        running,
        lambda found: settled(found, names, said, notebook, running.kept, job.names),
        line.strip() or raw.strip().splitlines()[0],
    )
    if notebook.interactive:
        notebook.home["_mesh"] = job
    if not said.no_wait:
        return job.run_here()
    behind.renewed = job.renew
    job.run_behind(lambda bundle, identity: behind.display(bundle, {}, identity, True))
    if said.output:
        notebook.home[said.output] = job
        return None
    return job


def run(source: str, options: str = "") -> Any:
    """Run code on the mesh as `%%mesh` runs a cell, and return the value of its last expression.

    Names are read from and bound in the notebook, or the calling module. Inside a function its local variables are
    read too; what the code binds is then not bound anywhere, but is in ``_mesh.names`` in a notebook. `options` is
    what would stand on the line after ``%%mesh``: ``mesh.run("simulate(seed)", "for seed in range(8) --retries 2")``.

    Raises:
        BadRequirement: the code or the options cannot be used as they are.
        CannotShip: a variable cannot travel.
        Exception: what the code raised; `MeshError` when several runs did.
    """
    import textwrap

    from .screens import screen_here

    frame = sys._getframe(1)
    home = frame.f_globals
    inside = None if frame.f_locals is home else dict(frame.f_locals)
    number = uuid.uuid4().hex[:6]
    text = textwrap.dedent(source)
    cell = CellSource(text, f"<mesh.run {number}>", text, first_line=1)
    cell.remember()
    notebook = Notebook(home, screen_here(), str, inside, home is _notebook_home())
    try:
        return run_text(options, text, cell, notebook)
    except BadCell as error:
        raise BadRequirement(str(error)) from None


def _notebook_home() -> dict[str, Any] | None:
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    home: dict[str, Any] | None = shell.user_ns if shell is not None else None
    return home


# ---------------------------------------------------------------- in


def _checked_names(said: Line, raw: str, source: CellSource, notebook: Notebook) -> CellNames:
    """Return what goes in and comes back, after all that can be refused or warned about from the text alone."""
    try:
        compiled(source)
    except SyntaxError as error:
        raise CellSyntaxError(error, notebook.title_of(source.filename)) from None
    names = cell_names(source.text, said.target)
    known = {**notebook.home, **(notebook.local or {})}
    check_plain(raw, source.text, frozenset(known) | names.binds)
    if said.ship is not None:
        for name in said.ship:
            if name not in known:
                raise BadCell(f"%%mesh --ship {name}: the notebook has no `{name}`")
        names = replace(names, reads=frozenset(said.ship))
    loop_names = frozenset(target_names(said.target)) if said.target else frozenset()
    sent = {name: known[name] for name in names.reads - loop_names if name in known}
    changed = changed_in_place(source.text, sent, names.binds | loop_names | frozenset(said.returns or ()))
    if changed:
        notebook.screen.text("stderr", warning_text(changed))
    if said.returns is not None:
        names = replace(names, binds=frozenset(said.returns), star=False)
    return replace(names, reads=names.reads - loop_names)


def _items(said: Line, notebook: Notebook) -> list[Any] | None:
    if not said.target:
        return None
    found = eval(said.items, notebook.home)  # noqa: S307 - the user's own expression, in the notebook
    try:
        return list(found)
    except TypeError:
        raise BadCell(f"%%mesh for {said.target} in {said.items}: {type(found).__name__} cannot be gone over") from None


def _packed(
    said: Line, names: CellNames, code: CodeType, items: Sequence[Any] | None, notebook: Notebook
) -> tuple[Packed, list[Item]]:
    """Pack what goes in: the names that all runs share, and each run's item."""
    limit = config.size("notebook.ship-limit") if said.ship_limit is None else said.ship_limit
    check_names(names.reads, notebook.home)
    try:
        shared = pack_names(names.reads, notebook.home, limit, code)
    except CannotShip as error:
        raise with_culprit(error, notebook.home) from None
    if items is None:
        return shared, [Item()]
    return shared, [Item(packed) for packed in pack_items(items, notebook.home)]


def _shipped(mesh: Mesh, said: Line, shared: Packed, items: list[Item]) -> tuple[Packed, list[Item]]:
    """Put futures in place of what is large, and files beside the names: each is sent to a node once."""
    shipment = Shipment(mesh)
    shared = with_files(shared, uploads_for(mesh, said.files, limit=said.ship_limit))
    return shipment.shipped(shared), [
        replace(item, packed=shipment.shipped(item.packed)) if item.packed else item for item in items
    ]


def _installed_modules(names: Iterable[str], home: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the names of modules that every machine has or may have installed; the user's own travel by value."""
    found = []
    for name in sorted(names):
        module = home.get(name)
        if isinstance(module, ModuleType):
            file = str(getattr(module, "__file__", None) or "")
            root = module.__name__.partition(".")[0]
            if root in sys.stdlib_module_names or {"site-packages", "dist-packages"} & set(Path(file).parts):
                found.append((name, module.__name__))
    return tuple(found)


def _each(mesh: Mesh, options: Options) -> list[str]:
    workers = [row.worker for row in mesh.nodes() if row.available and row.worker]
    if options.workers:
        workers = [worker for worker in workers if worker in options.workers]
    if not workers:
        raise NoMesh("No node takes tasks at the moment: `mesh.nodes()` says why")
    return workers


def _options(said: Line, mesh: Mesh) -> Options:
    after = config.seconds("notebook.progress-after") if said.progress_after is None else said.progress_after
    return Options(
        requirement=said.requirement,
        retries=said.retries,
        timeout=said.timeout,
        # A handle shows progress from the beginning.
        progress_after=0.0 if said.no_wait else after,
        workers=tuple(matching(said.where, mesh.nodes())) if said.where else (),
        cap_lines=int(config.number("notebook.output-cap")) if said.cap is None else said.cap,
        cap_characters=config.size("notebook.output-cap-size") if said.cap is None else sys.maxsize,
        handle=(said.output or "job") if said.no_wait else "_mesh",
    )
