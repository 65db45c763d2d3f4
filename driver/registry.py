"""The nodes as they are now: what the books say, what their agents said last, and an hour of samples each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from computemesh.node import Harvest, Health, Network, Node, NodeFacts, Sample
from computemesh.protocol import Beat

from .books import Enrolled
from .health import Patience, forgiven, health_of


@dataclass
class Live:
    """A node's changing part. `heard` is in monotonic seconds; -inf before the first beat."""

    incarnation: int = 0
    connected: bool = False
    heard: float = float("-inf")
    health: Health = Health.DEAD
    harvest: Harvest = Harvest.IDLE
    harvest_reason: str = ""
    network: Network = field(default_factory=Network)
    worker: str = ""
    """Address of its worker, as its agent says."""
    registered: str = ""
    """Address of its worker, as the scheduler says."""
    refused: str = ""
    speed: float = 0.0
    on_loan: bool = False
    history: deque[Sample] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A node's health was decided anew."""

    node: str
    before: Health
    after: Health
    silence: float
    """Seconds since its last beat."""


class Registry:
    """Joins the books' nodes with what is heard of them."""

    def __init__(self, patience: Patience, kept_samples: int) -> None:
        self._patience = patience
        self._kept = kept_samples
        self._live: dict[str, Live] = {}
        self._checked: float | None = None

    def live(self, name: str) -> Live:
        """Return the changing part of a node, made on first use."""
        found = self._live.get(name)
        if found is None:
            found = self._live[name] = Live(history=deque(maxlen=self._kept))
        return found

    def forget(self, name: str) -> None:
        """Drop what was heard of a node that left for good."""
        self._live.pop(name, None)

    def connected(self, name: str, incarnation: int, now: float) -> None:
        """Take note that a node's agent has said hello."""
        live = self.live(name)
        live.incarnation, live.connected, live.heard = incarnation, True, now
        live.refused = ""

    def beat(self, name: str, now: float, beat: Beat) -> None:
        """Take one beat in."""
        live = self.live(name)
        live.heard = now
        live.harvest, live.harvest_reason = beat.harvest, beat.reason
        live.network, live.worker = beat.network, beat.worker
        live.history.extend(beat.samples)

    def cut(self, name: str, incarnation: int) -> HealthChange | None:
        """Take note that an agent's connection ended without a word: suspected at once."""
        live = self.live(name)
        if live.incarnation != incarnation:
            return None
        live.connected = False
        if live.health is not Health.ALIVE:
            return None
        live.health = Health.SUSPECTED
        return HealthChange(name, Health.ALIVE, Health.SUSPECTED, 0.0)

    def left(self, name: str) -> None:
        """Take note that a node went by plan."""
        live = self.live(name)
        live.connected, live.health, live.worker = False, Health.DEAD, ""
        live.refused = "has left"
        live.heard = float("-inf")

    def check(self, now: float, every: float) -> list[HealthChange]:
        """Judge every node at `now`, being called each `every` seconds; return what changed."""
        late = 0.0 if self._checked is None else max(0.0, now - self._checked - every)
        grace = forgiven(late, self._patience)
        self._checked = now
        changes = []
        for name, live in self._live.items():
            live.heard += grace
            silence = now - live.heard
            health = health_of(silence, self._patience)
            if health is Health.ALIVE and not live.connected:
                health = Health.SUSPECTED
            if health is not live.health:
                changes.append(HealthChange(name, live.health, health, silence))
                live.health = health
                if health is Health.DEAD:
                    live.worker = ""
        return changes

    def node(self, enrolled: Enrolled, pools: frozenset[str] = frozenset()) -> Node:
        """Return a node as it is now; `pools` are those that it is in by rule."""
        live = self.live(enrolled.name)
        facts = enrolled.facts or NodeFacts(enrolled.name, pools=enrolled.pools)
        return Node(
            facts=replace(facts, pools=tuple(sorted({*facts.pools, *enrolled.pools, *pools}))),
            sample=live.history[-1] if live.history else None,
            harvest=live.harvest,
            harvest_reason=live.harvest_reason,
            health=live.health,
            cordoned=enrolled.cordoned,
            draining=enrolled.draining,
            network=live.network,
            reliability=enrolled.reliability,
            worker=live.worker,
            refused=live.refused,
            speed=live.speed,
        )
