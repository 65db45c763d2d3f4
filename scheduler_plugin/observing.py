"""What is kept of tasks that were placed or have run: where and why, for `mesh why`, and how fast, for estimates."""

from __future__ import annotations

import time
from typing import Any

from .decisions import Decisions
from .placements import Placements
from .roster import Roster
from .speeds import SHORTEST, Speeds


class Observing:
    """Notes placements and learns from run times."""

    def __init__(
        self,
        scheduler: Any,
        roster: Roster,
        speeds: Speeds,
        decisions: Decisions,
        placements: Placements,
    ) -> None:
        self._scheduler, self._roster, self._speeds, self._decisions = (
            scheduler,
            roster,
            speeds,
            decisions,
        )
        self._places, self._tasks = roster.places, scheduler.tasks
        self._placements = placements
        self._learned = False

    def placement(self, key: Any) -> None:
        """`key` was just given to a worker."""
        ws = self._tasks[key].processing_on
        place = self._places.get(ws.address) if ws is not None else None
        if place is not None:
            newer = self._placements.newer
            newer[key] = (place.name, place.parts, place.penalty, time.time(), self._decisions.considered)
            if len(newer) >= self._placements.half:
                self._placements.turn()

    def run(self, key: Any, details: dict[str, Any]) -> None:
        """`key` has ended well; `details` are those of Dask's message."""
        seconds = 0.0
        for startstop in details.get("startstops") or ():
            if startstop["action"] == "compute":
                seconds += startstop["stop"] - startstop["start"]
        if seconds < SHORTEST:
            return
        place = self._places.get(details.get("worker", ""))
        if place is None:
            return
        prefix = self._tasks[key].prefix
        self._speeds.observe(prefix.name, place.name, seconds)
        self._learned = True
        if self._roster.uneven:
            # Dask's mean follows whichever node ran last; this one has the nodes' speeds taken out.
            prefix.duration_average = self._speeds.work[prefix.name].value / self._roster.mean_speed

    def apply(self) -> None:
        """Let what was learned count; called once a second, since it compares all nodes."""
        if self._learned:
            self._learned = False
            self._roster.relearn()
