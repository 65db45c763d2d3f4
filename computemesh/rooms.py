"""Finds what the rooms bring: names of the public API and groups of commands, both by entry point.

The core imports no room; a room announces itself in ``pyproject.toml``. This is also how a third party extends
ComputeMesh without our knowing.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

API_GROUP = "computemesh.api"
COMMANDS_GROUP = "computemesh.commands"


def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def public_name(name: str) -> Any:
    """Return the object called `name` from the first room that exports it.

    Raises:
        AttributeError: no room exports `name`.
    """
    for point in _points(API_GROUP):
        module = point.load()
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module 'computemesh' has no attribute {name!r}")


def command_groups() -> tuple[Any, ...]:
    """Return each room's click group, in order of the rooms' names."""
    return tuple(point.load() for point in _points(COMMANDS_GROUP))
