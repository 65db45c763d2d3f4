"""What the owner of a machine says at it: `mesh pause`, `resume`, `leave`, `status` and `policy`.

They speak with the agent of this machine alone, and work while the driver cannot be reached. Imports only click at the
top: ``mesh --help`` loads this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def with_home(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--home``."""
    return click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        help="Home of the agent.  [default: $COMPUTEMESH_HOME, else the platform's config folder]",
    )(command)


def _ask(home: Path | None, what: str, **about: Any) -> dict[str, Any]:
    from computemesh.identity import home_folder

    from .control import ask_agent

    return ask_agent(home_folder(home) / "node", what, **about)


@click.command()
@click.argument("duration", required=False)
@with_home
def pause(duration: str | None, home: Path | None) -> None:
    """Take this machine back at once: lend nothing for DURATION (such as 2h), or until `mesh resume`.

    What runs is given to other machines. Nobody but you can end a pause, and it outlasts a restart.
    """
    seconds = None
    if duration is not None:
        from computemesh.policy import read_value

        seconds = read_value("idle", duration)
        if seconds <= 0:
            raise click.BadParameter("give a duration above 0, such as 2h", param_hint="DURATION")
    click.echo(_ask(home, "pause", seconds=seconds)["sentence"])


@click.command()
@with_home
def resume(home: Path | None) -> None:
    """End a pause of this machine."""
    said = _ask(home, "resume")
    click.echo(said["sentence"] if said["was_paused"] else f"It was not paused. {said['sentence']}")


@click.command()
@click.option("--forget", is_flag=True, help="Forget the mesh too: joining again needs a new token.")
@with_home
def leave(forget: bool, home: Path | None) -> None:
    """Take this machine out of the mesh: give all back, say goodbye, and end the agent."""
    import time

    from computemesh.errors import ComputeMeshError, NoAgent
    from computemesh.identity import home_folder
    from computemesh.locks import HeldElsewhere, held

    folder = home_folder(home) / "node"
    try:
        said = _ask(home, "leave")
    except NoAgent:
        if not forget or not (folder / "identity.json").exists():
            raise
        said = {"name": "This machine"}
    deadline = time.monotonic() + 30
    while True:
        try:
            with held(folder / "agent.lock"):
                break
        except HeldElsewhere:
            if time.monotonic() > deadline:
                raise ComputeMeshError("The agent was told to end and has not done so for 30 s: see its log") from None
            time.sleep(0.05)
    if forget:
        import shutil

        shutil.rmtree(folder)
    click.echo(f"{said['name']} has left the mesh{' and forgotten it' if forget else ''}.")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")
@with_home
def status(as_json: bool, home: Path | None) -> None:
    """Say in a sentence what this machine's agent does."""
    said = _ask(home, "status")
    if as_json:
        click.echo(json.dumps(said))
        return
    known = "connected to" if said["connected"] else "looking for"
    tasks = "1 task" if said["tasks"] == 1 else f"{said['tasks']} tasks"
    click.echo(f"{said['name']}, {known} the driver at {said['driver']}, {tasks}. {said['sentence']}")
    if said["policy_error"]:
        click.secho(f"The policy file is wrong, and the last good one counts: {said['policy_error']}", fg="yellow")


@click.group()
def policy() -> None:
    """What this machine lends, and when: show, set, check and explain its owner's policy."""


@policy.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")
@with_home
def show(as_json: bool, home: Path | None) -> None:
    """Show each field, its value, and whose it is: built-in, default (administrator), owner or ceiling."""
    settings, file, wrong = _settings(home)
    if as_json:
        click.echo(json.dumps({name: {"value": value, "source": source} for name, (value, source) in settings.items()}))
        return
    from rich.console import Console
    from rich.table import Table

    from computemesh.policy import FIELDS

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("FIELD", "VALUE", "FROM", ""):
        table.add_column(column)
    for field in FIELDS:
        value, source = settings[field.name]
        table.add_row(field.name, value, source, field.about, style="" if source in ("owner", "ceiling") else "dim")
    Console(width=None).print(table)
    click.echo(f"\nYour own file: {file}")
    if wrong:
        click.secho(f"It is wrong, and the last good one counts: {wrong}", fg="yellow")


