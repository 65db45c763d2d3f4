"""The agent's commands: `mesh join`, and what its owner says.

Imports only click at the top: ``mesh --help`` loads this module.
"""

from __future__ import annotations

from pathlib import Path

import click

from .owner_commands import leave, pause, policy, resume, service, status


@click.group()
def commands() -> None:
    """The agent's commands."""


for owners in (pause, resume, leave, status, policy, service):
    commands.add_command(owners)


@commands.command()
@click.argument("host", required=False)
@click.option("--token", default="", help="ID.SECRET from `mesh token create --role node`; needed once.")
@click.option("--ca", default="", help="sha256:… of the mesh's CA, from the join command; needed once.")
@click.option("--tailscale", is_flag=True, help="Find the driver among Tailscale's peers (tag:mesh-driver).")
@click.option("--name", default="", help="Name of this node.  [default: the host's name]")
@click.option(
    "--dedicated/--not-dedicated", default=None, help="Nobody works at this machine: lend it always.  [default: not]"
)
@click.option("--threads", type=click.IntRange(min=1), help="Tasks at once.  [default: as many as the share fills]")
@click.option("--cpu", default="", help="Share of the machine's CPU to lend, such as 50%.  [default: all]")
@click.option("--memory", default="", help="Memory to lend, such as 8GB or 50%.  [default: 75%]")
@click.option("--site", default="", help="Where the machine stands, such as london/floor2.")
@click.option("--pool", "pools", multiple=True, help="Pool that this node is in; may be repeated.")
@click.option("--service", is_flag=True, help="Plain logs instead of the status line.")
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of certificates and logs.  [default: $COMPUTEMESH_HOME, else the platform's config folder]",
)
def join(
    host: str | None,
    token: str,
    ca: str,
    tailscale: bool,
    name: str,
    dedicated: bool | None,
    threads: int | None,
    cpu: str,
    memory: str,
    site: str,
    pools: tuple[str, ...],
    service: bool,
    home: Path | None,
) -> None:
    """Lend this machine to the mesh at HOST[:PORT], until stopped. Without HOST the driver is looked for nearby.

    The first time needs the join command's --token and --ca; after that `mesh join` alone is enough: what you said of
    --cpu, --threads, --memory, --site, --pool and --dedicated is kept until you say otherwise.
    """
    from .joining import Asked, run_agent

    asked = Asked(host or "", token, ca, name, dedicated, threads, cpu, memory, site, pools, service, tailscale)
    run_agent(asked, home)
