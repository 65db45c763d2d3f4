"""How fast one core is: a short measurement at the first join, kept for this CPU and Python.

A pass is one turn of `_turns`: integer, float and list work as Python tasks do it. Measured in CPU time, best of
several rounds, so that whatever else runs at the moment does not make a machine look slow.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

from computemesh.identity import write_private

VERSION = 1
"""Grows when the measurement changes, so that kept figures are not mixed."""
ROUNDS = 5
TURNS = 200_000


def _turns(count: int) -> float:
    number, total, cells = 12345, 0.0, [0.0] * 64
    for turn in range(count):
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        total += number / (turn + 1.0)
        cells[number & 63] = total
    return total


def measure(clock: Callable[[], float] = time.thread_time) -> float:
    """Return passes per second on one core, in millions. Takes a few hundred milliseconds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = clock()
        _turns(TURNS)
        best = min(best, clock() - began)
    return TURNS / max(best, 1e-9) / 1e6


def core_speed(kept: Path, cpu_model: str, measured: Callable[[], float] = measure) -> float:
    """Return the speed of this machine's cores, from the file `kept` when it is about the same CPU and Python."""
    about = {"version": VERSION, "cpu": cpu_model, "python": platform.python_version()}
    try:
        found = json.loads(kept.read_text("utf-8"))
        speed = float(found.pop("speed"))
        if found == about and speed > 0:
            return speed
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not measured yet, or unreadable: measure
    speed = measured()
    write_private(kept, json.dumps({**about, "speed": speed}).encode())
    return speed
