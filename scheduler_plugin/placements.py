"""Remembers where the newest tasks were placed and why, at the price of one entry in a dict for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Placed = tuple[str, tuple[float, ...], float, float, int]
"""Node, score parts, penalty in seconds, time, and how many workers were compared; a tuple of plain values, which the
collector of garbage soon leaves alone."""


class Placements:
    """The newest placements by key, between half of `most` and `most`: the older half is dropped at once.

    Whoever adds to `newer` calls `turn` when `half` of them are there: a call less for every task.
    """

    def __init__(self, most: int) -> None:
        self.half = max(1, most // 2)
        self.newer: dict[Any, Placed] = {}
        self._older: dict[Any, Placed] = {}

    def turn(self) -> None:
        """Drop the older half; the newer one is the older from now on."""
        self._older, self.newer = self.newer, {}

    def get(self, key: Any) -> Placed | None:
        """Return the newest placement of `key`, None when it is not remembered."""
        found = self.newer.get(key)
        return found if found is not None else self._older.get(key)

    def newest(self, count: int) -> list[tuple[Any, Placed]]:
        """Return the `count` newest, the newest first."""
        return list(itertools.islice(self._backwards(), count))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys, newest first."""
        return (key for key, _ in self._backwards())

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self.newer.keys() | self._older.keys())

    def _backwards(self) -> Iterator[tuple[Any, Placed]]:
        yield from reversed(self.newer.items())
        yield from ((key, placed) for key, placed in reversed(self._older.items()) if key not in self.newer)