@policy.command(name="set")
@click.argument("field")
@click.argument("value", nargs=-1, required=True)
@with_home
def set_field(field: str, value: tuple[str, ...], home: Path | None) -> None:
    """Set FIELD of this machine's policy, such as `mesh policy set idle 10 min`; it counts within a second.

    \b
    mesh policy set battery 50%
    mesh policy set calendar "weekdays 18:00-08:00" weekends
    mesh policy set users ada,grace
    """
    from computemesh.policy_file import from_words

    _change(home, field, from_words(field, value))


@policy.command()
@click.argument("field")
@with_home
def unset(field: str, home: Path | None) -> None:
    """Let the administrator's default, or what is built in, count for FIELD again."""
    from computemesh.errors import BadConfiguration
    from computemesh.policy import BESIDE_CALENDAR, BY_NAME

    if field not in BY_NAME and field not in BESIDE_CALENDAR:
        raise BadConfiguration(f"There is no field {field!r}; there are {', '.join([*BY_NAME, *BESIDE_CALENDAR])}")
    _change(home, field, None)


@policy.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@with_home
def check(file: Path | None, home: Path | None) -> None:
    """Say whether a policy FILE can be used (this machine's own unless named), and which line is wrong if not."""
    from computemesh.errors import BadConfiguration
    from computemesh.policy_file import load, read_text

    chosen = file or _file(home)
    if file is not None and not file.exists():
        raise BadConfiguration(f"{file} does not exist")
    found = read_text(load(chosen), str(chosen))
    click.echo(f"{chosen} is good: {len(found)} field{'s' * (len(found) != 1)} set.")


@policy.command()
@with_home
def explain(home: Path | None) -> None:
    """Say in one sentence why this machine is or is not lent now, and when that changes."""
    click.echo(_ask(home, "status")["sentence"])


# ---------------------------------------------------------------- the service


@click.group()
def service() -> None:
    """Run the agent as a service: it starts with the machine (or at your logon) and stays in the background."""


def _with_system(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--system", is_flag=True, help="Of the machine rather than yours; needs root (systemd).")(
        command
    )


@service.command(name="install")
@_with_system
@with_home
def install_service(system: bool, home: Path | None) -> None:
    """Install and start the service. Join once before, by hand."""
    from computemesh.identity import home_folder

    from .service import install, this_service

    install(*this_service(home_folder(home), system=system))
    click.echo("Installed and started. `mesh status` says what it does, `mesh service uninstall` removes it.")


@service.command(name="uninstall")
@_with_system
@with_home
def uninstall_service(system: bool, home: Path | None) -> None:
    """Stop the service and remove every trace of it."""
    from computemesh.identity import home_folder

    from .service import this_service, uninstall

    _, manager = this_service(home_folder(home), system=system)
    click.echo("Removed." if uninstall(manager) else "There was no service.")


@service.command(name="status")
@_with_system
@with_home
def service_status(system: bool, home: Path | None) -> None:
    """Say whether the service is installed and runs."""
    from computemesh.identity import home_folder

    from .service import status as said
    from .service import this_service

    _, manager = this_service(home_folder(home), system=system)
    click.echo(said(manager))


def _file(home: Path | None) -> Path:
    from computemesh.identity import home_folder

    return home_folder(home) / "policy.toml"


def _settings(home: Path | None) -> tuple[dict[str, tuple[str, str]], Path, str]:
    """Return the fields in words, from the agent where one runs, else from the file alone."""
    from computemesh.errors import NoAgent
    from computemesh.policy import FIELDS, settled
    from computemesh.policy_file import load, read_text

    try:
        said = _ask(home, "policy")
    except NoAgent:
        file = _file(home)
        found = settled(read_text(load(file), str(file)), {}, {})
        shown = {each.name: (each.show(found[each.attribute].value), found[each.attribute].source) for each in FIELDS}
        return shown, file, ""
    return (
        {name: (value, source) for name, (value, source) in said["settings"].items()},
        Path(said["policy_file"]),
        said["policy_error"],
    )


def _change(home: Path | None, field: str, value: Any) -> None:
    from computemesh.errors import NoAgent
    from computemesh.policy_file import load, save, with_field

    file = _file(home)
    save(file, with_field(load(file), field, value))
    try:
        settings = _ask(home, "policy")["settings"]
    except NoAgent:
        click.echo(f"{file} is changed; it counts from the agent's next start.")
        return
    if field in settings:
        shown, source = settings[field]
        stricter = " The administrator's ceiling is stricter, and counts." if source == "ceiling" else ""
        click.echo(f"{field} is {shown} now.{stricter}")
    else:
        click.echo(f"{field} counts now.")
