"""How fast each node really is, learned from the tasks that it ran; and when a slow node should be left alone.

A task of prefix *p* is work *w(p)*; a node of speed *v* takes *w(p) / v* seconds for it. Both are learned from the
same observations: the work as a mean over nodes with their speeds taken out, a node's correction as a mean over
prefixes of (expected ÷ observed) time. Means forget: the newest `MEMORY` observations carry most of the weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

MEMORY = 20
"""Observations that a mean remembers."""
SHORTEST = 0.02
"""Seconds under which a run says more about the machinery than about the node."""
WIDEST = 16.0
"""A correction lies between 1/16 and 16: what is outside is no speed but a fault."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean that forgets."""

    value: float = 0.0
    count: int = 0

    def with_value(self, value: float) -> Mean:
        """Return the mean after one more observation."""
        count = min(self.count + 1, MEMORY)
        return Mean(self.value + (value - self.value) / count, count)


@dataclass(slots=True)
class Speeds:
    """What was learned. `promised` is each node's speed from its benchmark, in any unit."""

    promised: Mapping[str, float] = field(default_factory=dict)
    usual: float = 1.0
    """What a node without a benchmark counts as."""
    work: dict[str, Mean] = field(default_factory=dict)
    """By task prefix; seconds on a node of speed 1."""
    corrections: dict[str, Mean] = field(default_factory=dict)
    """By node; logarithm of real ÷ promised speed."""

    def correction(self, node: str) -> float:
        """Return real ÷ promised speed of `node`; 1 while unobserved."""
        found = self.corrections.get(node)
        return math.exp(found.value) if found is not None else 1.0

    def speed(self, node: str) -> float:
        """Return the speed of `node` in the unit of `promised`."""
        return self.promised.get(node, self.usual) * self.correction(node)

    def observe(self, prefix: str, node: str, seconds: float) -> None:
        """Learn from one task that ran for `seconds` on `node`."""
        if seconds < SHORTEST:
            return
        known = self.work.get(prefix, Mean())
        if known.count:
            ratio = known.value / (seconds * self.promised.get(node, self.usual))
            bounded = max(-math.log(WIDEST), min(math.log(WIDEST), math.log(ratio)))
            self.corrections[node] = self.corrections.get(node, Mean()).with_value(bounded)
        self.work[prefix] = known.with_value(seconds * self.speed(node))

    def seed(self, corrections: Mapping[str, float]) -> None:
        """Start from what an earlier scheduler had observed, for nodes not observed here yet."""
        for node, correction in corrections.items():
            if correction > 0 and node not in self.corrections:
                self.corrections[node] = Mean(math.log(correction), 1)

    def keep(self, nodes: Mapping[str, object], prefixes: int = 10_000) -> None:
        """Forget nodes that left, and the oldest prefixes above `prefixes`."""
        for node in [node for node in self.corrections if node not in nodes]:
            del self.corrections[node]
        for prefix in list(self.work)[: max(0, len(self.work) - prefixes)]:
            del self.work[prefix]


def rest_done(total_work: float, own_work: float, total_speed: float, own_speed: float) -> float:
    """Return when all other nodes together would be done with everything, in seconds.

    `total_work` is what runs and waits in the mesh and `own_work` what this node has of it, in seconds at mean speed;
    speeds are relative to that mean. Infinite for a lone node.
    """
    others = total_speed - own_speed
    return (total_work - own_work) / others if others > 1e-9 else math.inf


def worth_starting(finish_here: float, rest: float, finish_elsewhere: float) -> bool:
    """Return whether a node should be given the next queued task although it is slow.

    It should if it would be done with it before the rest of the mesh is done with everything, or before any other
    node could be. In the tail of a run a slow node is thus left idle rather than holding the whole run up.
    """
    return finish_here <= max(rest, finish_elsewhere)
