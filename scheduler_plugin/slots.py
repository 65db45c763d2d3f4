"""How many more tasks a worker should be sent, seen by Dask's queueing: cores of large tasks, and no long over-commit.

Dask asks a module function, `distributed.scheduler._task_slots_available`, which serves every scheduler of the
process. It is replaced once for all of them and put back when the last plugin leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import distributed.scheduler as scheduler_module

from .roster import Place

SHORT = 0.1
"""Seconds of work on a thread up to which a worker may be sent a task more than it has threads: that one hides the
way from the scheduler, which is a hundredth of this."""

_places: dict[str, Place] = {}
_stock: list[Callable[[Any, float], int]] = []
_users: set[int] = set()


def install(user: object) -> None:
    """Count places from now on, for `user`."""
    if not _users:
        _stock.append(scheduler_module._task_slots_available)
        scheduler_module._task_slots_available = _slots_available
    _users.add(id(user))


def remove(user: object) -> None:
    """Stop for `user`; with the last one Dask's own function comes back."""
    _users.discard(id(user))
    if not _users and _stock:
        scheduler_module._task_slots_available = _stock.pop()
        _places.clear()


def watch(place: Place) -> None:
    """Let what stands in `place` count."""
    _places[place.address] = place


def forget(address: str) -> None:
    """The worker has left."""
    _places.pop(address, None)


def _slots_available(ws: Any, saturation_factor: float) -> int:
    place = _places.get(ws.address)
    if place is None or place.worker is not ws:
        return _stock[0](ws, saturation_factor)
    # Dask's own arithmetic: this runs twice for every task.
    busy = len(ws.processing) - len(ws.long_running) + place.extra_slots
    free: int = max(math.ceil(saturation_factor * ws.nthreads), 1) - busy
    if free > 0 and place.uneven and busy >= ws.nthreads and ws.occupancy * place.slowness > SHORT * ws.nthreads:
        return 0
    return free
