"""Stops a run from outside: by a signal where it has the process for itself, else by an exception in its thread."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TaskInterrupt(KeyboardInterrupt):
    """Raised inside a run's thread from outside; for the code there it is an ordinary KeyboardInterrupt."""


def in_own_process() -> bool:
    """Return whether this task has the process for itself, as in a capsule."""
    return threading.current_thread() is threading.main_thread()


_threads: dict[str, set[Interruptible]] = {}
_threads_lock = threading.Lock()


class Interruptible:
    """One run that can be interrupted from another thread."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.thread = threading.get_ident()
        self.main = in_own_process()
        self.timed_out = False

    @contextmanager
    def interruptible(self, timeout: float | None) -> Iterator[None]:
        """Let `interrupt`, and the end of `timeout` seconds, stop what runs in the block."""
        timer = None
        if timeout is not None:
            timer = threading.Timer(timeout, self._time_out)
            timer.daemon = True
            timer.name = "computemesh-timeout"
            timer.start()
        with _threads_lock:
            _threads.setdefault(self.run, set()).add(self)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def finish(self) -> None:
        """From here on no interrupt reaches the thread; it may already run something else."""
        with _threads_lock:
            runs = _threads.get(self.run)
            if runs is None or self not in runs:
                return
            runs.discard(self)
            if not runs:
                del _threads[self.run]
            if not self.main:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), None)

    def interrupt(self) -> None:
        """Stop it now."""
        if self.main and hasattr(signal, "pthread_kill"):
            # A signal, unlike an asynchronous exception, also ends a blocking system call.
            signal.pthread_kill(self.thread, signal.SIGINT)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(TaskInterrupt))

    def _time_out(self) -> None:
        with _threads_lock:
            if self in _threads.get(self.run, ()):
                self.timed_out = True
                self.interrupt()


def interrupt(run: str) -> int:
    """Interrupt all runs of a cell in this process; return how many there were.

    The notebook calls it through Dask on clusters without capsules. A blocking call into C ends first.
    """
    with _threads_lock:
        runs = tuple(_threads.get(run, ()))
        for running in runs:
            running.interrupt()
    return len(runs)
