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
from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from typing import Any, NoReturn

import msgspec

from .frames import Buffer, Kind, pack, read_frame, unpack, write_frame
from .preloading import wanted
from .processes import forget_peak_memory, peak_memory


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


class NotInCapsule(ValueError):
    """A task in a capsule asked for the worker. A ValueError, as Dask raises where there is none."""


class _NoWorker:
    """Stands where `distributed.get_worker` looks for the worker."""

    def get(self) -> NoReturn:
        raise NotInCapsule(
            "This task runs in a capsule, a process of its own, and has no connection to the Dask worker: "
            "get_worker() is not available there; get_client(), mesh.submit and mesh.map are"
        )


def _install_client() -> None:
    """Let Dask's `get_client` and `worker_client` give the client of the user that the task runs for."""
    import distributed
    import distributed.worker

    from computemesh.rooms import public_name

    opened: list[Any] = []

    def get_client(address: str | None = None, timeout: Any = None, resolve_address: bool = True) -> Any:
        # A task before this one in the same process may have closed it.
        if not opened or opened[0].client.status != "running":
            opened[:] = [public_name("connect")()]
        return opened[0].client

    @contextlib.contextmanager
    def worker_client(timeout: Any = None, separate_thread: bool = True) -> Iterator[Any]:
        yield get_client()

    for module in (distributed, distributed.worker, sys.modules["distributed.worker_client"]):
        for function in (get_client, worker_client):
            if hasattr(module, function.__name__):
                setattr(module, function.__name__, function)


def serve(channel: socket.socket) -> None:
    """Wait for a task on `channel`, run it and send what came of it; then another of its series, where one may follow.

    Only a process in which the task has left no thread and no child takes another.
    """
    import distributed.worker

    import computemesh.delegation
    import computemesh.output
    from computemesh.errors import Refused
    from computemesh.protocol import typed
    from computemesh.surroundings import Surroundings

    distributed.worker._worker_cvar = _NoWorker()
    _install_client()
    sending = threading.Lock()

    def emit(topic: str, message: Mapping[str, Any]) -> None:
        part = msgspec.msgpack.encode((topic, dict(message)))
        with sending:
            write_frame(channel, Kind.EMIT, [part])

    work: SimpleQueue[tuple[Buffer, ...]] = SimpleQueue()
    answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
    asking = threading.Lock()

    def ask(request: bytes) -> computemesh.delegation.Delegated:
        with asking:
            with sending:
                write_frame(channel, Kind.ASK, [request])
            answer = answers.get()
        if answer.get("error"):
            raise Refused(f"This task may not use the mesh: {answer['error']}")
        return typed(answer, computemesh.delegation.Delegated)

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_hear_worker, args=(channel, work, answers), name="capsule-watch", daemon=True).start()
    write_frame(channel, Kind.READY, [str(os.getpid()).encode()])
    around = Surroundings()
    again = True
    while again:
        task = work.get()
        around.restore()
        _ready_for_interrupts()
        computemesh.output.install(emit)
        computemesh.delegation.install(ask)
        forget_peak_memory()
        asked, began = json.loads(bytes(task[0])), _spent()
        kind, parts = _interruptible(asked["path"], task[1:])
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        again = asked["again"] and kind is Kind.RESULT and around.clean()
        with contextlib.suppress(OSError), sending:
            write_frame(channel, kind, [_usage(began, again), *parts])


def _ready_for_interrupts() -> None:
    """Hold interrupts back until the task begins; between tasks they are ignored: a late one was for the one before."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _interruptible(path: list[str], work: tuple[Buffer, ...]) -> tuple[Kind, list[Buffer]]:
    """Run what `work` holds; an interrupt may come at any moment in between."""
    try:
        # Blocked until now, so that an interrupt that comes early waits for this moment.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        outcome = _outcome(path, work)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return Kind.INTERRUPTED, [traceback.format_exc().encode()]
    return outcome


def _outcome(path: list[str], work: tuple[Buffer, ...]) -> tuple[Kind, list[Buffer]]:
    try:
        sys.path[:] = path
        function, arguments = unpack(work)
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


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _usage(began: float, again: bool) -> bytes:
    used = {"cpu": _spent() - began, "peak": peak_memory(), "stop": time.monotonic(), "again": again, "later": wanted()}
    return json.dumps(used).encode()


def _hear_worker(
    channel: socket.socket, work: SimpleQueue[tuple[Buffer, ...]], answers: SimpleQueue[dict[str, Any]]
) -> None:
    """Take the worker's tasks and answers in; its end is this process's end too."""
    with contextlib.suppress(OSError, EOFError, ValueError):
        while True:
            frame = read_frame(channel)
            if frame.kind is Kind.RUN:
                work.put(frame.parts)
            else:
                answers.put(json.loads(bytes(frame.parts[0])))
    os.killpg(0, signal.SIGKILL)
