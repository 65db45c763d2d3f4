"""Holds our processes to a share of the machine's CPU.

By a cgroup's quota where one can be made. Else by turns: within each tenth of a second all of them run for their part
and are stopped for the rest. That is coarser, and a stopped worker answers late, but it needs no rights.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from .processes import LINUX, tree_of
from .share import Share

logger = logging.getLogger("computemesh.node_agent")

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_SECONDS = 0.05
"""Of the quota: short enough that a held-back worker still answers its scheduler promptly."""
TURN_SECONDS = 0.1
LOOK_TURNS = 5
"""Every how many turns the tree is looked at for new processes."""


class QuotaGroup:
    """A cgroup with a CPU quota, version 2 or 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, process: int) -> None:
        """Put a process, and all that it will start, into the group."""
        (self.folder / "cgroup.procs").write_text(str(process), "ascii")

    def remove(self) -> None:
        """Remove the group; its processes must be gone."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def make_quota_group(
    name: str, lent: float, root: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")
) -> QuotaGroup | None:
    """Return a new group that may use `lent` cores together; None where this process may not make one."""
    if not LINUX:
        return None
    period = int(PERIOD_SECONDS * 1e6)
    quota = max(1000, round(lent * period))
    for parent, version in _parents(root, own):
        _remove_stale(parent)
        folder = parent / name
        try:
            folder.mkdir(exist_ok=True)
            if version == 2:
                (folder / "cpu.max").write_text(f"{quota} {period}", "ascii")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(period), "ascii")
                (folder / "cpu.cfs_quota_us").write_text(str(quota), "ascii")
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return QuotaGroup(folder)
    return None


def group_name(process: int) -> str:
    """Return the name of the group of the agent with this process id."""
    return f"computemesh-{process}"


def _remove_stale(parent: Path) -> None:
    """Remove the groups of agents that were killed."""
    for folder in parent.glob("computemesh-*"):
        agent = folder.name.rpartition("-")[2]
        if agent.isdigit() and not Path("/proc", agent).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _parents(root: Path, own: Path) -> Iterable[tuple[Path, int]]:
    """Yield the groups that this process is in and that can hold a CPU quota, with their version."""
    try:
        lines = own.read_text("ascii", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            parent = root / path.lstrip("/")
            with contextlib.suppress(OSError):
                if "cpu" in (parent / "cgroup.subtree_control").read_text("ascii").split():
                    yield parent, 2
        elif "cpu" in controllers.split(","):
            for mounted in (controllers, "cpu"):
                parent = root / mounted / path.lstrip("/")
                if (parent / "cpu.cfs_quota_us").exists() or path == "/":
                    yield parent, 1
                    break


async def take_turns(
    root: int,
    share: Share,
    tree: Callable[[int], Iterable[int]] = tree_of,
    send: Callable[[int, int], None] = os.kill,
) -> None:
    """Let the tree under `root` run and rest in turns until cancelled; it runs when this returns.

    With all its threads busy the tree then gets the lent share; with fewer it gets less.
    """
    if sys.platform == "win32":
        logger.warning("--cpu cannot hold processes back on this platform; fewer threads are its only effect")
        return
    part = share.thread_speed
    members: list[int] = []
    turn = 0
    try:
        while True:
            if turn % LOOK_TURNS == 0:
                members = list(tree(root))
            turn += 1
            await asyncio.sleep(TURN_SECONDS * part)
            _signal(members, signal.SIGSTOP, send)
            await asyncio.sleep(TURN_SECONDS * (1 - part))
            _signal(members, signal.SIGCONT, send)
    finally:
        _signal([*members, *tree(root)], signal.SIGCONT, send)


def _signal(members: Iterable[int], number: int, send: Callable[[int, int], None]) -> None:
    for member in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(member, number)
