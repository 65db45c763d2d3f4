"""Where a running task sends what it prints: one small seam between the code that runs and the process around it.

A capsule installs its emitter before the task runs; a task in a plain Dask thread uses the worker's event log.
Whoever wants to talk to the notebook calls `emit` and knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Emitter = Callable[[str, Mapping[str, Any]], None]
"""Called with a topic and a message of plain JSON-like data (str, numbers, bytes, lists, dicts)."""

_process_emitter: Emitter | None = None


def install(emitter: Emitter | None) -> None:
    """Make `emitter` the one of this process; a capsule does so once, at its start."""
    global _process_emitter  # one process runs one task; that is what a capsule is
    _process_emitter = emitter


def current() -> Emitter:
    """Return the emitter of the task that calls; unlike `emit` it may then be used from any thread.

    Raises:
        RuntimeError: called outside a task.
    """
    if _process_emitter is not None:
        return _process_emitter
    try:
        from distributed import get_worker

        worker = get_worker()
    except (ImportError, ValueError):
        raise RuntimeError("emit() was called outside a task that runs on the mesh") from None
    return lambda topic, message: worker.log_event(topic, dict(message))


def emit(topic: str, message: Mapping[str, Any]) -> None:
    """Send `message` to whoever listens to `topic` at the notebook.

    Raises:
        RuntimeError: called outside a task.
    """
    current()(topic, message)
