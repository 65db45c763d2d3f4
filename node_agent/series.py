"""Capsules that have ended one run of a cell and wait for the next run of the same cell, for a moment.

A loop of many short runs would otherwise pay for a fork, its imports and its end with each of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from .spares import Capsule

KEPT_SECONDS = 0.5
"""How long a capsule waits for the next run of its series."""


class Series:
    """The waiting capsules of one worker, by series."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, deque[tuple[Capsule, float]]] = {}

    def take(self, series: str) -> Capsule | None:
        """Return a capsule that waits for this series and lives; None when there is none."""
        with self._lock:
            waiting = self._kept.get(series)
            while waiting:
                # The newest, so that those that are not needed any more grow old.
                capsule, _ = waiting.pop()
                if not capsule.ended.is_set():
                    return capsule
                capsule.channel.close()
            self._kept.pop(series, None)
        return None

    def keep(self, series: str, capsule: Capsule) -> None:
        """Let a capsule wait for the next run."""
        with self._lock:
            self._kept.setdefault(series, deque()).append((capsule, time.monotonic()))

    def end_old(self, before: float) -> None:
        """End those that have waited since before a monotonic time."""
        with self._lock:
            for series, waiting in list(self._kept.items()):
                while waiting and waiting[0][1] <= before:
                    capsule, _ = waiting.popleft()
                    capsule.kill()
                    capsule.channel.close()
                if not waiting:
                    del self._kept[series]
