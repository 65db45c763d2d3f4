"""Dask's placement decisions as the mesh takes them: gates by the running set, requirements, scores, speeds.

The methods here shadow those of the same names on the scheduler. While no node is known and a task asks for nothing
they hand over to Dask's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from functools import partial
from random import Random
from typing import Any

from .needs import Need, Needs
from .roster import Place, Roster
from .sampling import sampled
from .slots import SHORT
from .speeds import rest_done, worth_starting

PREFIXES = 64
"""Most task prefixes whose queued work is added up one by one."""


class Decisions:
    """Where a task goes."""

    def __init__(self, scheduler: Any, roster: Roster, needs: Needs, sample: int, random: Random) -> None:
        self._scheduler = scheduler
        self._roster, self._needs = roster, needs
        self._places = roster.places
        self._sample, self._random = sample, random
        self._stock: dict[str, Any] = {name: getattr(scheduler, name) for name in self.SHADOWED}
        self._stock_valid, self._stock_rootish = scheduler.valid_workers, scheduler.is_rootish
        self._asking: Any = None
        """The task that Dask asks about where its question carries none."""
        self.withheld: set[Any] = set()
        """Workers with a free slot that are left idle since others will be done sooner."""
        self.considered = 0
        """How many workers the last decision compared."""

    SHADOWED = (
        "valid_workers",
        "is_rootish",
        "worker_objective",
        "decide_worker_non_rootish",
        "decide_worker_rootish_queuing_enabled",
        "decide_worker_rootish_queuing_disabled",
        "stimulus_queue_slots_maybe_opened",
    )

    # ------------------------------------------------------------ what may be

    def valid_workers(self, ts: Any) -> set[Any] | None:
        """Return the workers that may run `ts` now; None for all that run."""
        allowed: set[Any] | None = self._stock_valid(ts)
        need = self._needs.of.get(ts.key) if self._needs.of else None
        if need is None:
            return allowed
        if not isinstance(need, Need):
            return set()
        room = self._needs.room(need)
        fitting = room & self._scheduler.running if len(room) else set()
        if allowed is None:
            return fitting
        # Loose restrictions let go of the user's choice of workers, never of what the task needs.
        return (fitting & allowed) or (fitting if ts.loose_restrictions else set())

    def open_to(self, ts: Any) -> set[Any]:
        """Return the workers that may be given `ts` now; not to be changed. The user's loose choice is let go of."""
        # Dask calls the shadow too, so that another plugin's own restrictions count.
        valid: set[Any] | None = self._scheduler.valid_workers(ts)
        running: set[Any] = self._scheduler.running
        if valid is None or (not valid and ts.loose_restrictions and ts.key not in self._needs.of):
            return running
        return valid

    def is_rootish(self, ts: Any) -> bool:
        """Return whether Dask may queue `ts` and then place it without looking at it."""
        if self._needs.of and ts.key in self._needs.of:
            return False
        rootish: bool = self._stock_rootish(ts)
        if rootish:
            self._asking = ts
        return rootish

    # ------------------------------------------------------------ what is best

    def backlog(self, ws: Any, place: Place | None) -> float:
        """Return the seconds until a thread of `ws` has done its share of what is assigned there."""
        seconds: float = ws.occupancy / ws.nthreads
        return seconds * place.slowness if place is not None else seconds

    def duration(self, ts: Any) -> float:
        """Return the seconds that `ts` takes on a node of mean speed, as far as is known."""
        seconds: float = self._scheduler._get_prefix_duration(ts.prefix)
        return seconds

    def cost(self, ts: Any, ws: Any, backlog: float, transfer: float, duration: float) -> tuple[float, float]:
        """Return (seconds until `ts` would be done at `ws` with its penalty, full penalty to break a tie).

        A task with dependencies pays at most the penalty that moving them all would cost, so that a node's score
        never drives a task away from its data.
        """
        place = self._places.get(ws.address)
        if place is None:
            return backlog + transfer + duration, 0.0
        counted = place.penalty
        if counted and ts.dependencies:
            counted = min(counted, ts.get_nbytes_deps() / self._scheduler.bandwidth)
        return backlog + transfer + duration * place.slowness + counted, place.penalty

    def worker_objective(self, ts: Any, ws: Any) -> tuple[float, ...]:
        """Return what the best worker for `ts` has least of."""
        if not self._roster.awake:
            stock: tuple[float, ...] = self._stock["worker_objective"](ts, ws)
            return stock
        place = self._places.get(ws.address)
        transfer = self._scheduler.get_comm_cost(ts, ws) if ts.dependencies else 0.0
        cost, tie = self.cost(ts, ws, self.backlog(ws, place), transfer, self.duration(ts))
        return (len(ws.actors), cost, tie, ws.nbytes) if ts.actor else (cost, tie, ws.nbytes)

    def _free_thread_first(self, ts: Any, ws: Any) -> tuple[float, ...]:
        return (len(ws.processing) >= ws.nthreads, *self.worker_objective(ts, ws))

    def _least_loaded(self, ws: Any) -> tuple[float, ...]:
        place = self._places.get(ws.address)
        load = len(ws.processing) / ws.nthreads
        return (load >= 1, place.penalty if place is not None else 0.0, load)

    def sampled(self, pool: Collection[Any]) -> Collection[Any]:
        """Return the workers of `pool` that a decision looks at."""
        if len(pool) <= self._sample:
            return pool
        ranking = self._roster.fastest if self._roster.uneven else self._roster.ranking
        return sampled(pool, ranking, self._sample, self._random)

    # ------------------------------------------------------------ the decisions

    def decide_worker_non_rootish(self, ts: Any) -> Any:
        """Return the worker for `ts`, or None when no worker has room for it."""
        need = self._needs.of.get(ts.key) if self._needs.of else None
        if need is None and not self._roster.awake:
            return self._stock["decide_worker_non_rootish"](ts)
        running = self._scheduler.running
        if not running or (need is not None and not isinstance(need, Need)):
            return None
        ws = self._stock["decide_worker_non_rootish"](ts) if ts.actor else self._decided(ts, need)
        if ws is not None and isinstance(need, Need):
            self._settle(ts, need, ws)
        return ws

    def _decided(self, ts: Any, need: Need | None) -> Any:
        running = self._scheduler.running
        valid = self.open_to(ts)
        if need is not None and need.slotted:
            # Dask keeps the workers with a free slot in a set.
            slots = self._scheduler.idle_task_count
            valid = valid & (slots | self.withheld if self.withheld else slots)
        if not valid:
            return None
        if ts.dependencies:
            return self._near_data(ts, valid)
        looked_at = self.sampled(valid if valid is running else valid & running)
        self.considered = len(looked_at)
        if len(looked_at) == 1:
            return next(iter(looked_at))
        return min(looked_at, key=partial(self._free_thread_first, ts), default=None)

    def _near_data(self, ts: Any, valid: set[Any]) -> Any:
        """Return the best of the workers that hold a dependency of `ts`, of all valid ones when none of them does."""
        held: dict[Any, int] = {}
        total = 0
        for dts in ts.dependencies:
            size = dts.get_nbytes()
            total += size
            for ws in dts.who_has or ():
                held[ws] = held.get(ws, 0) + size
        running = self._scheduler.running
        near: Collection[Any] = [ws for ws in held if ws in running and (valid is running or ws in valid)]
        looked_at = self.sampled(near or (valid if valid is running else valid & running))
        self.considered = len(looked_at)
        if len(looked_at) == 1:
            return next(iter(looked_at))
        return self._cheapest(ts, looked_at, held, total)

    def _cheapest(self, ts: Any, looked_at: Collection[Any], held: dict[Any, int], total: int) -> Any:
        """Return the best worker by `worker_objective`, with what is the same for all computed once.

        Of the `total` bytes of dependencies a worker has `held` already.
        """
        bandwidth, places = self._scheduler.bandwidth, self._places
        duration = self.duration(ts)
        most = total / bandwidth
        best, best_cost = None, (math.inf, math.inf, math.inf)
        for ws in looked_at:
            place = places.get(ws.address)
            slowness, penalty = (place.slowness, place.penalty) if place is not None else (1.0, 0.0)
            transfer = (total - held.get(ws, 0)) / bandwidth
            cost = (ws.occupancy / ws.nthreads + duration) * slowness + transfer + min(penalty, most)
            if cost <= best_cost[0] and (found := (cost, penalty, ws.nbytes)) < best_cost:
                best, best_cost = ws, found
        return best

    def _settle(self, ts: Any, need: Need, ws: Any) -> None:
        """Reserve what `ts` needs at `ws` and choose its executor there."""
        place = self._places.get(ws.address)
        if place is None:
            return
        self._needs.hold(ts.key, place)
        wanted = "capsule" if need.spec.executor == "capsule" and "capsule" in place.executors else None
        annotations = ts.annotations or {}
        if wanted is not None and annotations.get("executor") != wanted:
            ts.annotations = {**annotations, "executor": wanted}
        elif wanted is None and annotations.get("executor") == "capsule" and need.spec.executor == "capsule":
            ts.annotations = {name: value for name, value in annotations.items() if name != "executor"}

    def decide_worker_rootish_queuing_disabled(self, ts: Any) -> Any:
        """Return the worker for a root-ish task where Dask does not queue: siblings together, faster nodes more."""
        self._asking = None
        roster, s = self._roster, self._scheduler
        if not roster.awake:
            return self._stock["decide_worker_rootish_queuing_disabled"](ts)
        pool = s.running
        if not pool:
            return None
        group = ts.group
        ws = group.last_worker
        if not (ws and group.last_worker_tasks_left and ws in pool and s.workers.get(ws.address) is ws):
            looked_at = self.sampled(pool)
            self.considered = len(looked_at)
            ws = min(looked_at, key=partial(self.worker_objective, ts))
            place = self._places.get(ws.address)
            share = ws.nthreads / (place.slowness if place is not None else 1.0) / s.total_nthreads
            # With different speeds small batches: a slow node's share may be less than one task.
            batches = 8 if roster.uneven else 1
            group.last_worker_tasks_left = max(1, math.floor(len(group) * share / batches))
        group.last_worker = ws if group.states["released"] + group.states["waiting"] > 1 else None
        group.last_worker_tasks_left -= 1
        return ws

    def decide_worker_rootish_queuing_enabled(self) -> Any:
        """Return the worker for the next root-ish task, or None when it is to wait in the queue."""
        ts, self._asking = self._asking, None
        if not self._roster.awake:
            return self._stock["decide_worker_rootish_queuing_enabled"]()
        s = self._scheduler
        pool = s.idle_task_count
        if self.withheld:
            self.reconsider()
        if not pool:
            return None
        if not self._roster.uneven:
            return self._next_free(pool)
        if ts is None and s.queued:
            ts = s.queued.peek()
        if ts is None or not self._known_long(ts):
            return self._next_free(pool)
        looked_at = self.sampled(pool)
        self.considered = len(looked_at)
        return self._soonest_done(ts, self.duration(ts), looked_at)

    def _next_free(self, pool: Collection[Any]) -> Any:
        """Return the best node of `pool` with a free thread, else the least loaded of some: for short tasks."""
        self.considered = min(len(pool), self._sample)
        if len(pool) == 1:
            return next(iter(pool))
        for ws in self._roster.ranking[: self._sample]:
            if len(ws.processing) < ws.nthreads and ws in pool:
                return ws
        return min(self.sampled(pool), key=self._least_loaded)

    @staticmethod
    def _known_long(ts: Any) -> bool:
        """Return whether it matters which free node runs `ts`; a duration that is a guess decides nothing."""
        prefix = ts.prefix
        known: bool = prefix.duration_average >= SHORT or (prefix.duration_average < 0 and prefix.max_exec_time > 0)
        return known

    def _soonest_done(self, ts: Any, duration: float, looked_at: Collection[Any]) -> Any:
        """Return the worker that is done first, if the queue should not rather wait for a faster one."""
        best, best_key, best_done = None, (math.inf, math.inf), math.inf
        for ws in looked_at:
            place = self._places.get(ws.address)
            slowness = place.slowness if place is not None else 1.0
            done = (ws.occupancy / ws.nthreads + duration) * slowness
            key = (done + (place.penalty if place is not None else 0.0), done)
            # The penalty orders nodes of like speed; it must not make a slow node seem fast.
            if key < best_key:
                best, best_key, best_done = ws, key, done
        if self._worth(best, best_done, duration, ts.state != "queued"):
            return best
        self._withhold()
        return None

    def _worth(self, ws: Any, done: float, duration: float, unqueued: bool) -> bool:
        s = self._scheduler
        if not s._task_prefix_count_global:
            return True
        place = self._places.get(ws.address)
        slowness = place.slowness if place is not None else 1.0
        waiting = self.queued_work() + duration * unqueued
        rest = rest_done(
            s.total_occupancy + waiting,
            ws.occupancy,
            self._speed(),
            ws.nthreads / slowness,
        )
        if done <= rest:
            return True
        elsewhere = min(
            (
                (other.occupancy / other.nthreads + duration) * self._places[other.address].slowness
                for other in itertools.islice(self._roster.fastest, self._sample)
                if other is not ws and other in s.running
            ),
            default=math.inf,
        )
        return worth_starting(done, rest, elsewhere)

    def _speed(self) -> float:
        """Return the speed of all running workers' threads together, relative to the mean thread."""
        s = self._scheduler
        if len(self._places) > self._sample:
            return float(s.total_nthreads)
        running = (place for place in self._places.values() if place.worker in s.running)
        return sum((place.worker.nthreads / place.slowness for place in running), 0.0)

    def queued_work(self) -> float:
        """Return the seconds at mean speed of all that waits in the scheduler's queue."""
        s = self._scheduler
        if len(s.task_prefixes) > PREFIXES:
            return len(s.queued) * self.duration(s.queued.peek()) if s.queued else 0.0
        found = ((prefix, prefix.states["queued"]) for prefix in s.task_prefixes.values())
        return sum((count * s._get_prefix_duration(prefix) for prefix, count in found if count), 0.0)

    # ------------------------------------------------------------ the queue

    def stimulus_queue_slots_maybe_opened(self, *, stimulus_id: str) -> None:
        """Send queued tasks to workers with a free slot, as long as that ends the run sooner."""
        s = self._scheduler
        if not s.queued or not (s.idle_task_count or self.withheld):
            return
        if not self._roster.awake:
            self._stock["stimulus_queue_slots_maybe_opened"](stimulus_id=stimulus_id)
            return
        while s.queued and (s.idle_task_count or self.withheld):
            self._asking = ts = s.queued.peek()
            s.transitions({ts.key: "processing"}, stimulus_id)
            if ts.state == "queued":
                return

    def _withhold(self) -> None:
        """Take the free workers out of Dask's sight until something changes: it must not see free slots and a queue."""
        pool = self._scheduler.idle_task_count
        self.withheld.update(pool)
        pool.clear()

    def reconsider(self) -> None:
        """Let Dask see the fastest of the withheld workers again."""
        s = self._scheduler
        back = self.withheld if len(self.withheld) <= self._sample else self.sampled(self.withheld)
        for ws in list(back):
            self.withheld.discard(ws)
            if s.workers.get(ws.address) is ws:
                s.check_idle_saturated(ws)
