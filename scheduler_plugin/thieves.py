"""Work stealing as the mesh wants it: thieves that may run the task, are good nodes, and would be done sooner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .decisions import Decisions
from .needs import Need, Needs
from .roster import Roster
from .shadows import Shadows


class Thieves:
    """Shadows of Dask's work stealing."""

    def __init__(
        self,
        scheduler: Any,
        stealing: Any,
        roster: Roster,
        needs: Needs,
        decisions: Decisions,
        on_freed: Callable[[], None],
    ) -> None:
        self._on_freed = on_freed
        self._scheduler, self._stealing = scheduler, stealing
        self._roster, self._needs, self._decisions = roster, needs, decisions
        names = (
            "stealing_objective",
            "_get_thief",
            "_combined_occupancy",
            "move_task_request",
        )
        self._stock: dict[str, Any] = {name: getattr(stealing, name) for name in names}
        self._confirm = scheduler.stream_handlers["steal-response"]

    def install(self, shadows: Shadows) -> None:
        """Put the shadows on."""
        for name, method in (
            ("stealing_objective", self.stealing_objective),
            ("_get_thief", self.get_thief),
            ("_combined_occupancy", self.combined_occupancy),
            ("move_task_request", self.move_task_request),
        ):
            shadows.method(self._stealing, name, method)
        shadows.entry(self._scheduler.stream_handlers, "steal-response", self.confirm)

    def combined_occupancy(self, ws: Any, *, occupancies: Mapping[Any, float]) -> float:
        """Return the seconds of work at `ws`, longer on a slow node."""
        seconds: float = self._stock["_combined_occupancy"](ws, occupancies=occupancies)
        place = self._roster.places.get(ws.address)
        return seconds * place.slowness if place is not None else seconds

    def stealing_objective(self, ts: Any, ws: Any, *, occupancies: Mapping[Any, float]) -> tuple[float, ...]:
        """Return what the best thief has least of."""
        if not self._roster.awake:
            stock: tuple[float, ...] = self._stock["stealing_objective"](ts, ws, occupancies=occupancies)
            return stock
        cost, tie = self._cost(ts, ws, occupancies)
        return (len(ws.actors), cost, tie, ws.nbytes) if ts.actor else (cost, tie, ws.nbytes)

    def _cost(self, ts: Any, ws: Any, occupancies: Mapping[Any, float]) -> tuple[float, float]:
        backlog = self.combined_occupancy(ws, occupancies=occupancies) / ws.nthreads
        transfer = self._scheduler.get_comm_cost(ts, ws)
        return self._decisions.cost(ts, ws, backlog, transfer, self._decisions.duration(ts))

    def get_thief(
        self,
        scheduler: Any,
        ts: Any,
        potential_thieves: set[Any],
        *,
        occupancies: Mapping[Any, float],
    ) -> Any:
        """Return who should take `ts` over, or None."""
        need = self._needs.of.get(ts.key)
        if need is None and not self._roster.awake:
            return self._stock["_get_thief"](scheduler, ts, potential_thieves, occupancies=occupancies)
        valid = self._scheduler.valid_workers(ts)
        pool: set[Any] = potential_thieves
        if valid is not None:
            pool = potential_thieves & valid
            if not pool and need is None and ts.loose_restrictions:
                pool = potential_thieves
        if not pool:
            return None
        objective = partial(self.stealing_objective, ts, occupancies=occupancies)
        thief = min(self._decisions.sampled(pool), key=objective)
        victim = ts.processing_on
        if self._roster.uneven and victim is not None and not ts.actor:
            there = self.combined_occupancy(victim, occupancies=occupancies) / victim.nthreads
            if self._cost(ts, thief, occupancies)[0] >= there:
                return None
        return thief

    def move_task_request(self, ts: Any, victim: Any, thief: Any) -> str:
        """Ask the victim for `ts`; what the task needs is reserved at the thief from now on."""
        asked: str = self._stock["move_task_request"](ts, victim, thief)
        if asked not in ("in-flight", "comm-closed") and isinstance(self._needs.of.get(ts.key), Need):
            place = self._roster.places.get(thief.address)
            if place is not None:
                self._needs.hold(ts.key, place)
        return asked

    def confirm(self, **answer: Any) -> None:
        """Take the victim's answer; the reservation stays where the task is."""
        self._confirm(**answer)
        key = answer.get("key")
        if not isinstance(self._needs.of.get(key), Need):
            return
        ts = self._scheduler.tasks.get(key)
        ws = ts.processing_on if ts is not None else None
        at = self._roster.places.get(ws.address) if ws is not None else None
        freed = self._needs.release(key, but=at)
        for place in freed:
            self._scheduler.check_idle_saturated(place.worker)
        if freed:
            self._on_freed()
