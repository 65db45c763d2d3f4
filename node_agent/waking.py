"""Notices that the machine, or this process, has slept: connections are then not what they seem.

Linux counts suspended time in CLOCK_BOOTTIME and not in CLOCK_MONOTONIC, so their difference grows by a sleep. Where
there is no such clock, and for a process that was stopped, a timer of our own that comes late tells. The wall clock
counts for nothing: it may be set.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

LATE_SECONDS = 5.0
"""A look that comes later than that was not merely kept waiting by a busy machine."""
ASLEEP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """Both clocks in seconds; `boot` is None where there is none."""

    monotonic: float
    boot: float | None


def clocks() -> Clocks:
    """Read them."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return Clocks(time.monotonic(), time.clock_gettime(boot) if boot is not None else None)


def slept(before: Clocks, after: Clocks, period: float) -> float:
    """Return for how many seconds machine or process slept between two looks that should be `period` apart; 0: it did
    not."""
    late = after.monotonic - before.monotonic - period
    if before.boot is not None and after.boot is not None:
        asleep = (after.boot - before.boot) - (after.monotonic - before.monotonic)
        if asleep > ASLEEP_SECONDS:
            return asleep + max(0.0, late)
    return late if late > LATE_SECONDS else 0.0


class Wakefulness:
    """Looks again and again."""

    def __init__(self, period: float, read: Callable[[], Clocks] = clocks) -> None:
        self._period, self._read = period, read
        self._before = read()

    def look(self) -> float:
        """Return for how many seconds there was sleep since the last look; 0 when there was none."""
        before, self._before = self._before, self._read()
        return slept(before, self._before, self._period)
