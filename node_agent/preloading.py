"""What the process that capsules are forked from imports: at once what every task needs, later what few do.

What few need would cost every machine memory and seconds of CPU at each start of its worker; so it is imported once a
task has shown that it is wanted here. Other rooms name their modules by entry points.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points

FIRST = ("cloudpickle", "msgspec.msgpack", "distributed.worker", "numpy.random", "computemesh.output")
FIRST_GROUP, LATER_GROUP = "computemesh.capsule_preload", "computemesh.capsule_preload_later"


@cache
def first() -> tuple[str, ...]:
    """Return the modules that are imported at once."""
    return (*FIRST, *(point.value for point in entry_points(group=FIRST_GROUP)))


@cache
def later() -> tuple[str, ...]:
    """Return the modules that are imported when they have been wanted."""
    return tuple(point.value for point in entry_points(group=LATER_GROUP))


def load(names: Iterable[str]) -> None:
    """Import modules, those that are installed, so that forks have them and the collector leaves them alone."""
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def wanted() -> bool:
    """Return whether a task in this process has used what is imported later."""
    return any(name in sys.modules for name in later())
