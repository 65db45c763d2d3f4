"""How good a node is for the next task: NodeScore, its parts, and the penalty in seconds that placement adds.

NodeScore = 0.35 CPU + 0.25 memory + 0.15 GPU + 0.15 reliability + 0.10 network, each part in 0…1 (DESIGN.md,
section 4). Candidates are ordered by NodeScore × (0.8 + 0.1 battery + 0.1 idleness).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .node import Node, Reliability


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each part counts, from configuration (``computemesh.scores``)."""

    cpu: float = 0.35
    memory: float = 0.25
    gpu: float = 0.15
    reliability: float = 0.15
    network: float = 0.10
    base: float = 0.8
    battery: float = 0.1
    idleness: float = 0.1
    seconds: float = 2.0
    """Penalty in seconds of the worst possible node against the best possible."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The mesh's best in each measure: what the parts are relative to."""

    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """A node's score with its parts, each in 0…1."""

    cpu: float
    memory: float
    gpu: float
    reliability: float
    network: float
    battery: float
    idleness: float
    total: float
    """NodeScore."""
    order: float
    """What candidates are ordered by."""


def speed_of(node: Node) -> float:
    """Return how fast one task runs on `node`, in the join benchmark's unit corrected by what was observed.

    An unmeasured node counts as 1, so that a mesh without measurements treats all nodes alike.
    """
    return (node.facts.core_speed or 1.0) * (node.speed or 1.0)


def free_cpu(node: Node) -> float:
    """Return the CPU that others leave, in the join benchmark's unit."""
    others = node.sample.cpu_others / 100 if node.sample else 0.0
    return speed_of(node) * node.facts.cores * max(0.0, 1.0 - others)


def free_memory(node: Node) -> float:
    """Return the memory in bytes that a task could use now."""
    return float(min(node.facts.ram, node.sample.ram_free) if node.sample else node.facts.ram)


def free_gpu(node: Node) -> float:
    """Return the free GPU memory in bytes, or all of it while unsampled."""
    if node.sample is not None and node.sample.gpus:
        return float(sum(gpu.vram_free for gpu in node.sample.gpus))
    return float(sum(gpu.vram for gpu in node.facts.gpus))


def largest_of(nodes: Iterable[Node]) -> Largest:
    """Return the best free capacity in the mesh, measure by measure."""
    found = [(free_cpu(node), free_memory(node), free_gpu(node)) for node in nodes]
    if not found:
        return Largest()
    cpu, memory, gpu = (max(column) for column in zip(*found, strict=True))
    return Largest(cpu, memory, gpu)


def reliability_of(loans: Reliability) -> float:
    """Return the share of loans that ended by plan, Beta(2, 1)-smoothed so that a new node starts at 2/3."""
    return (loans.kept + 2.0) / (loans.kept + loans.broken + 3.0)


def network_of(round_trip: float, throughput: float) -> float:
    """Return 0…1 from a round trip in seconds and a throughput in bits per second, half each.

    10 ms and 1 Gbit/s score one half; a node that measured nothing counts as such a one.
    """
    near = 0.010 / (0.010 + round_trip) if round_trip > 0 else 0.5
    wide = throughput / (throughput + 1e9) if throughput > 0 else 0.5
    return (near + wide) / 2


def score(node: Node, largest: Largest, weights: Weights) -> Score:
    """Return the score of `node` in a mesh whose best capacities are `largest`."""
    sample = node.sample
    on_battery = sample is not None and sample.battery is not None and not sample.charging
    parts = {
        "cpu": _share(free_cpu(node), largest.cpu),
        "memory": _share(free_memory(node), largest.memory),
        "gpu": _share(free_gpu(node), largest.gpu),
        "reliability": reliability_of(node.reliability),
        "network": network_of(node.network.round_trip, node.network.throughput),
        "battery": (sample.battery or 0.0) / 100 if on_battery and sample else 1.0,
        "idleness": max(0.0, 1.0 - sample.cpu_others / 100) if sample else 1.0,
    }
    total = sum(getattr(weights, name) * parts[name] for name in ("cpu", "memory", "gpu", "reliability", "network"))
    factor = weights.base + weights.battery * parts["battery"] + weights.idleness * parts["idleness"]
    return Score(**parts, total=total, order=total * factor)


def _share(amount: float, best: float) -> float:
    return min(1.0, amount / best) if best > 0 else 0.0


def penalty(order: float, weights: Weights) -> float:
    """Return the seconds that placement adds to a node's estimated start for its place in the order."""
    return weights.seconds * (1.0 - min(1.0, max(0.0, order)))
