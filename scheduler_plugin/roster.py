"""The roster: which worker stands on which node, and what follows from the node's newest data.

Everything that a decision needs of a node is computed here when its data arrive, not when a task is placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from computemesh.gates import Limits, closed_gates
from computemesh.node import Node
from computemesh.scores import Largest, Score, Weights, largest_of, penalty, score

from .capacity import Free, Hold, capacity_of
from .speeds import Speeds

_parts: Callable[[Score], tuple[float, ...]] = attrgetter(*(part.name for part in fields(Score)))
UNEVEN = 0.05
"""Relative difference of speeds from which nodes are told apart by speed."""


@dataclass(slots=True, eq=False)
class Place:
    """One Dask worker and what is known of its node."""

    worker: Any
    address: str
    name: str
    reported: str = "running"
    """Status that the worker itself last reported."""
    node: Node | None = None
    gates: tuple[str, ...] = ()
    score: Score | None = None
    parts: tuple[float, ...] = ()
    """The score's fields, for remembering: the collector of garbage need not look at a tuple of numbers."""
    penalty: float = 0.0
    """Seconds."""
    slowness: float = 1.0
    """How many times longer a task takes here than on a node of mean speed."""
    uneven: bool = False
    """Whether the mesh's nodes differ in speed."""
    executors: tuple[str, ...] = ()
    free: Free = field(default_factory=Free)
    holds: dict[Any, Hold] = field(default_factory=dict)
    """What constrained tasks hold here, by key."""
    extra_slots: int = 0

    def recount(self) -> None:
        """Compute what is free from what is held."""
        holds = self.holds.values()
        self.free = capacity_of(self.node.facts, holds) if self.node is not None else Free()
        self.extra_slots = sum(hold.extra_slots for hold in holds)


@dataclass(slots=True)
class Roster:
    """All places and nodes. `changed` is called after each change with the places it concerns."""

    limits: Limits
    weights: Weights
    speeds: Speeds
    changed: Callable[[list[Place]], None]
    nodes: dict[str, Node] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    """By worker address."""
    version: int = 0
    awake: bool = False
    """Whether any node is known; without one the plugin changes nothing."""
    uneven: bool = False
    ranking: list[Any] = field(default_factory=list)
    """Workers of known nodes, best first."""
    fastest: list[Any] = field(default_factory=list)
    """Workers, fastest first."""
    mean_speed: float = 1.0
    """In the unit of the benchmark, weighted by threads."""
    forced: dict[str, str] = field(default_factory=dict)
    """Nodes gated from here, by name, with the reason."""
    _largest: Largest = field(default_factory=Largest)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace what is known of all nodes."""
        known = {node.name: node for node in nodes}
        self.change_nodes(known.values(), self.nodes.keys() - known.keys())

    def change_nodes(self, nodes: Iterable[Node], gone: Iterable[str] = ()) -> None:
        """Take in nodes that are new or otherwise, and forget those that are gone."""
        changed = {node.name: node for node in nodes}
        left = frozenset(gone)
        self.nodes = {name: node for name, node in self.nodes.items() if name not in left} | changed
        self.awake = bool(self.nodes)
        self.speeds.promised, self.speeds.usual = _promised(self.nodes.values())
        self.speeds.seed({node.name: node.speed for node in changed.values()})
        self.speeds.keep(self.nodes)
        before, self._largest = self._largest, largest_of(self.nodes.values())
        # A score is relative to the largest of the mesh: when that changes, all do.
        concerned = [
            place
            for place in self.places.values()
            if self._largest != before or place.name in changed or place.name in left
        ]
        for place in concerned:
            self._look_up(place)
        self._compare()
        self.version += 1
        self.changed(concerned)

    def add(self, place: Place) -> None:
        """A worker has come."""
        self.places[place.address] = place
        self._look_up(place)
        self._compare()
        self.version += 1
        self.changed([place])

    def remove(self, address: str) -> Place | None:
        """A worker has gone."""
        place = self.places.pop(address, None)
        if place is not None:
            self._compare()
            self.version += 1
            self.changed([])
        return place

    def set_executors(self, place: Place, executors: tuple[str, ...]) -> None:
        """A worker says which executors it has."""
        if executors != place.executors:
            place.executors = executors
            self.version += 1
            self.changed([place])

    def force(self, name: str, reason: str) -> None:
        """Gate a node from here, whatever its data say; an empty reason ends it."""
        if reason:
            self.forced[name] = reason
        else:
            self.forced.pop(name, None)
        concerned = [place for place in self.places.values() if place.name == name]
        for place in concerned:
            self._look_up(place)
        self._compare()
        self.version += 1
        self.changed(concerned)

    def relearn(self) -> None:
        """Take what was learned about speeds into account."""
        self._compare()

    def place_of(self, name: str) -> Place | None:
        """Return where the worker of node `name` stands."""
        return next((place for place in self.places.values() if place.name == name), None)

    def _look_up(self, place: Place) -> None:
        place.node = node = self.nodes.get(place.name)
        forced = self.forced.get(place.name)
        place.gates = (
            *((forced,) if forced else ()),
            *(closed_gates(node, self.limits) if node is not None else ()),
        )
        place.score = score(node, self._largest, self.weights) if node is not None else None
        place.parts = _parts(place.score) if place.score is not None else ()
        place.penalty = penalty(place.score.order, self.weights) if place.score is not None else 0.0
        place.recount()

    def _compare(self) -> None:
        """Compute what depends on several places: relative speeds and the ranking."""
        places = list(self.places.values())
        if not self.awake:
            for place in places:
                place.slowness, place.uneven = 1.0, False
            self.uneven, self.ranking, self.fastest = False, [], []
            return
        speeds = {place.address: self.speeds.speed(place.name) for place in places}
        threads = sum(place.worker.nthreads for place in places)
        mean = sum(speeds[place.address] * place.worker.nthreads for place in places) / threads if threads else 1.0
        self.mean_speed = mean
        slownesses = [mean / speeds[place.address] for place in places]
        self.uneven = bool(places) and max(slownesses) > (1 + UNEVEN) * min(slownesses)
        for place, slowness in zip(places, slownesses, strict=True):
            place.slowness, place.uneven = (
                (slowness if self.uneven else 1.0),
                self.uneven,
            )
        known = [place for place in places if place.node is not None]
        self.ranking = [place.worker for place in sorted(known, key=lambda place: place.penalty)]
        self.fastest = [place.worker for place in sorted(places, key=lambda place: place.slowness)]


def _promised(nodes: Iterable[Node]) -> tuple[dict[str, float], float]:
    """Return each benchmarked node's speed, and the mean of them, which stands for a node that was not measured."""
    measured = {node.name: node.facts.core_speed for node in nodes if node.facts.core_speed > 0}
    return measured, (sum(measured.values()) / len(measured) if measured else 1.0)
