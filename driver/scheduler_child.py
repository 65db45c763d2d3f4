"""Keeps the Dask scheduler running as a child process, and speaks with it over a Unix socket.

The scheduler is a process of its own because one large graph blocks its event loop for seconds, in which the driver
must go on hearing its agents (docs/decisions/0001-driver-and-scheduler-are-two-processes.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from computemesh.errors import ComputeMeshError, Refused
from computemesh.node import Node
from computemesh.protocol import (
    Answer,
    Ask,
    DelegateAnswer,
    DelegateRequest,
    DeniedSerials,
    FromChild,
    Message,
    Nodes,
    SchedulerEvent,
    Started,
    WorkerSeen,
    decode,
    encode,
    nodes_changed,
    with_measures_later,
)

logger = logging.getLogger("computemesh.driver")
LINE_LIMIT = 64 * 2**20
"""Longest message in bytes."""
LARGE, MEASURES_SECONDS = 50, 2.0
"""On a mesh of more nodes than that, their samples are told together, every so many seconds."""


@dataclass(frozen=True)
class ChildSettings:
    """How the child is started."""

    identity: Path
    """Folder of the driver's identity."""
    listen: str
    """Such as ``tls://0.0.0.0:8791``."""
    socket: Path
    log: logging.Logger
    """Gets what the child writes to its standard error."""


class SchedulerChild:
    """The child, restarted when it dies.

    `on_event`, `on_worker` and `on_started` are called with what it says; `on_died` with how it ended; `on_delegate`
    answers a task that asks for a certificate.
    """

    def __init__(
        self,
        settings: ChildSettings,
        on_event: Callable[[SchedulerEvent], None],
        on_worker: Callable[[WorkerSeen], None],
        on_started: Callable[[], None],
        on_died: Callable[[str], None],
        on_delegate: Callable[[DelegateRequest], DelegateAnswer],
    ) -> None:
        self._settings = settings
        self._on_event, self._on_worker = on_event, on_worker
        self._on_started, self._on_died = on_started, on_died
        self._on_delegate = on_delegate
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._told: dict[str, Node] | None = None
        self._measures_due = 0.0
        """What this child knows of the nodes; None before the first word."""
        self._process: asyncio.subprocess.Process | None = None
        self._server: asyncio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.started = asyncio.Event()
        self.address = ""

    async def start(self) -> None:
        """Open the socket and begin to keep the child running."""
        self._settings.socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(
            self._converse, path=str(self._settings.socket), limit=LINE_LIMIT
        )
        self._settings.socket.chmod(0o600)
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the child and close the socket."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), 5)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._server is not None:
            self._server.close()
        self._settings.socket.unlink(missing_ok=True)

    # ------------------------------------------------------------ what the driver says

    def send_nodes(self, nodes: Iterable[Node]) -> None:
        """Tell the child how the nodes are now: all of it once, then what is different."""
        found, moment = list(nodes), time.monotonic()
        if self._told is not None and len(found) > LARGE and moment < self._measures_due:
            found = with_measures_later(self._told, found)
        else:
            self._measures_due = moment + MEASURES_SECONDS
        now = {node.name: node for node in found}
        if self._told is None:
            self._send(Nodes(nodes=tuple(now.values())))
        elif change := nodes_changed(self._told, now.values()):
            self._send(change)
        if self._writer is not None:
            self._told = now

    def send_denied(self, serials: Iterable[int]) -> None:
        """Tell the child which certificates no longer count."""
        self._send(DeniedSerials(serials=tuple(serials)))

    async def ask(self, what: str, argument: str = "", timeout: float = 10.0) -> dict[str, Any]:
        """Return the child's answer to a question.

        Raises:
            Refused: the scheduler is being restarted, is too busy to answer, or has no answer.
        """
        if self._writer is None:
            raise Refused("The scheduler is being started: try again in a few seconds", 503)
        number = next(self._numbers)
        waiter = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(Ask(number=number, what=what, argument=argument))
            answer = await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            raise Refused(f"The scheduler did not answer within {timeout:g} s: it is busy; try again", 504) from None
        finally:
            self._waiting.pop(number, None)
        if answer.error:
            raise Refused(answer.error, 404)
        data: dict[str, Any] = answer.data
        return data

    def _send(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(message) + b"\n")

    # ------------------------------------------------------------ keeping it alive

    async def _keep(self) -> None:
        pause = 0.5
        while True:
            begun = asyncio.get_running_loop().time()
            await self._run_once()
            lived = asyncio.get_running_loop().time() - begun
            pause = 0.5 if lived > 30 else min(30.0, pause * 2)
            await asyncio.sleep(pause)

    async def _run_once(self) -> None:
        arguments = [
            "-m", "computemesh.scheduler_plugin.child",
            "--link", str(self._settings.socket),
            "--listen", self._settings.listen,
            "--identity", str(self._settings.identity),
        ]  # fmt: skip
        # A session of its own: Ctrl-C at the driver's terminal is the driver's to handle.
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        reader = asyncio.create_task(self._log(process))
        try:
            status = await process.wait()
            await reader
        except asyncio.CancelledError:
            reader.cancel()
            raise
        finally:
            self._lost()
        self._on_died(f"signal {-status}" if status < 0 else f"status {status}")

    async def _log(self, process: asyncio.subprocess.Process) -> None:
        stream = process.stderr
        while stream is not None and (line := await _line(stream)):
            self._settings.log.info("%s", line.decode(errors="replace").rstrip())

    def _lost(self) -> None:
        self.started.clear()
        self._writer = None
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(Refused("The scheduler was restarted while it was asked: try again", 503))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer, self._told = writer, None
        try:
            while line := await reader.readline():
                try:
                    self._hear(decode(line, FromChild))
                except ComputeMeshError as error:
                    # One message that cannot be read is no reason to end the scheduler and all that runs there.
                    logger.warning("The scheduler said what cannot be read: %s", error)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            logger.warning("The link to the scheduler was cut")
        finally:
            if self._writer is writer:
                self._writer = None
            writer.close()

    def _hear(self, message: Message) -> None:
        match message:
            case Answer():
                waiter = self._waiting.get(message.number)
                if waiter is not None and not waiter.done():
                    waiter.set_result(message)
            case Started():
                self.address = message.address
                self.started.set()
                self._on_started()
            case SchedulerEvent():
                self._on_event(message)
            case WorkerSeen():
                self._on_worker(message)
            case DelegateRequest():
                self._send(self._on_delegate(message))


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or the next piece of one that is too long."""
    try:
        return await stream.readline()
    except ValueError:
        return await stream.read(65536)
