"""The executor ``capsule`` of a Dask worker: each task in a process of its own that can be ended at once."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
from distributed.diagnostics.plugin import WorkerPlugin

from computemesh.config import number, seconds
from computemesh.errors import ComputeMeshError, Interrupted, TaskDied
from computemesh.protocol import CAPSULE_SIGNAL, SECEDE, SERIES
from computemesh.task_spec import task_spec_from

from .capsule_process import run_task
from .endings import Deliver, Died, End, Fail, NeverStarted, Returned, Unusable, Unwound, Verdict, Wish, verdict
from .frames import FINAL, Buffer, Kind, pack, read_frame, unpack, write_frame
from .processes import peak_memory
from .rights import Rights
from .series import KEPT_SECONDS, Series
from .spares import Capsule, Spares

logger = logging.getLogger("computemesh.node_agent")

NAME = "capsule"
REMEMBERED = 1000
"""Ended tasks whose usage can still be asked for."""
UNDELIVERED = 1000
"""Messages of one task that may wait for the worker's loop before the task itself has to wait."""
MOST_CAPSULES = 256
"""Tasks that wait for others hold no slot, but a capsule and a thread that reads it."""
ATTEMPTS = 3
"""Capsules that may end while they read one task, before the task is given up."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one task used. Memory in bytes, times in seconds."""

    key: str
    cpu: float
    peak: int
    seconds: float
    handover: float
    """From the worker's decision to run the task until its capsule had everything."""


class Run:
    """One task on its way through a capsule."""

    def __init__(self, key: str, limit: float | None, series: str = "") -> None:
        self.key = key
        self.limit = limit
        self.series = series
        """What tasks have in common that may run one after another in the same process; empty for none."""
        self.again = False
        """Whether its capsule can take another task."""
        self.wish = Wish.NONE
        self.peak = 0
        self.began = time.monotonic()
        self._lock = threading.Lock()
        self._capsule: Capsule | None = None

    def attach(self, capsule: Capsule) -> bool:
        """Give the run its capsule; returns False when it must not start any more."""
        with self._lock:
            if self.wish is not Wish.NONE:
                return False
            self._capsule = capsule
            return True

    def detach(self) -> bool:
        """Take the capsule from the run; returns whether it may serve another: nobody has wanted this one's end."""
        with self._lock:
            self._capsule = None
            return self.again and self.wish is Wish.NONE

    def interrupt(self, wish: Wish) -> None:
        """Ask the task to stop: a KeyboardInterrupt in its main thread."""
        with self._lock:
            self.wish = self.wish or wish
            if self._capsule is not None:
                self._capsule.interrupt()

    def kill(self, wish: Wish) -> None:
        """End the task's process at once."""
        with self._lock:
            # A cancel outweighs all: nobody waits for the task's error any more.
            self.wish = wish if wish is Wish.CANCEL else self.wish or wish
            if self._capsule is not None:
                self.peak = max(self.peak, peak_memory(self._capsule.pid))
                self._capsule.kill()

    def look(self) -> int:
        """Note the capsule's peak memory so far and return it."""
        capsule = self._capsule
        if capsule is not None:
            self.peak = max(self.peak, peak_memory(capsule.pid))
        return self.peak


