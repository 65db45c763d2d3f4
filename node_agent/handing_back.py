"""What a worker does in the last moment before it is frozen: it hands back what it has not begun.

The scheduler hears, in this order on one stream, that the worker is paused and that these tasks are to be placed anew,
so they begin elsewhere at once. They are released here before that is said, and a paused worker begins nothing: a task
never runs twice on this way.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

FLUSH_SECONDS = 0.003
"""Longer than Dask collects messages for one batch."""
UNBEGUN = ("ready", "constrained", "waiting")
"""States of Dask's worker in which a task of its own has not begun."""


def hand_back(worker: Any) -> int:
    """Pause `worker` and have the scheduler place its unbegun tasks anew; return how many. In the worker's loop."""
    from distributed.core import Status
    from distributed.worker_state_machine import FreeKeysEvent

    if worker.status is not Status.running:
        return 0
    stimulus = f"mesh-hold-{time.time()}"
    worker.status = Status.paused
    keys = [ts.key for ts in worker.state.tasks.values() if ts.state in UNBEGUN]
    worker.handle_stimulus(FreeKeysEvent(keys=keys, stimulus_id=stimulus))
    for key in keys:
        # One that a running task's fetch still needs stays here; it is not ours to compute any more.
        worker.batched_send({"op": "reschedule", "key": key, "stimulus_id": stimulus})
    return len(keys)


async def sent(worker: Any) -> None:
    """Return once the scheduler's end of the stream has all that was said; what is still here would be frozen too."""
    stream = worker.batched_stream
    while stream.buffer or stream.comm is None:  # noqa: ASYNC110 - Dask has no event for it
        await asyncio.sleep(FLUSH_SECONDS)
    # The last batch has left the buffer and is being written.
    connection = getattr(stream.comm, "stream", None)
    await asyncio.sleep(FLUSH_SECONDS)
    while connection is not None and not connection.closed() and connection.writing():  # noqa: ASYNC110 - nor tornado
        await asyncio.sleep(FLUSH_SECONDS)


def go_on(worker: Any) -> None:
    """Let a paused worker take tasks again; in the worker's loop."""
    from distributed.core import Status

    if worker.status is Status.paused:
        worker.status = Status.running
