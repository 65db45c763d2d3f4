"""``mesh.preset(name)``: settings that go together for one kind of work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from computemesh.errors import BadRequirement

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Thousands of calls of milliseconds: no process per call, chunks that fill a slot for a while.
    "many-small": {
        "computemesh.tasks.executor": "thread",
        "computemesh.tasks.retries": 0,
        "array.chunk-size": "64MiB",
        "optimization.fuse.ave-width": 4,
    },
    # A few calls of minutes or hours: each in a process of its own that can be ended and moved, and tried again.
    "few-large": {
        "computemesh.tasks.executor": "capsule",
        "computemesh.tasks.retries": 2,
        "array.chunk-size": "256MiB",
        "optimization.fuse.ave-width": 1,
    },
    # Calls that wait for disks and networks, which fail now and then.
    "io": {
        "computemesh.tasks.executor": "thread",
        "computemesh.tasks.retries": 3,
        "array.chunk-size": "128MiB",
        "optimization.fuse.ave-width": 1,
    },
}


def preset(name: str) -> Any:
    """Apply settings for ``"many-small"``, ``"few-large"`` or ``"io"`` work, for good or within a ``with`` block.

    They are Dask's configuration: `PRESETS` lists them, and anything set afterwards counts over them. What
    `@mesh.task` or a call says counts over ``computemesh.tasks``.

    Raises:
        BadRequirement: there is no such preset; names those that there are.
    """
    import dask.config

    if name not in PRESETS:
        raise BadRequirement(f"There is no preset {name!r}: there are {', '.join(map(repr, PRESETS))}")
    return dask.config.set(dict(PRESETS[name]))
