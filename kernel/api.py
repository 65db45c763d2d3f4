"""What this room brings to ``import computemesh``; each name is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .joblib_hook import register_when_imported

_HOMES = {
    "Executor": "executor",
    "Job": "jobs",
    "Mesh": "connection",
    "MeshFuture": "futures",
    "as_completed": "sending",
    "cancel": "sending",
    "connect": "connection",
    "gather": "sending",
    "job": "jobs",
    "jobs": "jobs",
    "keep": "jobs",
    "load_ipython_extension_into": "extension",
    "map": "sending",
    "nodes": "sending",
    "preset": "presets",
    "register_joblib": "joblib_hook",
    "run": "magic",
    "submit": "sending",
    "task": "tasks",
    "unload_ipython_extension_from": "extension",
    "upload": "uploads",
    "why": "sending",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __package__), name)


register_when_imported()
