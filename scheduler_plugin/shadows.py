"""Puts our methods over Dask's on one scheduler object, and takes them off again without trace.

Dask calls ``self.method(…)``, so an attribute on the instance shadows the method of the class. Tables that Dask filled
with bound originals when it was made (`handlers`, `stream_handlers`) are patched beside. Before anything is touched the
signatures are compared with the ones this plugin was written for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from computemesh.errors import ComputeMeshError

SUPPORTED = "2026.8.0"
"""The distributed version whose methods are shadowed."""

_MISSING: Any = object()


class UnsupportedDask(ComputeMeshError):
    """This distributed has methods that the plugin does not know."""


EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "Scheduler": {
        "valid_workers": ("self", "ts"),
        "is_rootish": ("self", "ts"),
        "worker_objective": ("self", "ts", "ws"),
        "decide_worker_non_rootish": ("self", "ts"),
        "decide_worker_rootish_queuing_enabled": ("self",),
        "decide_worker_rootish_queuing_disabled": ("self", "ts"),
        "bulk_schedule_unrunnable_after_adding_worker": ("self", "ws"),
        "stimulus_queue_slots_maybe_opened": ("self", "stimulus_id"),
        "handle_worker_status_change": ("self", "status", "worker", "stimulus_id"),
        "check_idle_saturated": ("self", "ws", "occ"),
        "rebalance": ("self", "keys", "workers", "stimulus_id"),
        "remove_worker": ("self", "address", "stimulus_id", "expected", "close"),
        "_reschedule": ("self", "key", "worker", "stimulus_id"),
        "remove_plugin": ("self", "name"),
        "unregister_scheduler_plugin": ("self", "name"),
    },
    "WorkStealing": {
        "stealing_objective": ("self", "ts", "ws", "occupancies"),
        "_get_thief": ("self", "scheduler", "ts", "potential_thieves", "occupancies"),
        "_combined_occupancy": ("self", "ws", "occupancies"),
        "move_task_request": ("self", "ts", "victim", "thief"),
        "move_task_confirm": ("self", "key", "state", "stimulus_id", "worker"),
    },
    "ShuffleSchedulerPlugin": {"_calculate_worker_for": ("self", "spec")},
    "ActiveMemoryManagerExtension": {"_find_recipient": ("self", "ts", "candidates", "pending_repl")},
}
"""The methods that are shadowed or relied on, with the names of their parameters."""


def check_signatures(owners: Iterable[Any], version: str) -> None:
    """Refuse a Dask whose shadowed methods are not the ones expected.

    Raises:
        UnsupportedDask: one is missing or takes other parameters; it is named.
    """
    for owner in owners:
        cls = next(
            (cls for cls in type(owner).__mro__ if cls.__name__ in EXPECTED),
            type(owner),
        )
        for name, expected in EXPECTED.get(cls.__name__, {}).items():
            _check(
                f"{cls.__name__}.{name}",
                getattr(type(owner), name, None),
                expected,
                version,
            )


def _check(label: str, function: Any, expected: tuple[str, ...], version: str) -> None:
    found = tuple(inspect.signature(function).parameters) if callable(function) else None
    if found != expected:
        has = "does not exist" if found is None else f"takes ({', '.join(found)})"
        raise UnsupportedDask(
            f"{label} {has} in distributed {version}, but ComputeMesh's scheduler plugin needs "
            f"({', '.join(expected)}): install distributed=={SUPPORTED} beside this ComputeMesh"
        )


class Shadows:
    """What was put over Dask's own, in order, so that it comes off in reverse."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def method(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        """Shadow the method `name` of the object `owner`."""
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, replacement)

        def undo() -> None:
            if vars(owner).get(name) is replacement:
                if before is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)

        self._undo.append(undo)

    def entry(self, table: MutableMapping[Any, Any], key: Any, replacement: Any) -> None:
        """Replace or add one entry of a table."""
        before = table.get(key, _MISSING)
        table[key] = replacement

        def undo() -> None:
            if table.get(key) is replacement:
                if before is _MISSING:
                    del table[key]
                else:
                    table[key] = before

        self._undo.append(undo)

    def on_removal(self, action: Callable[[], None]) -> None:
        """Call `action` when all is taken off."""
        self._undo.append(action)

    def remove(self) -> None:
        """Take everything off."""
        while self._undo:
            self._undo.pop()()
