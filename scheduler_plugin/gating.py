"""Node gates: a worker behind a closed gate counts as paused at the scheduler, so that all of Dask leaves it alone.

The worker itself does not know and goes on with what it has. What it says of its own status is remembered, so that
opening the gate does not wake a worker that paused itself for want of memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from distributed.core import Status

from .roster import Place, Roster
from .shadows import Shadows

_STIMULUS = "mesh-gate-"


class Gating:
    """Keeps the scheduler's view of each worker's status in line with its node's gates."""

    def __init__(self, scheduler: Any, roster: Roster, on_closed: Callable[[Place], None]) -> None:
        self._scheduler, self._roster, self._on_closed = scheduler, roster, on_closed
        self._count = itertools.count()
        self._reported = scheduler.stream_handlers["worker-status-change"]
        self._rebalance = scheduler.handlers["rebalance"]

    def install(self, shadows: Shadows) -> None:
        """Hear what workers report, keep Dask's rebalance off gated nodes, and open all gates at the end."""
        shadows.on_removal(self._open_all)
        shadows.entry(self._scheduler.stream_handlers, "worker-status-change", self.on_report)
        shadows.entry(self._scheduler.handlers, "rebalance", self.rebalance)

    def apply(self, places: list[Place]) -> None:
        """Pause and wake workers as their nodes' gates say."""
        for place in places:
            ws = place.worker
            if ws.status == Status.running and place.gates:
                self._set(ws, Status.paused)
                self._on_closed(place)
            elif ws.status == Status.paused and not place.gates and place.reported == "running":
                self._set(ws, Status.running)

    def on_report(self, status: Any, worker: Any, stimulus_id: str) -> None:
        """A worker says how it is."""
        name = worker if isinstance(worker, str) else worker.address
        place = self._roster.places.get(name)
        if place is not None:
            place.reported = status if isinstance(status, str) else status.name
        self._reported(status=status, worker=worker, stimulus_id=stimulus_id)

    def on_log_event(self, topic: str, message: Any) -> None:
        """Called by Dask's event log, in the middle of each change of status: close the gate again at once."""
        if not isinstance(message, dict) or message.get("action") != "worker-status-change":
            return
        place = self._roster.places.get(topic)
        if place is None or str(message.get("stimulus_id", "")).startswith(_STIMULUS):
            return
        if message.get("status") == "running" and place.gates:
            self._set(place.worker, Status.paused)

    async def rebalance(self, keys: Any = None, workers: Any = None, stimulus_id: str | None = None) -> Any:
        """Rebalance as Dask does, but only among workers that run."""
        s = self._scheduler
        if self._roster.awake:
            chosen = s.workers if workers is None else workers
            workers = [address for address in chosen if s.workers.get(address) in s.running]
        return await self._rebalance(keys=keys, workers=workers, stimulus_id=stimulus_id)

    def _set(self, ws: Any, status: Status) -> None:
        self._scheduler.handle_worker_status_change(status, ws, f"{_STIMULUS}{next(self._count)}")

    def _open_all(self) -> None:
        for place in self._roster.places.values():
            if place.gates and place.worker.status == Status.paused and place.reported == "running":
                place.gates = ()
                self._set(place.worker, Status.running)
