"""``/metrics`` for Prometheus: nodes by health and state, what they lend, how busy they are, and what was harvested.

One line a node only for what an administrator alerts on; names of people and addresses are in none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from computemesh.node import Harvest, Health, Node

from .ledger import Usage


class Metrics(Collector):
    """One picture of the mesh as Prometheus reads it."""

    def __init__(self, nodes: Iterable[Node], usage: Usage, starts: int) -> None:
        self._nodes, self._usage, self._starts = list(nodes), usage, starts

    def collect(self) -> Iterator[Metric]:
        """Yield all of it; called by prometheus_client."""
        yield self._counted("health", (node.health for node in self._nodes), Health)
        alive = [node for node in self._nodes if node.health is not Health.DEAD]
        yield self._counted("harvest", (node.harvest for node in alive), Harvest)
        lending = [node for node in alive if node.harvest is Harvest.LENDING and node.worker]
        for name, about, value in (
            ("cores_lent", "Cores lent now", sum(node.facts.cores for node in lending)),
            ("memory_lent_bytes", "Memory lent now", sum(node.facts.ram for node in lending)),
            ("gpus_lent", "GPUs lent now", sum(len(node.facts.gpus) for node in lending)),
        ):
            yield GaugeMetricFamily(f"computemesh_{name}", about, value=value)
        yield self._per_node("cpu_ours_percent", "CPU that the mesh uses of the machine", alive, "cpu_ours")
        yield self._per_node("cpu_others_percent", "CPU that its owner's programs use", alive, "cpu_others")
        yield CounterMetricFamily(
            "computemesh_scheduler_starts", "Starts of the Dask scheduler in this driver's life", value=self._starts
        )
        total = self._usage
        for name, about, value in (
            ("lent_seconds", "Machine seconds lent", total.lent),
            ("core_lent_seconds", "Core seconds lent", total.cores_lent),
            ("core_used_seconds", "Core seconds used", total.cores_used),
            ("gpu_used_seconds", "GPU seconds used", total.gpus_used),
        ):
            yield CounterMetricFamily(f"computemesh_{name}", f"{about}, as far as the ledger goes back", value=value)

    @staticmethod
    def _counted(what: str, found: Iterable[Any], kinds: Iterable[Any]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"computemesh_nodes_by_{what}", f"Nodes by {what}", labels=[what])
        counts = Counter(found)
        for kind in kinds:
            family.add_metric([str(kind)], counts[kind])
        return family

    @staticmethod
    def _per_node(name: str, about: str, nodes: Iterable[Node], attribute: str) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"computemesh_node_{name}", about, labels=["node"])
        for node in nodes:
            if node.sample is not None:
                family.add_metric([node.name], getattr(node.sample, attribute))
        return family


def exposition(metrics: Metrics) -> bytes:
    """Return the text that Prometheus reads (its exposition format 0.0.4)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return generate_latest(registry)
