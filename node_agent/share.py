"""How much of the machine is lent: what ``--cpu``, ``--threads`` and ``--memory`` mean together."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from computemesh.errors import BadConfiguration
from computemesh.requirement import requirement_from

_PERCENT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%\s*$")


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a machine's cores, worked on by a number of threads.

    With the share *s* of *C* cores and *n* threads, all threads together get at most *s·C* cores, so each runs at
    min(1, s·C/n) of a core's speed. The node then says it has *n* cores of that speed: its total and the speed of one
    task on it are both right.
    """

    cores: int
    """Cores of the machine."""
    share: float
    """Part of their speed that is lent, above 0 up to 1."""
    threads: int

    @property
    def lent(self) -> float:
        """Cores that our processes may use together."""
        return self.share * self.cores

    @property
    def thread_speed(self) -> float:
        """Speed of one of `threads` busy threads, relative to a whole core."""
        return min(1.0, self.lent / self.threads)

    @property
    def paced(self) -> bool:
        """Whether our processes must be held back for it."""
        return self.share < 1.0


def share_of(cores: int, cpu: str, threads: int | None) -> Share:
    """Read ``--cpu`` such as ``25%`` (empty: all of it) and ``--threads`` (None: as many as the share fills).

    Raises:
        BadConfiguration: a value makes no sense.
    """
    share = 1.0
    if cpu:
        match = _PERCENT.match(cpu)
        share = float(match[1]) / 100 if match else 0.0
        if not 0 < share <= 1:
            raise BadConfiguration(f"--cpu {cpu!r} is not usable: give a share of the machine from 1% to 100%")
    if threads is None:
        threads = max(1, math.ceil(share * cores))
    if threads < 1:
        raise BadConfiguration(f"--threads {threads} is not usable: give 1 or more")
    return Share(cores, share, threads)


def memory_of(total: int, memory: str) -> int:
    """Read ``--memory`` such as ``8GB`` or ``50%``; empty lends three quarters of the machine's.

    Raises:
        BadConfiguration: the value makes no sense, or the machine has less.
    """
    if not memory:
        return total * 3 // 4
    match = _PERCENT.match(memory)
    try:
        lent = int(total * float(match[1]) / 100) if match else requirement_from({"ram": memory}).ram
    except ValueError:
        raise BadConfiguration(f"--memory {memory!r} is not usable: give a size such as 8GB, or 50%") from None
    if not 0 < lent <= total:
        raise BadConfiguration(f"--memory {memory!r} is not usable: this machine has {total / 1e9:.1f} GB")
    return lent
