"""From the words of a `mesh join` to a running agent."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from computemesh.certificates import Role
from computemesh.config import seconds
from computemesh.driver_client import enrol, host_and_port, moved
from computemesh.errors import BadConfiguration, NoMesh, Refused
from computemesh.identity import NAME, NAME_RULE, Identity, home_folder, load_identity, write_private
from computemesh.locks import HeldElsewhere, held
from computemesh.requirement import requirement_from

from .agent import Agent, AgentPlan
from .benchmark import core_speed
from .discovery import announced_drivers, first_that_answers, tailscale_drivers, tailscale_status
from .facts import cpu_model, node_facts
from .gpu import find_gpus
from .log_files import log_to
from .share import memory_of, share_of
from .status_line import StatusLine

logger = logging.getLogger("computemesh.node_agent")

KEPT = ("dedicated", "threads", "cpu", "memory", "site", "pools")
"""What an owner says once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was written on the command line; empty or None where nothing was."""

    host: str
    token: str
    ca: str
    name: str
    dedicated: bool | None
    threads: int | None
    cpu: str
    memory: str
    site: str
    pools: tuple[str, ...]
    service: bool
    tailscale: bool = False


def run_agent(asked: Asked, home: Path | None) -> None:
    """Run the agent that `asked` describes until it is stopped.

    Raises:
        ComputeMeshError: it cannot run, with the reason and what to do.
    """
    folder = home_folder(home)
    check_name(asked.name)
    try:
        with held(folder / "node" / "agent.lock"):
            _run(asked, folder)
    except HeldElsewhere as other:
        raise BadConfiguration(
            f"Another agent (process {other.holder or '?'}) runs with the home {folder}: stop it, or give this one "
            "its own --home"
        ) from None


def kept_wishes(asked: Asked, file: Path) -> Asked:
    """Return `asked` with what was said at an earlier join where nothing is said now.

    Raises:
        BadConfiguration: the file that keeps it cannot be read.
    """
    try:
        earlier = json.loads(file.read_text("utf-8"))
        found = {name: earlier[name] for name in KEPT if name in earlier and not _said(getattr(asked, name))}
    except FileNotFoundError:
        return asked
    except (OSError, ValueError, TypeError) as error:
        raise BadConfiguration(
            f"{file}, which keeps what you lend, cannot be read ({error}): remove it and say it again"
        ) from None
    if "pools" in found:
        found["pools"] = tuple(found["pools"])
    return replace(asked, **found)


def _said(value: object) -> bool:
    return value not in (None, "", ())


def keep_wishes(asked: Asked, file: Path) -> None:
    """Keep what the owner said of lending for the next join."""
    said = {name: getattr(asked, name) for name in KEPT if _said(getattr(asked, name))}
    write_private(file, json.dumps(said).encode())


def _run(given: Asked, folder: Path) -> None:
    import psutil

    asked = kept_wishes(given, folder / "node" / "lending.json")

    share = share_of(psutil.cpu_count() or 1, asked.cpu, asked.threads)
    memory = memory_of(psutil.virtual_memory().total, asked.memory)
    pools = tuple(requirement_from({"pool": pool}).pool for pool in asked.pools)
    log_to(folder / "logs", on_stderr=asked.service)
    identity = identity_for(asked, folder / "node")
    keep_wishes(asked, folder / "node" / "lending.json")
    speed = core_speed(folder / "node" / "benchmark.json", cpu_model())
    gpus = find_gpus()
    dedicated = bool(asked.dedicated)
    facts = node_facts(identity.name, share, memory, speed, gpus, asked.site, pools, dedicated)
    plan = AgentPlan(
        home=folder,
        identity=identity,
        facts=facts,
        share=share,
        memory=memory,
        total_memory=psutil.virtual_memory().total,
        dedicated=dedicated,
        sample_seconds=seconds("agent.sample"),
        idle_after=seconds("agent.idle-after"),
    )
    logger.info("node %s: %d threads at %.2f of %s", identity.name, share.threads, share.thread_speed, facts.cpu_model)

    async def serve() -> None:
        if asked.service:
            await Agent(plan, gpus, Random(), lambda _view: None).run()
            return
        with StatusLine() as status:
            await Agent(plan, gpus, Random(), status.show).run()

    asyncio.run(serve())


def identity_for(asked: Asked, folder: Path) -> Identity:
    """Return the node's identity: the stored one, else a new one for the token.

    Raises:
        NoMesh: there is none and no token to get one.
        BadConfiguration: a token is given though this home is already enrolled as another node.
        DriverError: the driver cannot be reached or says no.
    """
    try:
        stored = load_identity(folder)
    except NoMesh:
        stored = None
    if asked.token:
        if not asked.ca:
            raise BadConfiguration("--token needs --ca sha256:… too: copy the join command that `mesh up` printed")
        name = asked.name or default_name(socket.gethostname())
        try:
            return first_that_answers(
                _candidates(asked),
                lambda address: enrol(address, asked.ca, asked.token, folder, name, (Role.NODE,)),
                "is marked among Tailscale's peers" if asked.tailscale else "announces itself on this network",
            )
        except Refused as error:
            if stored is None or (asked.host and host_and_port(stored.driver) != host_and_port(asked.host)):
                raise
            # The join command was used a second time, as people do: its token is spent, the machine is in the mesh.
            logger.warning("%s; this machine is enrolled as %s already and goes on as that", error, stored.name)
            return stored
    if stored is None:
        raise NoMesh(
            f"This machine is in no mesh yet ({folder} is empty): `mesh join HOST --token ID.SECRET --ca sha256:…`; "
            "your administrator makes the token with `mesh token create --role node`"
        )
    if asked.name and asked.name != stored.name:
        raise BadConfiguration(
            f"--name {asked.name!r}: this machine is already enrolled as {stored.name!r}; to rename it, join anew "
            "with a new token"
        )
    return moved(stored, asked.host) if asked.host else stored


def _candidates(asked: Asked) -> list[str]:
    """Return where the driver may be: as said, else as it is found."""
    if asked.host:
        return [asked.host]
    if asked.tailscale:
        return tailscale_drivers(tailscale_status())
    logger.info("looking for the driver on this network")
    return announced_drivers(asked.ca)


def check_name(name: str) -> None:
    """Check a node's name as a person wrote it; empty is allowed.

    Raises:
        BadConfiguration: it is no name.
    """
    if name and not NAME.fullmatch(name):
        raise BadConfiguration(f"--name {name!r} is not usable: {NAME_RULE}, such as laptop-7")


def default_name(hostname: str) -> str:
    """Return a node's name from the host's."""
    cleaned = re.sub(r"[^a-z0-9-]+", "-", hostname.split(".")[0].lower()).strip("-")
    return cleaned[:63] or "node"
