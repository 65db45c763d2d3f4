"""Warm spares: capsules that wait for a task, kept ready by one thread beside the worker's own.

Taking one is a queue's pop; forking the next happens off the path. The thread lives as long as the worker, because
the kernel ties the zygote's life to the thread that started it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from computemesh.errors import TaskDied

from .frames import Frame, Kind, read_frame
from .processes import LINUX, signal_group
from .zygote import FORK, LATER

logger = logging.getLogger("computemesh.node_agent")

START_SECONDS = 60.0
"""Longest start of a zygote or spare; a loaded machine needs seconds for it."""
ATTEMPTS = 3
"""Zygotes that may end before their first spare is ready, one after another, before tasks are told."""

BUFFER_BYTES = 1 << 20
"""What a channel may hold in flight; large results move faster with more than the system's default."""


@dataclass(eq=False)
class Capsule:
    """One capsule process as the worker sees it."""

    pid: int
    channel: socket.socket
    code: int | None = None
    """Exit code as in `subprocess`, once it has ended."""
    cpu: float = 0.0
    """CPU seconds of it and of what it waited for, once it has ended."""
    ended: threading.Event = field(default_factory=threading.Event)

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in its main thread; its subprocesses get the signal too, as at a terminal."""
        if not self.ended.is_set():
            signal_group(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it and its process group at once."""
        if not self.ended.is_set():
            signal_group(self.pid, signal.SIGKILL)

    def note_end(self, code: int, cpu: float) -> None:
        """Record how it ended; what it had sent before can still be read, then comes the end of the stream."""
        self.code, self.cpu = code, cpu
        self.ended.set()
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RD)


class Spares:
    """Keeps `wanted` warm spares; `close` ends them and every capsule taken."""

    def __init__(self, wanted: int, started: Callable[[float], None] | None = None) -> None:
        self.wanted = wanted
        self._started = started or (lambda _seconds: None)
        self._changed = threading.Condition()
        self._ready: deque[Capsule] = deque()
        self._waiting = 0
        self._closing = False
        self._failure = ""
        self._later = False
        self._capsules: dict[int, Capsule] = {}
        self._wake_end, self._wake_start = socket.socketpair()
        self._wake_start.setblocking(False)
        self._keeper = threading.Thread(target=self._keep, name="capsule-spares", daemon=True)
        self._keeper.start()

    def take(self) -> Capsule:
        """Return a warm capsule, waiting for one when none is ready.

        Raises:
            TaskDied: capsules cannot be started here, and why.
        """
        with self._changed:
            self._waiting += 1
            try:
                while not self._ready:
                    if self._closing:
                        raise TaskDied("The worker is closing and starts no more capsules")
                    if self._failure:
                        raise TaskDied(self._failure)
                    self._wake()
                    self._changed.wait(1.0)
                capsule = self._ready.popleft()
            finally:
                self._waiting -= 1
        self._wake()
        return capsule

    def preload_later(self) -> None:
        """Have the capsules to come start with what few tasks need, since one here did."""
        if not self._later:
            self._later = True
            self._wake()

    @property
    def ready(self) -> int:
        """How many spares wait now."""
        return len(self._ready)

    def wait_ready(self, timeout: float) -> bool:
        """Wait until all wanted spares are there."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._ready) >= self.wanted, timeout)

    def close(self) -> None:
        """End the zygote, the spares and all capsules, and wait until they are gone."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            capsules = list(self._capsules.values())
        for capsule in capsules:
            capsule.kill()
        self._wake()
        if threading.current_thread() is not self._keeper:
            self._keeper.join(10)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_start.send(b"x")

    # ------------------------------------------------------------ the keeper's thread

    def _keep(self) -> None:
        failures = 0
        while not self._closing:
            began = time.monotonic()
            made = self._with_zygote()
            if self._closing:
                break
            failures = 0 if made else failures + 1
            logger.warning("the process that capsules are forked from has ended; starting another")
            if failures >= ATTEMPTS:
                with self._changed:
                    self._failure = (
                        "This node cannot start capsules: the process they are forked from ends at once "
                        "(its log says why)"
                    )
                    self._changed.notify_all()
            # Not faster than once a second, lest a broken installation keep the machine busy.
            time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
        self._wake_end.close()
        self._wake_start.close()

    def _with_zygote(self) -> bool:
        """Serve until the zygote or the worker ends; return whether a spare came of it."""
        control, theirs = socket.socketpair()
        command = [sys.executable, "-m", "computemesh.node_agent.zygote", str(theirs.fileno()), str(os.getpid())]
        zygote = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()
        made = told_later = False
        try:
            notices = b""
            while not self._closing:
                if self._later and not told_later and not self._wants_more():
                    control.send(LATER)
                    told_later = True
                while self._wants_more():
                    self._fork(control)
                    made = True
                ready, _, _ = select.select([control, self._wake_end], [], [])
                if self._wake_end in ready:
                    self._wake_end.recv(4096)
                if control in ready:
                    received = control.recv(65536)
                    if not received:
                        break
                    *lines, notices = (notices + received).split(b"\n")
                    for line in lines:
                        self._note(line)
        except (OSError, EOFError, ValueError) as error:
            if not self._closing:
                logger.warning("capsules: %s: %s", type(error).__name__, error)
        finally:
            self._end(zygote, control)
        return made

    def _wants_more(self) -> bool:
        with self._changed:
            return not self._closing and len(self._ready) < self.wanted + self._waiting

    def _fork(self, control: socket.socket) -> None:
        began = time.monotonic()
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        try:
            with theirs:
                socket.send_fds(control, [FORK], [theirs.fileno()])
            ours.settimeout(START_SECONDS)
            process = _process_of(read_frame(ours))
            ours.settimeout(None)
        except BaseException:
            ours.close()
            raise
        capsule = Capsule(process, ours)
        with self._changed:
            self._failure = ""
            self._capsules[capsule.pid] = capsule
            self._ready.append(capsule)
            self._changed.notify_all()
        self._started(time.monotonic() - began)

    def _note(self, line: bytes) -> None:
        ended = json.loads(line)
        with self._changed:
            capsule = self._capsules.pop(ended["pid"], None)
            if capsule is not None and capsule in self._ready:
                self._ready.remove(capsule)
                capsule.channel.close()
        if capsule is not None:
            capsule.note_end(ended["code"], ended["cpu"])

    def _end(self, zygote: subprocess.Popen[bytes], control: socket.socket) -> None:
        with self._changed:
            capsules = list(self._capsules.values())
            spares = list(self._ready)
            self._capsules.clear()
            self._ready.clear()
        for capsule in spares:
            capsule.channel.close()
        for capsule in capsules:
            capsule.kill()
        control.close()
        try:
            # It ends by itself when its socket closes; that lets it reap and sweep.
            zygote.wait(2.0 if LINUX else 5.0)
        except subprocess.TimeoutExpired:
            zygote.kill()
            zygote.wait()
        for capsule in capsules:
            capsule.note_end(-signal.SIGKILL, 0.0)


def _process_of(greeting: Frame) -> int:
    if greeting.kind is not Kind.READY:
        raise ValueError(f"a spare said {greeting.kind.name} instead of READY")
    return int(bytes(greeting.parts[0]))
