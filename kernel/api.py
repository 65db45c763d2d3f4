"""What this room brings to ``import computemesh``; each name is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Mesh": "connection",
    "MeshFuture": "futures",
    "as_completed": "tasks",
    "cancel": "tasks",
    "connect": "connection",
    "gather": "tasks",
    "load_ipython_extension_into": "extension",
    "map": "tasks",
    "nodes": "tasks",
    "run": "magic",
    "submit": "tasks",
    "task": "tasks",
    "unload_ipython_extension_from": "extension",
    "why": "tasks",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __package__), name)
