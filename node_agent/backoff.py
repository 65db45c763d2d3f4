"""How long to wait before trying again: longer each time, within a bound, and never all machines at once."""

from __future__ import annotations

from random import Random


class BackOff:
    """Delays in seconds that double from `first` to `most`, each shortened by up to half at random."""

    def __init__(self, first: float, most: float, random: Random) -> None:
        self._first = first
        self._most = most
        self._random = random
        self._tries = 0

    def next(self) -> float:
        """Return the next delay."""
        # The exponent is bounded too, lest a year of tries overflow.
        whole = min(self._most, self._first * 2.0 ** min(self._tries, 40))
        self._tries += 1
        return whole * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin anew after a success."""
        self._tries = 0
