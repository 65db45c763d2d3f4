"""What becomes of a worker whose machine its owner takes back: it is no suspect, and its tasks run elsewhere.

While it is frozen it is merely paused, and Dask's own limit on silence does not count. Once its node says that all is
being given back, it is removed as one that leaves by plan: its tasks are placed anew, and none is blamed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from computemesh.node import Harvest, Node

from .roster import Place, Roster
from .shadows import Shadows

GIVEN_BACK = frozenset({Harvest.EVICTING, Harvest.OWNER, Harvest.IDLE})


def given_back(node: Node | None) -> bool:
    """Return whether a node has taken its worker away: it says that it has none, and why."""
    return node is not None and node.harvest in GIVEN_BACK and not node.worker


def expected_to_go(node: Node | None) -> bool:
    """Return whether the end of a node's worker is its owner's doing rather than a task's."""
    return node is not None and node.harvest is not Harvest.LENDING


class Preemption:
    """Removes the workers of machines that are given back, on one scheduler."""

    def __init__(self, scheduler: Any, roster: Roster) -> None:
        self._scheduler, self._roster = scheduler, roster
        self._stock = scheduler.remove_worker
        self._removals: set[asyncio.Task[Any]] = set()
        self._named: set[str] = set()
        """Nodes that have named their worker: only such a one can take it away."""

    def install(self, shadows: Shadows) -> None:
        """See to it that no task is blamed for its machine's owner."""
        shadows.method(self._scheduler, "remove_worker", self.remove_worker)

    async def remove_worker(self, address: str, *, stimulus_id: str, expected: bool = False, close: bool = True) -> Any:
        """Remove a worker as Dask does; one whose owner is back was expected to go."""
        place = self._roster.places.get(address)
        expected = expected or (place is not None and expected_to_go(place.node))
        return await self._stock(address, stimulus_id=stimulus_id, expected=expected, close=close)

    def look(self, places: list[Place]) -> None:
        """Remove the workers of those nodes that have given them back."""
        for place in places:
            if place.node is not None and place.node.worker:
                self._named.add(place.name)
            elif given_back(place.node) and place.name in self._named:
                self._named.discard(place.name)
                if place.address not in self._scheduler.workers:
                    continue
                removal = asyncio.ensure_future(
                    self.remove_worker(
                        place.address, stimulus_id=f"mesh-evict-{time.time()}", expected=True, close=False
                    )
                )
                self._removals.add(removal)
                removal.add_done_callback(self._removals.discard)

    def keep_alive(self) -> None:
        """Let Dask's limit on silence not count for workers whose freezing was announced."""
        for place in self._roster.places.values():
            if place.node is not None and place.node.harvest is Harvest.SUSPENDED:
                place.worker.last_seen = time.time()
