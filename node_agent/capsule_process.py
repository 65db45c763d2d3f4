"""Inside a capsule: one process that runs one task in its main thread and then ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from .frames import Buffer, Kind, pack, read_frame, unpack, write_frame


def run_task(run_spec: Any, data: Mapping[Any, Any], delay: float) -> dict[str, Any]:
    """Run a Dask task as a worker's thread would, and return Dask's own message about it.

    The raised exception itself stays here: it is in the message as bytes that only the user's side opens, so an
    exception that cannot be pickled, or read back, does the worker no harm.
    """
    import dask.config
    from distributed.exceptions import Reschedule
    from distributed.worker import _run_task_simple

    # What the task itself computes with Dask it computes here; there is no scheduler to ask.
    with dask.config.set(scheduler="threads"):
        message: dict[str, Any] = _run_task_simple(run_spec, data, delay)
    exception = message.pop("actual_exception", None)
    message.pop("type", None)
    if isinstance(exception, Reschedule):
        message["reschedule"] = True
    return message


class NotInCapsule(RuntimeError):
    """A task in a capsule asked for the worker or the scheduler."""


class _NoWorker:
    """Stands where `distributed.get_worker` looks for the worker."""

    def get(self) -> NoReturn:
        raise NotInCapsule(
            "This task runs in a capsule, a process of its own, and has no connection to the Dask worker or scheduler: "
            "get_worker(), get_client(), worker_client() and Dask's locks and queues are not available there. Run it "
            "with executor='default', or submit further work from the notebook"
        )


def serve(channel: socket.socket) -> None:
    """Wait for one task on `channel`, run it and send what came of it."""
    import distributed.worker

    import computemesh.output

    distributed.worker._worker_cvar = _NoWorker()
    sending = threading.Lock()

    def emit(topic: str, message: Mapping[str, Any]) -> None:
        part = msgspec.msgpack.encode((topic, dict(message)))
        with sending:
            write_frame(channel, Kind.EMIT, [part])

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    write_frame(channel, Kind.READY, [str(os.getpid()).encode()])
    try:
        frame = read_frame(channel)
    except EOFError:
        return
    threading.Thread(target=_end_with_worker, args=(channel,), name="capsule-watch", daemon=True).start()
    computemesh.output.install(emit)
    kind, parts = _interruptible(frame.parts)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(OSError), sending:
        write_frame(channel, kind, [_usage(), *parts])


def _interruptible(work: tuple[Buffer, ...]) -> tuple[Kind, list[Buffer]]:
    """Run what `work` holds; an interrupt may come at any moment in between."""
    try:
        # Blocked since the fork, so that an interrupt that comes early waits for this moment.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        outcome = _outcome(work)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return Kind.INTERRUPTED, [traceback.format_exc().encode()]
    return outcome


def _outcome(work: tuple[Buffer, ...]) -> tuple[Kind, list[Buffer]]:
    try:
        sys.path[:] = json.loads(bytes(work[0]))
        function, arguments = unpack(work[1:])
    except Exception as error:  # whatever the user's objects raise on being read
        return Kind.FAILED, [f"could not be read in its capsule: {_in_words(error)}".encode()]
    try:
        value = function(*arguments)
    except SystemExit as error:
        return Kind.FAILED, [f"called sys.exit({error.code!r}): let it return or raise instead".encode()]
    except Exception as error:  # run_task reports the task's own; this is anything around it
        return Kind.FAILED, [f"could not be run: {_in_words(error)}".encode()]
    try:
        return Kind.RESULT, pack(value)
    except Exception as error:  # whatever the result's own pickling raises
        found = value.get("result") if isinstance(value, dict) else value
        return Kind.FAILED, [
            f"returned a {type(found).__module__}.{type(found).__qualname__}, which cannot be sent back: "
            f"{_in_words(error)}".encode()
        ]


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _usage() -> bytes:
    from .processes import peak_memory

    times = os.times()
    spent = times.user + times.system + times.children_user + times.children_system
    return json.dumps({"cpu": spent, "peak": peak_memory(), "stop": time.monotonic()}).encode()


def _end_with_worker(channel: socket.socket) -> None:
    """The worker never sends a second frame: what can be read is its end."""
    with contextlib.suppress(OSError):
        channel.recv(1)
    os.killpg(0, signal.SIGKILL)