class CapsuleExecutor(Executor):
    """Runs a worker's tasks in capsules. `install` puts it into a worker."""

    def __init__(self, worker: Any, spares: int | None = None) -> None:
        wanted = int(number("agent.capsule-spares")) if spares is None else spares
        self.worker = worker
        self.node = str(worker.name)
        self.grace = seconds("notebook.interrupt-grace")
        self.spares = Spares(wanted)
        self._series = Series()
        self.running: dict[str, Run] = {}
        self.ended: deque[Usage] = deque(maxlen=REMEMBERED)
        self.counts = {"finished": 0, "failed": 0, "ended": 0}
        self._rights = Rights(worker)
        self._threads = ThreadPoolExecutor(MOST_CAPSULES, thread_name_prefix="capsule")

    # ------------------------------------------------------------ what Dask calls

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run one task as `distributed.Worker.execute` asks for it, on the worker's loop.

        The arguments are the task's specification, its data and the clock's delay; `fn`, Dask's own runner, is
        replaced by the one inside the capsule.
        """
        run_spec, data, delay = args
        key = run_spec.key
        run = Run(key, self._limit(key), self._series_of(key))
        self.running[key] = run
        return self._threads.submit(self._through, run, run_spec, data, delay)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all capsules."""
        for run in list(self.running.values()):
            run.kill(Wish.CANCEL)
        self.spares.close()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    # ------------------------------------------------------------ what the mesh calls

    def signal(self, key: str, how: str = "interrupt", **_kwargs: Any) -> None:
        """Stop the task `key`, on the worker's loop: ``interrupt`` it, or ``kill`` it at once.

        A task that is not here, or no longer, is no error: the message may have crossed its end.
        """
        run = self.running.get(key)
        if how not in ("interrupt", "kill"):
            logger.warning("capsule %s: unknown signal %r", key, how)
        elif run is None:
            logger.info("capsule %s: %s came when it was not running", key, how)
        elif how == "kill":
            run.kill(Wish.KILL)
        else:
            self._interrupt(run, Wish.INTERRUPT)

    def secede(self, key: str, **_kwargs: Any) -> None:
        """Let others have the slot of `key`, which uses the mesh itself and may wait for them; on the worker's loop."""
        from distributed.worker_state_machine import SecedeEvent

        run = self.running.get(key)
        if run is not None:
            seconds_so_far = time.monotonic() - run.began
            self.worker.handle_stimulus(
                SecedeEvent(key=key, compute_duration=seconds_so_far, stimulus_id=f"mesh-secede-{time.time()}")
            )

    def cancel(self, key: str) -> None:
        """End `key` because the scheduler no longer wants it here."""
        run = self.running.get(key)
        if run is not None:
            run.kill(Wish.CANCEL)

    def metrics(self, _worker: Any = None) -> dict[str, Any]:
        """Return what goes into the worker's heartbeat: executors, counts, and the memory of running capsules."""
        runs = list(self.running.values())
        return {
            "executors": [NAME],
            "capsules": len(runs),
            "spares": self.spares.ready,
            "memory": sum(run.look() for run in runs),
            **self.counts,
        }

    # ------------------------------------------------------------ on the loop

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self.worker.loop.asyncio_loop
        return loop

    def _limit(self, key: str) -> float | None:
        task = self.worker.state.tasks.get(key)
        asked = (task.annotations or {}).get("mesh") if task is not None else None
        limit = asked.get("timeout") if isinstance(asked, Mapping) else None
        return task_spec_from({"timeout": limit}).timeout or None

    def _series_of(self, key: str) -> str:
        task = self.worker.state.tasks.get(key)
        return str((task.annotations or {}).get(SERIES, "")) if task is not None else ""

    def _interrupt(self, run: Run, wish: Wish) -> None:
        run.interrupt(wish)
        self._loop.call_later(self.grace, run.kill, wish)

    def _later(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, act, *arguments)

    def _end_old_capsules(self) -> None:
        self._series.end_old(time.monotonic() - KEPT_SECONDS + 0.01)

    def _out_of_time(self, run: Run) -> None:
        if self.running.get(run.key) is run:
            self._interrupt(run, Wish.TIMEOUT)

    # ------------------------------------------------------------ one thread a task

    def _through(self, run: Run, run_spec: Any, data: Mapping[Any, Any], delay: float) -> dict[str, Any]:
        start = time.time() + delay
        value: Any = None
        try:
            try:
                # The worker's own path, because it grows: uploaded files, environments.
                head = json.dumps({"path": sys.path, "again": bool(run.series)}).encode()
                parts = [head, *pack((run_task, (run_spec, data, delay)))]
            except Exception as error:  # whatever the user's objects raise on being pickled
                return self._failed(TaskDied(f"Cannot be sent to its capsule: {type(error).__name__}: {error}"), start)
            try:
                end, value = self._in_capsule(run, parts)
            except ComputeMeshError as error:
                return self._failed(error, start)
            decided = verdict(end, run.wish, self.node, run.limit, self.grace)
            return self._message(decided, value, start)
        finally:
            if self.running.get(run.key) is run:
                del self.running[run.key]

    def _in_capsule(self, run: Run, parts: list[Buffer]) -> tuple[End, Any]:
        for _attempt in range(ATTEMPTS):
            capsule = self._series.take(run.series) or self.spares.take()
            try:
                if not run.attach(capsule):
                    return NeverStarted(), None
                try:
                    write_frame(capsule.channel, Kind.RUN, parts)
                except OSError:
                    # It starts nothing before it has all; so another may try, unless this one was ended on purpose.
                    if run.wish is Wish.NONE:
                        continue
                    return NeverStarted(), None
                handed = time.monotonic()
                if run.limit is not None:
                    self._later(run.limit, self._out_of_time, run)
                return self._listen(run, capsule, handed)
            finally:
                self._rights.forget(run.key)
                if run.detach():
                    self._series.keep(run.series, capsule)
                    self._later(KEPT_SECONDS, self._end_old_capsules)
                else:
                    # The result is here, or there will be none. A thread that the task left running ends with it.
                    capsule.kill()
                    capsule.channel.close()
        raise TaskDied(
            f"The task could not be handed to a capsule on {self.node}: {ATTEMPTS} of them ended while they read it; "
            "most often the node has too little memory for its arguments"
        )

    def _listen(self, run: Run, capsule: Capsule, handed: float) -> tuple[End, Any]:
        """Pass on what the capsule emits until its end."""
        undelivered = threading.BoundedSemaphore(UNDELIVERED)
        try:
            while (frame := read_frame(capsule.channel)).kind not in FINAL:
                if frame.kind is Kind.ASK:
                    write_frame(capsule.channel, Kind.ANSWER, [self._rights.answer(run.key, bytes(frame.parts[0]))])
                    continue
                undelivered.acquire()
                self._loop.call_soon_threadsafe(self._emitted, bytes(frame.parts[0]), undelivered)
        except (EOFError, OSError, ValueError):
            # The stream's end comes a moment before the zygote's notice of how it ended.
            if not capsule.ended.wait(0.5):
                capsule.kill()
                capsule.ended.wait(10.0)
            self._remember(run, capsule.cpu, 0, handed)
            return Died(capsule.code), None
        about = json.loads(bytes(frame.parts[0]))
        self._remember(run, about["cpu"], about["peak"], handed)
        run.again = about["again"]
        if about["later"]:
            self.spares.preload_later()
        return _read_final(frame.kind, frame.parts)

    def _remember(self, run: Run, cpu: float, peak: int, handed: float) -> None:
        seconds = time.monotonic() - run.began
        self.ended.append(Usage(run.key, cpu, max(peak, run.peak), seconds, handed - run.began))

    def _emitted(self, packed: bytes, undelivered: threading.BoundedSemaphore) -> None:
        undelivered.release()
        topic, message = msgspec.msgpack.decode(packed)
        self.worker.log_event(topic, message)

    # ------------------------------------------------------------ Dask's messages

    def _message(self, decided: Verdict, value: Any, start: float) -> dict[str, Any]:
        if isinstance(decided, Fail):
            return self._failed(decided.error, start)
        if not isinstance(decided, Deliver):
            return self._rescheduled(start)
        message: dict[str, Any] = value
        if message["op"] == "task-finished":
            result = message["result"]
            message["type"] = type(result) if result is not None else None
            self.counts["finished"] += 1
        elif message.pop("reschedule", False):
            return self._rescheduled(start)
        else:
            message["actual_exception"] = TaskDied(message["exception_text"])
            self.counts["failed"] += 1
        return message

    def _failed(self, error: ComputeMeshError, start: float) -> dict[str, Any]:
        self.counts["ended" if isinstance(error, Interrupted) else "failed"] += 1
        return _erred(error, start)

    def _rescheduled(self, start: float) -> dict[str, Any]:
        from distributed.exceptions import Reschedule

        self.counts["ended"] += 1
        return _erred(Reschedule(), start)


