"""Whether a node may be given work at all, and whether it has what a task asks.

Gates come before scores: a node behind a closed gate gets nothing however good it is. A fact that nobody knows never
closes a gate; a requirement on an unknown fact is not met and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from .node import Harvest, Health, Node
from .requirement import Requirement


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that gates look at, from configuration (``computemesh.gates``)."""

    battery: float = 60.0
    """Least charge in percent of a node that is not on mains power."""
    temperature: float = 90.0
    """Hottest sensor in °C."""


def closed_gates(node: Node, limits: Limits) -> tuple[str, ...]:
    """Return why `node` may not be given work, one phrase a reason; empty when it may."""
    if node.health is Health.DEAD:
        # What a node that is not there last said of itself is no reason.
        return (node.refused or "is dead",)
    reasons: list[str] = []
    if node.refused:
        reasons.append(node.refused)
    if node.health is not Health.ALIVE:
        reasons.append(f"is {node.health}")
    if node.cordoned:
        reasons.append("is draining" if node.draining else "is cordoned")
    if node.harvest is not Harvest.LENDING:
        reasons.append(_HARVEST_WORDS[node.harvest])
    sample = node.sample
    if sample is not None:
        if sample.battery is not None and not sample.charging and sample.battery < limits.battery:
            reasons.append(f"runs on battery at {sample.battery:.0f} %, below {limits.battery:.0f} %")
        if sample.temperature is not None and sample.temperature > limits.temperature:
            reasons.append(f"is too hot: {sample.temperature:.0f} °C, above {limits.temperature:.0f} °C")
    return tuple(reasons)


_HARVEST_WORDS = {
    Harvest.OWNER: "is in use by its owner",
    Harvest.IDLE: "is idle but not lent yet",
    Harvest.SUSPENDED: "is suspended for its owner",
    Harvest.EVICTING: "is being given back to its owner",
}


def unmet(requirement: Requirement, node: Node) -> tuple[str, ...]:
    """Return what `node` lacks of `requirement` even when nothing else runs there, one phrase a lack.

    Counted resources are compared with all that the node lends; what other tasks hold at the moment is the
    scheduler's to subtract.
    """
    facts, sample = node.facts, node.sample
    lacks: list[str] = []
    if requirement.cpu > facts.cores:
        lacks.append(f"has {facts.cores:g} of {requirement.cpu:g} cores")
    if requirement.ram > facts.ram:
        lacks.append(f"has {in_words(facts.ram)} of {in_words(requirement.ram)} RAM")
    if requirement.gpu > len(facts.gpus):
        lacks.append(f"has {len(facts.gpus)} of {requirement.gpu:g} GPUs")
    if requirement.vram:
        best = max((gpu.vram for gpu in facts.gpus), default=0)
        wanted = max(1, round(requirement.gpu + 0.499))
        fitting = sum(gpu.vram >= requirement.vram for gpu in facts.gpus)
        if fitting < wanted:
            lacks.append(
                f"has {fitting} of {wanted} GPUs with {in_words(requirement.vram)}; its best has {in_words(best)}"
                if facts.gpus
                else f"has no GPU with {in_words(requirement.vram)}"
            )
    if requirement.cuda > facts.cuda:
        has = "has no CUDA" if facts.cuda == (0, 0) else "has CUDA {}.{}".format(*facts.cuda)
        lacks.append("{}, needs {}.{}".format(has, *requirement.cuda))
    if requirement.network > node.network.throughput:
        lacks.append(
            f"reaches {node.network.throughput / 1e6:.0f} of {requirement.network / 1e6:.0f} Mbit/s"
            if node.network.throughput
            else "has no measured network throughput"
        )
    charge = sample.battery if sample is not None and not sample.charging else None
    if charge is not None and charge < requirement.battery:
        lacks.append(f"has {charge:.0f} % of {requirement.battery:.0f} % battery")
    if requirement.pool and requirement.pool not in facts.pools:
        lacks.append(f"is not in pool {requirement.pool!r}")
    lacks.extend(_unmet_packages(requirement.packages, facts.packages))
    return tuple(lacks)


def _unmet_packages(wanted: tuple[str, ...], installed: dict[str, str] | None) -> list[str]:
    if not wanted:
        return []
    if installed is None:
        return ["does not say which packages it has"]
    from packaging.requirements import Requirement as PackageRequirement
    from packaging.utils import canonicalize_name

    lacks = []
    for text in wanted:
        package = PackageRequirement(text)
        version = installed.get(canonicalize_name(package.name))
        if version is None:
            lacks.append(f"has no {package.name}")
        elif not package.specifier.contains(version, prereleases=True):
            lacks.append(f"has {package.name} {version}, needs {package.specifier}")
    return lacks


def in_words(amount: float) -> str:
    """Return bytes as people say them, such as ``16 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"
