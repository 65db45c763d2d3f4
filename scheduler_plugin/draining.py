"""Taking work and data off a node: what only queues there moves at once, what runs may end, results go elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from distributed.active_memory_manager import ActiveMemoryManagerExtension, RetireWorker

from .decisions import Decisions
from .roster import Place, Roster

POLL = 0.1
"""Seconds between looks at whether a draining worker's results have been copied, which Dask does not announce."""
AGAIN = 2.0
"""Seconds after which copies of results are asked for again."""
REFUSALS = 5
"""Rounds in a row without anybody to take a result after which it is left where it is, and counted."""


class Draining:
    """Empties nodes."""

    def __init__(
        self,
        scheduler: Any,
        roster: Roster,
        decisions: Decisions,
        stealing: Callable[[], Any],
    ) -> None:
        self._scheduler, self._roster, self._decisions = scheduler, roster, decisions
        self._stealing = stealing
        self._noticed = asyncio.Event()
        self.going_on = 0
        """Drains that wait for tasks to end."""
        self.stuck: dict[Any, Place] = {}
        """Tasks on gated nodes that nobody had room for, by key."""

    def notice(self) -> None:
        """A task has left some worker, or a worker the mesh."""
        self._noticed.set()

    def move_queued(self, place: Place) -> int:
        """Ask the worker for every task that it has not begun, each for the best other one; return how many.

        The worker refuses what it already executes, so nothing runs twice.
        """
        tasks = sorted(place.worker.processing, key=lambda ts: ts.priority)
        return self._move(
            place,
            [ts for ts in tasks if ts not in place.worker.long_running and not ts.actor],
        )

    def try_again(self) -> None:
        """Room has appeared somewhere: move what was left behind for want of it."""
        left, self.stuck = self.stuck, {}
        for key, place in left.items():
            ts = self._scheduler.tasks.get(key)
            if ts is not None and ts.processing_on is place.worker and place.gates:
                self._move(place, [ts])

    def _move(self, place: Place, tasks: list[Any]) -> int:
        ws, moved = place.worker, 0
        coming: dict[Any, int] = {}
        for ts in tasks:
            thief = self._thief(ts, ws, coming)
            if thief is None:
                self.stuck[ts.key] = place
                continue
            self._stealing().move_task_request(ts, ws, thief)
            coming[thief] = coming.get(thief, 0) + 1
            moved += 1
        return moved

    def _thief(self, ts: Any, victim: Any, coming: Mapping[Any, int]) -> Any:
        pool = self._decisions.open_to(ts) - {victim}
        looked_at = self._decisions.sampled(pool)

        def cost(ws: Any) -> tuple[float, ...]:
            first, *rest = self._decisions.worker_objective(ts, ws)
            return (
                first + coming.get(ws, 0) * self._decisions.duration(ts) / ws.nthreads,
                *rest,
            )

        return min(looked_at, key=cost, default=None)

    async def drain(self, name: str) -> dict[str, Any]:
        """Empty node `name` and return when nothing runs there and no result is there alone.

        Returns a dict with `node`, `empty`, and `left`: how many results nobody else could take.
        """
        place = self._roster.place_of(name)
        if place is None:
            return {"node": name, "empty": True, "left": 0}
        self._roster.force(name, "is draining")
        self.going_on += 1
        try:
            self.move_queued(place)
            while place.worker.processing and self._there(place):
                self._noticed.clear()
                await self._noticed.wait()
            left = await self._copy_results(place)
        finally:
            self.going_on -= 1
            # From here on the node's own data say that it drains; while they do not, the administrator took it back.
            self._roster.force(name, "")
        return {"node": name, "empty": not left, "left": left}

    def _there(self, place: Place) -> bool:
        return self._scheduler.workers.get(place.address) is place.worker

    async def _copy_results(self, place: Place) -> int:
        amm = ActiveMemoryManagerExtension(self._scheduler, policies=set(), register=False, start=False)
        policy = RetireWorker(place.address)
        amm.add_policy(policy)
        waited, refused = AGAIN, 0
        while self._there(place) and refused <= REFUSALS:
            if waited >= AGAIN:
                waited = 0.0
                amm.run_once()
                if policy.no_recipients:
                    # A moment without recipients is no verdict: a node may be suspected or full just now. Dask's
                    # policy has taken itself off.
                    refused += 1
                    policy = RetireWorker(place.address)
                    amm.add_policy(policy)
            if policy.done():
                break
            await asyncio.sleep(POLL)
            waited += POLL
        if not self._there(place):
            return 0
        return sum(len(ts.who_has or ()) < 2 for ts in place.worker.has_what)
