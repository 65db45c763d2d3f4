"""Brings the live output of cells from Dask's event stream to the cell that waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any


class OutputRouter:
    """Sorts one client's output messages by run.

    There is one topic for each client, however many cells it runs: the scheduler keeps a bounded number of a topic's
    events, but never forgets a topic. Messages are only queued here; the cell's own thread prints them, so that
    nothing appears under another cell.
    """

    def __init__(self) -> None:
        self._queues: dict[str, SimpleQueue[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def listening(self, client: Any, run: str) -> Iterator[SimpleQueue[dict[str, Any]]]:
        """Yield the queue that `run`'s messages come to."""
        queue: SimpleQueue[dict[str, Any]] = SimpleQueue()
        with self._lock:
            self._queues[run] = queue
        # Said anew for each run, since a restarted scheduler knows no subscriptions; it costs one small message.
        client._event_handlers.pop(topic_of(client), None)
        client.subscribe_topic(topic_of(client), self.receive)
        try:
            yield queue
        finally:
            with self._lock:
                self._queues.pop(run, None)

    def receive(self, event: tuple[float, Any]) -> None:
        """Take one event from Dask; called in its event loop."""
        message = event[1]
        queue = self._queues.get(message.get("run", "")) if isinstance(message, dict) else None
        if queue is not None:
            queue.put(message)


def topic_of(client: Any) -> str:
    """Return the topic of a client's output."""
    return f"mesh-output-{client.id}"
