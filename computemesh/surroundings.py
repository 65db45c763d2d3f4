"""What a task finds around it in its process, for processes that run several tasks one after another."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCHLD", "SIGPIPE")
    if hasattr(signal, name)
)
"""Whose handlers a task may set; an interrupt's is ours."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Working folder, environment, file mask, signal handlers and threads of this process when it was made."""

    folder: str = field(default_factory=lambda: str(Path.cwd()))
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    raw_environment: dict[Any, Any] = field(default_factory=lambda: dict(_raw_environment()))
    threads: int = field(default_factory=lambda: _strangers())
    mask: int = field(default_factory=lambda: _file_mask())
    handlers: dict[int, Any] = field(default_factory=lambda: {number: signal.getsignal(number) for number in SIGNALS})

    def restore(self) -> None:
        """Undo what a task did to the folder, the environment, the file mask and the handlers of signals."""
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        os.umask(self.mask)
        if threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in self.handlers.items():
                if signal.getsignal(number) is not handler:
                    signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if _raw_environment() != self.raw_environment:
            os.environ.clear()
            os.environ.update(self.environment)

    def clean(self) -> bool:
        """Return whether no thread and no child process has been left behind."""
        if _strangers() > self.threads:
            return False
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False


def _raw_environment() -> dict[Any, Any]:
    """Return the environment as Python keeps it: to compare it in words takes as long as a short task."""
    kept: dict[Any, Any] = vars(os.environ)["_data"]
    return kept


def _file_mask() -> int:
    """Return the mask of new files' rights, which can only be read by changing it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


OWN = "computemesh-"
"""How our own threads are called that may outlive a task by a moment."""


def _strangers() -> int:
    return sum(not thread.name.startswith(OWN) for thread in threading.enumerate())
