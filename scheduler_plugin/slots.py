"""How many more tasks a worker should be sent: Dask's count, less the cores of large tasks, and no long over-commit.

Dask counts a worker's free slots in `check_idle_saturated`, twice for every task. The shadow here is that method with
the mesh's count in it, written out in one piece: it decides of a plain worker what Dask's decides, and costs less.
"""

from __future__ import annotations

import math
from typing import Any

from distributed.core import Status

from .roster import Roster
from .shadows import Shadows

SHORT = 0.1
"""Seconds of work on a thread up to which a worker may be sent a task more than it has threads: that one hides the
way from the scheduler, which is a hundredth of this."""


class Slots:
    """Keeps Dask's sets of idle, saturated and open workers on one scheduler."""

    def __init__(self, scheduler: Any, roster: Roster) -> None:
        self._scheduler, self._places = scheduler, roster.places
        self._stock = scheduler.check_idle_saturated

    def install(self, shadows: Shadows) -> None:
        """Put the shadow on."""
        shadows.method(self._scheduler, "check_idle_saturated", self.check_idle_saturated)

    def check_idle_saturated(self, ws: Any, occ: float = -1.0) -> None:
        """Note whether `ws` is idle or saturated, and whether it may be sent a task from the queue.

        `occ` is its occupancy in seconds where the caller knows it.
        """
        s = self._scheduler
        # Dask's Status compares in Python; its members are single objects.
        if ws.status is not Status.running or not s.total_nthreads:
            self._stock(ws, occ)
            return
        assigned, threads, address = len(ws.processing), ws.nthreads, ws.address
        mean, saturated = 0.0, False
        idle = assigned < threads
        if not idle:
            occ = ws.occupancy if occ < 0 else occ
            mean = s.total_occupancy / s.total_nthreads
            idle = occ < threads * mean / 2
            if not idle and assigned > threads:
                saturated = 0.4 < occ * (assigned - threads) / (assigned * threads) > 1.9 * mean
        if idle != (address in s.idle):
            if idle:
                s.idle[address] = ws
            else:
                del s.idle[address]
        if saturated:
            s.saturated.add(ws)
        elif s.saturated:
            s.saturated.discard(ws)
        if self._has_slot(ws, assigned, threads):
            s.idle_task_count.add(ws)
        else:
            s.idle_task_count.discard(ws)

    def _has_slot(self, ws: Any, assigned: int, threads: int) -> bool:
        saturation = self._scheduler.WORKER_SATURATION
        if saturation == math.inf:
            return True
        place = self._places.get(ws.address)
        busy = assigned - len(ws.long_running)
        if place is not None:
            busy += place.extra_slots
        if busy >= max(math.ceil(saturation * threads), 1):
            return False
        if busy < threads or place is None or not place.uneven:
            return True
        short: bool = ws.occupancy * place.slowness <= SHORT * threads
        return short
