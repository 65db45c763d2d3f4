"""The commands of the driver and of those who ask it: `up`, `login`, `nodes`, `events`, `why`, `drain` and others.

Imports only click at the top: ``mesh --help`` loads this module.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from computemesh.driver_client import DriverClient

    from .driver import Driver


@click.group()
def commands() -> None:
    """The driver's commands."""


def with_home(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--home``."""
    return click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of certificates and logs.  [default: $COMPUTEMESH_HOME, else the platform's config folder]",
    )(command)


def with_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")(command)


def _ask(home: Path | None) -> DriverClient:
    from computemesh.driver_client import DriverClient
    from computemesh.identity import find_identity, home_folder

    return DriverClient(find_identity(home_folder(home)))


def _administer(home: Path | None) -> DriverClient:
    from computemesh.driver_client import DriverClient
    from computemesh.identity import find_identity, home_folder, load_identity

    folder = home_folder(home)
    admin = folder / "admin"
    return DriverClient(load_identity(admin) if (admin / "identity.json").exists() else find_identity(folder))


# ---------------------------------------------------------------- the driver


@commands.command()
@click.option("--host", default=None, help="Address to listen on.  [default: as at the last start, else all]")
@click.option("--port", type=int, default=None, help="Port of the driver.  [default: as at the last start, else 8790]")
@click.option(
    "--scheduler-port", type=int, default=None, help="Port of the Dask scheduler.  [default: likewise, else 8791]"
)
@with_home
def up(host: str | None, port: int | None, scheduler_port: int | None, home: Path | None) -> None:
    """Start the driver: the mesh's control plane and its Dask scheduler.

    The first start makes the mesh's CA and an administrator's certificate. Everything that listens speaks TLS only.
    Prints one command that joins a machine. Ctrl-C stops the driver; nodes come back by themselves when it is up again.
    """
    from computemesh import config
    from computemesh.identity import home_folder

    from .serving import Place, kept_place, run

    folder = home_folder(home)
    usual = kept_place(folder) or Place(
        folder,
        config.value("driver.host"),
        int(config.number("driver.port")),
        int(config.number("driver.scheduler-port")),
    )
    place = Place(
        folder,
        usual.host if host is None else host,
        usual.port if port is None else port,
        usual.scheduler_port if scheduler_port is None else scheduler_port,
    )
    run(place, lambda driver: _print_welcome(driver, place.home))


def _print_welcome(driver: Driver, home: Path) -> None:
    from computemesh.certificates import Role

    token = driver.rights.create_token(Role.NODE, _lifetime(None), 1, "", (), ())["token"]
    address, pin = driver.settings.identity.driver, driver.settings.rights.authority.pin
    known = len(driver.books.nodes)
    click.secho("The mesh is up", bold=True, nl=False)
    click.echo(f" at {address}, {known} node{'s' * (known != 1)} known. Files and logs: {home}\n")
    click.echo("Join a machine with (one use, within the hour; more: mesh token create):\n")
    click.secho(f"  mesh join {address} --token {token} --ca {pin}\n", fg="green")
    sys.stdout.flush()


def _lifetime(given: str | None) -> float:
    from dask.utils import parse_timedelta

    from computemesh import config
    from computemesh.errors import BadConfiguration

    if given is None:
        return config.seconds("driver.token-lifetime")
    try:
        return float(parse_timedelta(given))
    except (TypeError, ValueError, KeyError):
        raise BadConfiguration(
            f"--expires {given!r} is no duration: give one such as '30 minutes' or '2 days'"
        ) from None


# ---------------------------------------------------------------- people


@commands.command()
@click.argument("address", metavar="HOST[:PORT]")
@click.option("--token", required=True, help="ID.SECRET, from `mesh token create --role user`.")
@click.option("--ca", required=True, help="sha256:… of the mesh's CA, from the same command.")
@with_home
def login(address: str, token: str, ca: str, home: Path | None) -> None:
    """Log in to a mesh, to use it from notebooks and commands on this machine."""
    from computemesh.certificates import Role
    from computemesh.driver_client import enrol
    from computemesh.identity import home_folder

    identity = enrol(address, ca, token, home_folder(home) / "user", roles=(Role.USER, Role.ADMIN))
    click.echo(f"Logged in as {identity.name} ({identity.role}) to {identity.driver}.")
    click.echo("In a notebook: %load_ext computemesh, then %%mesh in a cell.")


@commands.group(name="token")
def token_group() -> None:
    """Make, list and revoke one-time tokens for nodes and people."""


@token_group.command(name="create")
@click.option("--role", type=click.Choice(["node", "user", "admin"]), default="node", show_default=True)
@click.option("--name", default="", help="Name of the user or node.  [default for a user: user-ID]")
@click.option("--expires", default=None, help="Life of the token, such as '2 days'.  [default: 1 hour]")
@click.option("--uses", type=click.IntRange(1), default=1, show_default=True, help="How often it can be used.")
@click.option("--from", "networks", multiple=True, metavar="NETWORK", help="Allow only this network; repeatable.")
@click.option("--pool", "pools", multiple=True, help="Put nodes that join with it into this pool; repeatable.")
@with_json
@with_home
def create_token(
    role: str,
    name: str,
    expires: str | None,
    uses: int,
    networks: tuple[str, ...],
    pools: tuple[str, ...],
    as_json: bool,
    home: Path | None,
) -> None:
    """Make a token and print the command that uses it. The secret is shown once and stored nowhere."""
    import ipaddress

    from computemesh.errors import BadConfiguration

    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise BadConfiguration(f"--from {network!r} is no network: give one such as 10.0.0.0/8") from None
    client = _administer(home)
    body = {"role": role, "name": name, "lifetime": _lifetime(expires), "uses": uses}
    made = client.post("/v1/tokens", {**body, "networks": list(networks), "pools": list(pools)})
    pin = client.status().mesh
    verb = "join" if role == "node" else "login"
    command = f"mesh {verb} {made['address']} --token {made['token']} --ca {pin}"
    if as_json:
        click.echo(json.dumps({**made, "command": command, "ca": pin}))
    else:
        click.echo(command)


@token_group.command(name="list")
@with_json
@with_home
def list_tokens(as_json: bool, home: Path | None) -> None:
    """Show the tokens that are known; never their secrets."""
    tokens = _administer(home).get("/v1/tokens")
    if as_json:
        click.echo(json.dumps(tokens))
        return
    from .tables import show_tokens

    show_tokens(tokens)


@token_group.command(name="revoke")
@click.argument("identifier", metavar="ID")
@with_home
def revoke_token(identifier: str, home: Path | None) -> None:
    """Make a token worthless; ID is its part before the dot."""
    _administer(home).delete(f"/v1/tokens/{identifier.partition('.')[0]}")
    click.echo(f"Token {identifier.partition('.')[0]} is revoked.")


@commands.command()
@click.argument("name", metavar="NODE|USER")
@with_home
def revoke(name: str, home: Path | None) -> None:
    """Turn a node's or person's certificates away at once, and forget the node."""
    answer = _administer(home).post("/v1/revoke", {"name": name})
    count = answer["certificates"]
    click.echo(f"{name} is revoked: {count} certificate{'s no longer count' if count > 1 else ' no longer counts'}.")


# ---------------------------------------------------------------- questions


@commands.command()
@with_json
@with_home
def nodes(as_json: bool, home: Path | None) -> None:
    """Show all nodes: health, state, load, score, and why one gets no work."""
    found = _ask(home).nodes()
    if as_json:
        click.echo(json.dumps(found))
        return
    from .tables import show_nodes

    show_nodes(found)


@commands.command()
@click.option("--days", type=click.FloatRange(0), default=30, show_default=True, help="How far back.")
@click.option("--by", type=click.Choice(["node", "pool", "site", "day"]), default="node", help="[default: node]")
@with_json
@with_home
def savings(days: float, by: str, as_json: bool, home: Path | None) -> None:
    """Show what was harvested: hours lent, cores and GPUs used, and what that would have cost elsewhere."""
    found = _ask(home).get(f"/v1/savings?days={days}&by={by}")
    if as_json:
        click.echo(json.dumps(found))
        return
    from .tables import show_savings

    show_savings(found)


@commands.command()
@with_json
@with_home
def pools(as_json: bool, home: Path | None) -> None:
    """Show all pools: their rules, how many nodes they have and lend now, and what those have."""
    found = _ask(home).get("/v1/pools")
    if as_json:
        click.echo(json.dumps(found))
        return
    from .tables import show_pools

    show_pools(found)


@commands.command()
@click.argument("name")
@with_json
@with_home
def node(name: str, as_json: bool, home: Path | None) -> None:
    """Show one node whole: what it is, how it is, its score's parts and its last events."""
    found = _ask(home).get(f"/v1/nodes/{name}")
    if as_json:
        click.echo(json.dumps(found))
        return
    from .tables import show_node

    show_node(found)


@commands.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with each new event.")
@click.option("-n", "--count", type=click.IntRange(0, 10_000), default=100, show_default=True)
@click.option("--node", default="", help="Only events of this node.")
@with_json
@with_home
def events(follow: bool, count: int, node: str, as_json: bool, home: Path | None) -> None:
    """Show what happened in the mesh, oldest first."""
    from .tables import event_line

    client = _ask(home)
    query = f"/v1/events?count={count}&node={node}"
    found = client.follow(query + "&follow=1") if follow else client.get(query)
    try:
        for event in found:
            click.echo(json.dumps(event) if as_json else event_line(event))
    except KeyboardInterrupt:
        return


@commands.command()
@click.argument("key")
@with_json
@with_home
def why(key: str, as_json: bool, home: Path | None) -> None:
    """Explain where the task KEY runs, or why it waits: eligible nodes, score parts, and why others are excluded."""
    answer = _ask(home).why(key)
    if as_json:
        click.echo(json.dumps(answer))
        return
    from .tables import show_why

    show_why(answer)


# ---------------------------------------------------------------- what an administrator does with a node


@commands.command()
@click.argument("node")
@with_home
def cordon(node: str, home: Path | None) -> None:
    """Give NODE no more tasks; what runs there ends there."""
    _administer(home).post(f"/v1/nodes/{node}/cordon")
    click.echo(f"{node} is cordoned.")


@commands.command()
@click.argument("node")
@with_home
def uncordon(node: str, home: Path | None) -> None:
    """Give NODE tasks again."""
    _administer(home).post(f"/v1/nodes/{node}/uncordon")
    click.echo(f"{node} is uncordoned.")


@commands.command()
@click.argument("node")
@click.option("--timeout", type=click.FloatRange(1, 3600), default=600, show_default=True, help="Seconds to wait.")
@with_home
def drain(node: str, timeout: float, home: Path | None) -> None:
    """Empty NODE: no more tasks, queued ones go elsewhere, results held there are copied. Waits until it is empty."""
    from computemesh.errors import Refused

    _ask(home).get(f"/v1/nodes/{node}")  # an unknown name is said before anything else is
    click.echo(f"Draining {node}: running tasks end there, queued ones move …")
    answer = _administer(home).post(f"/v1/nodes/{node}/drain", {"timeout": timeout}, timeout=timeout + 10)
    if answer.get("left"):
        raise Refused(
            f"{node} runs nothing, but {answer['left']} results are there alone since no other node could take them: "
            "let another node join or free memory, then drain again; leaving now means computing them again"
        )
    click.echo(f"{node} is empty and cordoned; `mesh uncordon {node}` gives it work again.")
