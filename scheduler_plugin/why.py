"""Says in words why a task went where it went, or why it goes nowhere."""

from __future__ import annotations

from collections.abc import Iterable

from computemesh.gates import in_words, unmet
from computemesh.node import Node
from computemesh.protocol import plain
from computemesh.requirement import Requirement
from computemesh.scores import Score

from .capacity import Free, fitting, lacking


def asked_in_words(requirement: Requirement) -> str:
    """Return what a task asks, such as ``2 GPUs with 24 GB, CUDA 12.2``."""
    parts: list[str] = []
    if requirement.cpu:
        parts.append(f"{requirement.cpu:g} core{'s' * (requirement.cpu != 1)}")
    if requirement.ram:
        parts.append(f"{in_words(requirement.ram)} RAM")
    if requirement.gpu or requirement.vram:
        count = requirement.gpu or 1
        with_memory = f" with {in_words(requirement.vram)}" if requirement.vram else ""
        parts.append(f"{count:g} GPU{'s' * (count > 1)}{with_memory}")
    if requirement.cuda != (0, 0):
        parts.append("CUDA {}.{}".format(*requirement.cuda))
    if requirement.network:
        parts.append(f"{requirement.network / 1e6:.0f} Mbit/s")
    if requirement.battery:
        parts.append(f"{requirement.battery:.0f} % battery")
    if requirement.pool:
        parts.append(f"a node of pool {requirement.pool!r}")
    if requirement.packages:
        parts.append(f"the packages {', '.join(requirement.packages)}")
    return ", ".join(parts) or "nothing"


def unschedulable_sentence(requirement: Requirement, nodes: Iterable[Node]) -> str:
    """Return what is missing for a task that no node can run, naming the node that comes closest."""
    needs = f"needs {asked_in_words(requirement)}"
    lacks = [(unmet(requirement, node), node) for node in nodes]
    if not lacks:
        return f"{needs}; nothing is known of any node"
    lack, best = min(
        lacks,
        key=lambda pair: (len(pair[0]), _distance(requirement, pair[1]), pair[1].name),
    )
    only_gpus = all("GPU" in text for text in lack)
    if only_gpus and best.facts.gpus:
        has = f"{len(best.facts.gpus)} with {in_words(max(gpu.vram for gpu in best.facts.gpus))}"
        return f"{needs}; the best node has {has} ({best.name})"
    return f"{needs}; the best node, {best.name}, {' and '.join(lack)}"


def _distance(requirement: Requirement, node: Node) -> float:
    """Return how far `node` is from the counted parts of a requirement, as the sum of missing shares."""
    facts = node.facts
    gpu_memory = max((gpu.vram for gpu in facts.gpus), default=0)
    pairs = (
        (requirement.cpu, facts.cores),
        (requirement.ram, facts.ram),
        (requirement.gpu, len(facts.gpus)),
        (requirement.vram, gpu_memory),
    )
    return sum(max(0.0, 1 - has / asked) for asked, has in pairs if asked)


def parts_of(score: Score | None) -> dict[str, float]:
    """Return a score as plain rounded numbers."""
    found: dict[str, float] = plain(score) if score is not None else {}
    return {name: round(value, 4) for name, value in found.items()}


def reasons_against(
    requirement: Requirement, node: Node | None, gates: tuple[str, ...], free: Free
) -> tuple[list[str], bool]:
    """Return why a node is not eligible now, and whether it could ever be."""
    lacks = list(unmet(requirement, node)) if node is not None and requirement else []
    if node is None and requirement:
        lacks = ["nothing is known of it"]
    reasons = [*gates, *lacks]
    if not lacks and requirement and fitting(requirement, free) is None:
        reasons.append(lacking(requirement, free))
    return reasons, not lacks


def sentence(
    key: str,
    state: str,
    requirement: Requirement,
    chosen: str,
    eligible: int,
    excluded: int,
    possible: bool,
    nodes: Iterable[Node],
) -> str:
    """Return the answer in one sentence."""
    if state == "unknown":
        return f"No task {key!r} is known: it was never submitted, or nobody wants its result any more"
    if chosen:
        others = f"; {excluded} other{'s' * (excluded != 1)} could not run it" if excluded else ""
        if state == "processing":
            return f"{key} runs or waits on {chosen}{others}"
        now = {"memory": "is done", "forgotten": "its result has been released"}.get(state, f"is {state}")
        return f"{key} ran on {chosen} and {now}{others}"
    if requirement and not possible:
        missing = unschedulable_sentence(requirement, nodes)
        return f"{key} is unschedulable: it {missing}. It starts when such a node joins"
    if state in ("no-worker", "queued"):
        if eligible:
            return f"{key} waits for its turn: {eligible} node{'s' * (eligible != 1)} can run it"
        return f"{key} waits: no node can take it now, {excluded} node{'s' * (excluded != 1)} excluded"
    if state == "waiting":
        return f"{key} waits for the results it depends on"
    return f"{key} is {state}; where it was placed is not remembered"
