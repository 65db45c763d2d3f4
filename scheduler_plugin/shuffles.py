"""Dask's P2P shuffle divides its outputs among all workers there are: the mesh lets it count those that run.

Outputs that are already pinned to a node when its gate closes stay there, since their data do; they run when it opens.
"""

from __future__ import annotations

from typing import Any

from distributed.shuffle._core import barrier_key

from .roster import Roster
from .shadows import Shadows


class Shuffles:
    """Shadow of the shuffle extension's one placement decision."""

    def __init__(self, scheduler: Any, extension: Any, roster: Roster) -> None:
        self._scheduler, self._extension, self._roster = scheduler, extension, roster
        self._stock = extension._calculate_worker_for

    def install(self, shadows: Shadows) -> None:
        """Put the shadow on."""
        shadows.method(self._extension, "_calculate_worker_for", self.calculate_worker_for)

    def calculate_worker_for(self, spec: Any) -> Any:
        """Return which worker gets which output, with gated workers left out unless the user chose the workers."""
        s = self._scheduler
        barrier = s.tasks[barrier_key(spec.id)]
        if not self._roster.awake or barrier.worker_restrictions or not s.running:
            return self._stock(spec)
        barrier.worker_restrictions = {ws.address for ws in s.workers.values() if ws in s.running}
        try:
            return self._stock(spec)
        finally:
            barrier.worker_restrictions = None