def _read_final(kind: Kind, parts: tuple[Buffer, ...]) -> tuple[End, Any]:
    if kind is Kind.RESULT:
        try:
            return Returned(), unpack(parts[1:])
        except Exception as error:  # whatever the user's objects raise on being read
            return Unusable(f"returned what cannot be read back: {type(error).__name__}: {error}"), None
    text = bytes(parts[1]).decode(errors="replace")
    return (Unwound(text) if kind is Kind.INTERRUPTED else Unusable(text)), None


def _erred(error: Exception, start: float) -> dict[str, Any]:
    from distributed.core import error_message

    message: dict[str, Any] = error_message(error)
    return {
        **message,
        "op": "task-erred",
        "actual_exception": error,
        "thread": threading.get_ident(),
        "start": start,
        "stop": max(start, time.time()),
    }


class CapsulePlugin(WorkerPlugin):
    """Puts the executor into a worker and ends the capsule of a task that the scheduler takes away."""

    name = "computemesh-capsules"

    def __init__(self, spares: int | None = None) -> None:
        self._wanted = spares
        self.executor: CapsuleExecutor | None = None

    def setup(self, worker: Any) -> None:
        """Called by Dask with the worker."""
        if not hasattr(os, "fork"):
            logger.warning("this platform has no capsules yet; tasks run in threads")
            worker.metrics["mesh"] = lambda _worker: {"executors": []}
            return
        self.executor = worker.executors[NAME] = CapsuleExecutor(worker, self._wanted)
        worker.metrics["mesh"] = self.executor.metrics
        worker.stream_handlers[CAPSULE_SIGNAL] = self.executor.signal
        worker.stream_handlers[SECEDE] = self.executor.secede

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Called by Dask on each of a task's steps; `finish` is what was recommended, so a cancel says released."""
        if finish == "released" and start in ("executing", "long-running") and self.executor is not None:
            self.executor.cancel(key)
