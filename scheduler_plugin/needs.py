"""Constrained tasks: which places each kind of task may go to, what it holds there, and who waits for what.

Tasks with the same spec share one `Need`, with the set of places that could ever run them and the part of it that
has room now. Both are kept up to date when a node changes or a task comes or goes, never by looking over all tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from computemesh.gates import unmet
from computemesh.task_spec import TaskSpec

from .capacity import Hold, fitting
from .roster import Place, Roster

HEADS = 64
"""Most kinds of waiting tasks that are tried when room has appeared."""


@dataclass(slots=True, eq=False)
class Need:
    """All tasks of one spec. `slotted` ones wait for a free thread, as Dask's own root tasks do."""

    spec: TaskSpec
    slotted: bool
    version: int = -1
    eligible: set[Any] = field(default_factory=set)
    """Workers that have what the spec asks when nothing else runs there."""
    free: set[Any] = field(default_factory=set)
    """Those of them that have it now."""
    possible: bool = False
    """Whether any node could ever run it, with a worker on it or not."""
    tasks: int = 0
    waiting: list[tuple[Any, int, Any]] = field(default_factory=list)
    """Heap of (priority, arrival, key)."""
    told: bool = False
    """Whether it was said that no node can ever run it."""


@dataclass(slots=True, eq=False)
class Refused:
    """A task whose spec makes no sense, and why."""

    error: Exception


class Needs:
    """The books of constrained tasks."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._kinds: dict[tuple[TaskSpec, bool], Need] = {}
        self._arrivals = 0
        self._where: dict[Any, list[Place]] = {}
        self.of: dict[Any, Need | Refused] = {}
        """By key, constrained and refused tasks only."""
        self.waiting: dict[Any, Need] = {}
        """Constrained tasks that wait for room, by key."""

    # ------------------------------------------------------------ tasks come and go

    def enter(self, key: Any, spec: TaskSpec, slotted: bool) -> Need:
        """Note that `key` asks for `spec`; one that asked for it already keeps its place among those that wait."""
        known = self.of.get(key)
        if isinstance(known, Need) and (known.spec, known.slotted) == (spec, slotted):
            return known
        self.leave(key)
        need = self._kinds.get((spec, slotted))
        if need is None:
            need = self._kinds[spec, slotted] = Need(spec, slotted)
        need.tasks += 1
        self.of[key] = need
        return need

    def refuse(self, key: Any, error: Exception) -> None:
        """Note that what `key` asks makes no sense."""
        self.leave(key)
        self.of[key] = Refused(error)

    def leave(self, key: Any) -> None:
        """Forget `key`."""
        need = self.of.pop(key, None)
        self.waiting.pop(key, None)
        if isinstance(need, Need):
            need.tasks -= 1
            if not need.tasks:
                self._kinds.pop((need.spec, need.slotted), None)

    def kinds(self) -> Iterable[Need]:
        """Return the kinds of tasks there are."""
        return self._kinds.values()

    # ------------------------------------------------------------ where they may go

    def room(self, need: Need) -> set[Any]:
        """Return the workers that have room for one more task of this kind; not to be changed."""
        if need.version != self._roster.version:
            self._refresh(need)
        return need.free

    def possible(self, need: Need) -> bool:
        """Return whether any node that is known could ever run it."""
        if need.version != self._roster.version:
            self._refresh(need)
        return need.possible

    def eligible(self, need: Need) -> set[Any]:
        """Return the workers that could ever run it; not to be changed."""
        if need.version != self._roster.version:
            self._refresh(need)
        return need.eligible

    def _refresh(self, need: Need) -> None:
        places = self._roster.places.values()
        capsules = need.spec.executor == "capsule" and any("capsule" in place.executors for place in places)
        able = [place for place in places if _able(place, need.spec) and (not capsules or "capsule" in place.executors)]
        need.eligible = {place.worker for place in able}
        need.free = {place.worker for place in able if fitting(need.spec.requirement, place.free) is not None}
        need.possible = bool(able) or any(
            not unmet(need.spec.requirement, node) for node in self._roster.nodes.values()
        )
        need.version = self._roster.version

    # ------------------------------------------------------------ what they hold

    def hold(self, key: Any, place: Place) -> None:
        """Take what `key` needs at `place`, even beyond what is free: Dask has decided."""
        need = self.of.get(key)
        if not isinstance(need, Need) or key in place.holds:
            return
        requirement = need.spec.requirement
        place.holds[key] = fitting(requirement, place.free) or Hold(requirement)
        self._where.setdefault(key, []).append(place)
        self._recount(place)

    def release(self, key: Any, but: Place | None = None) -> list[Place]:
        """Give back what `key` holds anywhere, except at `but`; return where."""
        places = self._where.pop(key, None)
        if places is None:
            return []
        freed = [place for place in places if place is not but]
        if len(freed) < len(places) and but is not None:
            self._where[key] = [but]
        for place in freed:
            if place.holds.pop(key, None) is not None:
                self._recount(place)
        return freed

    def holding(self) -> bool:
        """Return whether anything is held anywhere."""
        return bool(self._where)

    def _recount(self, place: Place) -> None:
        place.recount()
        worker = place.worker
        for need in self._kinds.values():
            if need.version == self._roster.version and worker in need.eligible:
                if fitting(need.spec.requirement, place.free) is not None:
                    need.free.add(worker)
                else:
                    need.free.discard(worker)

    # ------------------------------------------------------------ who waits

    def wait(self, key: Any, priority: Any) -> None:
        """`key` found no room."""
        need = self.of.get(key)
        if isinstance(need, Need) and key not in self.waiting:
            self._arrivals += 1
            heapq.heappush(need.waiting, (priority, self._arrivals, key))
            self.waiting[key] = need

    def go(self, key: Any) -> None:
        """`key` waits no longer."""
        self.waiting.pop(key, None)

    def heads(self, startable: Callable[[Any], bool]) -> Iterator[Any]:
        """Yield waiting keys to try, best priority first, while room lasts.

        A kind whose head could not be started (it still waits after its turn) is left alone this time. Each turn
        costs as much as there are kinds with room, at most `HEADS`.
        """
        open_kinds: list[tuple[Any, int, Need]] = []
        for need in set(self.waiting.values()) if len(self.waiting) < HEADS else list(self._kinds.values()):
            head = self._head(need, startable)
            if head is not None and self.room(need):
                open_kinds.append((head[0], head[1], need))
        open_kinds = heapq.nsmallest(HEADS, open_kinds, key=lambda entry: entry[:2])
        heapq.heapify(open_kinds)
        while open_kinds:
            _, _, need = heapq.heappop(open_kinds)
            head = self._head(need, startable)
            if head is None:
                continue
            key = head[2]
            yield key
            if key not in self.waiting and (following := self._head(need, startable)) and self.room(need):
                heapq.heappush(open_kinds, (following[0], following[1], need))

    def _head(self, need: Need, startable: Callable[[Any], bool]) -> tuple[Any, int, Any] | None:
        while need.waiting:
            key = need.waiting[0][2]
            if self.waiting.get(key) is need and startable(key):
                return need.waiting[0]
            heapq.heappop(need.waiting)
        return None


def _able(place: Place, spec: TaskSpec) -> bool:
    if not spec.requirement:
        return True
    return place.node is not None and not unmet(spec.requirement, place.node)
