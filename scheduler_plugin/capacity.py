"""Counted resources of one node: what is free, whether a task fits, and on which GPUs.

Pure arithmetic on frozen data. CPU in cores, memory in bytes, a GPU's share in 0…1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from computemesh.gates import in_words
from computemesh.node import NodeFacts
from computemesh.requirement import Requirement

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class GpuFree:
    """What is free of one GPU."""

    share: float
    vram: int


@dataclass(frozen=True, slots=True)
class Free:
    """What is free of one node; negative when its owner now lends less than tasks hold."""

    cpu: float = 0.0
    ram: int = 0
    gpus: tuple[GpuFree, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """What one task holds on a node; `gpus` are (index, share) pairs."""

    requirement: Requirement
    gpus: tuple[tuple[int, float], ...] = ()

    @property
    def extra_slots(self) -> int:
        """Worker threads beyond its own that the task's cores occupy."""
        return max(0, math.ceil(self.requirement.cpu - _ROUNDING) - 1)


def capacity_of(facts: NodeFacts, holds: Iterable[Hold] = ()) -> Free:
    """Return what is free of all that the node lends, less `holds`."""
    free = Free(facts.cores, facts.ram, tuple(GpuFree(1.0, gpu.vram) for gpu in facts.gpus))
    for hold in holds:
        free = _taken(free, hold)
    return free


def fitting(requirement: Requirement, free: Free) -> Hold | None:
    """Return how a task fits into what is free, or None."""
    if requirement.cpu > free.cpu + _ROUNDING or requirement.ram > free.ram:
        return None
    gpus = _allocated(requirement, free.gpus)
    return None if gpus is None else Hold(requirement, gpus)


def lacking(requirement: Requirement, free: Free) -> str:
    """Return in words what is taken just now, for a task that does not fit."""
    if requirement.cpu > free.cpu + _ROUNDING:
        return f"has {max(0.0, free.cpu):g} of {requirement.cpu:g} cores free now"
    if requirement.ram > free.ram:
        return f"has {in_words(max(0, free.ram))} of {in_words(requirement.ram)} RAM free now"
    return "has its GPUs taken by other tasks now"


def _taken(free: Free, hold: Hold) -> Free:
    gpus = list(free.gpus)
    for index, share in hold.gpus:
        if index < len(gpus):
            gpus[index] = GpuFree(gpus[index].share - share, gpus[index].vram - hold.requirement.vram)
    return replace(
        free,
        cpu=free.cpu - hold.requirement.cpu,
        ram=free.ram - hold.requirement.ram,
        gpus=tuple(gpus),
    )


def _allocated(requirement: Requirement, gpus: tuple[GpuFree, ...]) -> tuple[tuple[int, float], ...] | None:
    """Whole GPUs first, then the fraction; each the tightest fit, so that large GPUs stay free for large tasks."""
    whole = math.floor(requirement.gpu + _ROUNDING)
    fraction = requirement.gpu - whole if requirement.gpu - whole > _ROUNDING else 0.0
    shares = [1.0] * whole + [fraction] * bool(fraction)
    if not shares and requirement.vram:
        shares = [0.0]
    found: list[tuple[int, float]] = []
    for share in shares:
        candidates = [
            (gpu.share, gpu.vram, index)
            for index, gpu in enumerate(gpus)
            if gpu.share + _ROUNDING >= share
            and gpu.vram >= requirement.vram
            and all(index != taken for taken, _ in found)
        ]
        if not candidates:
            return None
        found.append((min(candidates)[2], share))
    return tuple(found)
