"""What a benchmark found, and how it is told."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Direction(StrEnum):
    """On which side of the goal a figure is good."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True)
class Result:
    """One figure with what it is compared with.

    `spread` is (lowest, highest) of the rounds. `detail` is shown line by line and goes into ``--json``.
    """

    name: str
    figure: float
    unit: str
    spread: tuple[float, float]
    goal: float
    direction: Direction
    compared_with: str
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.figure >= self.goal if self.direction is Direction.AT_LEAST else self.figure <= self.goal

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {**asdict(self), "met": self.met}

    def as_text(self) -> str:
        """Return the result as people read it."""
        unit = f" {self.unit}" if self.unit else ""
        low, high = self.spread
        lines = [
            f"{self.name}: {self.figure:.3g}{unit}   (rounds {low:.3g} to {high:.3g}{unit})",
            f"  goal: {self.direction} {self.goal:g}{unit}: {'reached' if self.met else 'MISSED'}",
            f"  compared with: {self.compared_with}",
        ]
        lines += [f"  {key}: {value}" for key, value in self.detail.items()]
        return "\n".join(lines)


def spread_of(values: Sequence[float]) -> tuple[float, float]:
    """Return lowest and highest."""
    return min(values), max(values)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(statistics.median(values))
