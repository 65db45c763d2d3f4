"""The CPU time and memory of our own processes: the worker and everything below it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .processes import LINUX, ProcessTimes, times_of, tree_of


@dataclass(frozen=True, slots=True)
class Member:
    """One process of ours; memory in bytes."""

    pid: int
    times: ProcessTimes


class Accounting:
    """Adds up what our processes have used, whichever of them have ended meanwhile.

    A parent's own figures include the children that it has reaped, so the sum over the living loses nothing; between
    a child's end and its being reaped the sum may dip for a moment, so it counts only as far as it grows.
    """

    def __init__(
        self,
        own_time: Callable[[], float] = time.process_time,
        members: Callable[[int], list[Member]] | None = None,
    ) -> None:
        self._own_time = own_time
        self._members = members or members_of
        self._roots: dict[int, float] = {}
        self._ended = 0.0

    def follow(self, root: int) -> None:
        """Count the tree under `root` from now on, until it is gone."""
        self._roots[root] = 0.0

    def forget(self, root: int) -> None:
        """Keep what the tree under `root` has used, and look at it no more."""
        self._ended += self._roots.pop(root, 0.0)

    def look(self) -> tuple[float, list[Member]]:
        """Return the CPU seconds used by us so far, this process included, and who is there now."""
        everyone: list[Member] = []
        for root, most in self._roots.items():
            members = self._members(root)
            everyone.extend(members)
            self._roots[root] = max(most, sum(member.times.cpu for member in members))
        return self._own_time() + self._ended + sum(self._roots.values()), everyone


def members_of(root: int) -> list[Member]:
    """Return `root` and all below it that are alive."""
    found = ((pid, times_of(pid)) for pid in tree_of(root))
    return [Member(pid, times) for pid, times in found if times is not None]


def own_share(pid: int) -> int | None:
    """Return the memory of a process in bytes with shared pages counted in part (PSS); None when it cannot be known.

    Capsules share most of their pages with the process they were forked from, so adding up resident memory counts
    those once for each.
    """
    if LINUX:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    return None


def too_large(
    members: list[Member], limit: int, share_of: Callable[[int], int | None] = own_share
) -> tuple[Member, int] | None:
    """Return the process to end, and what all use, when our processes together use more than `limit` bytes.

    Resident memory is looked at first, since it costs nothing more; it is never less than the real sum.
    """
    if sum(member.times.memory for member in members) <= limit:
        return None
    real = {member.pid: share_of(member.pid) for member in members}
    sizes = {member.pid: real[member.pid] or member.times.memory for member in members}
    total = sum(sizes.values())
    if total <= limit:
        return None
    return max(members, key=lambda member: sizes[member.pid]), total
