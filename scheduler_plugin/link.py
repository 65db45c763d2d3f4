"""The scheduler's side of its conversation with the driver: one JSON document a line over a Unix socket.

The driver tells the nodes and the certificates that no longer count, and asks; this side answers, and reports events
and workers. When the driver's end closes, the driver is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from computemesh.errors import ComputeMeshError
from computemesh.protocol import (
    Answer,
    Ask,
    DelegateAnswer,
    DelegateRequest,
    DeniedSerials,
    Message,
    Nodes,
    NodesChanged,
    SchedulerEvent,
    Started,
    ToChild,
    WorkerSeen,
    decode,
    encode,
    nodes_after,
    plain,
)

from .plugin import MeshPlugin
from .roster import Place

logger = logging.getLogger("computemesh.scheduler_plugin")

LINE_LIMIT = 64 * 2**20
"""Longest message in bytes."""
EVENTS = 1_000
"""Reports that wait to be written; the oldest are dropped above, and their number is reported."""
DELEGATION_SECONDS = 10.0
SPEED_SECONDS = 10.0
"""How often learned speeds are reported."""
SPEED_CHANGE = 0.05
"""Relative change of a learned speed that is worth a report."""


class Link:
    """Connects one plugin with the driver. `deny` is called with the serial numbers to turn away."""

    def __init__(self, plugin: MeshPlugin, deny: Callable[[frozenset[int]], None]) -> None:
        self._plugin, self._deny = plugin, deny
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._outgoing: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._dropped = 0
        self._told: dict[str, float] = {}
        self._asked: set[asyncio.Task[None]] = set()
        self._delegations: dict[int, asyncio.Future[DelegateAnswer]] = {}
        self._numbers = itertools.count(1)

    async def open(self, socket: Path) -> None:
        """Connect to the driver's socket and begin to report."""
        self._reader, self._writer = await asyncio.open_unix_connection(str(socket), limit=LINE_LIMIT)
        self._plugin.reports.append(self.report)
        self._plugin.worker_watchers.append(self._on_worker)

    def started(self, address: str) -> None:
        """Say where the scheduler listens."""
        self._send(Started(address=address))

    def report(self, kind: str, text: str, node: str, data: dict[str, Any]) -> None:
        """Report an event for the journal."""
        self._send(SchedulerEvent(kind=kind, text=text, node=node, data=data))

    async def delegate(self, user: str, node: str, key: str, request: str) -> dict[str, Any]:
        """Ask the driver for a certificate of `user` for a task.

        Raises:
            ComputeMeshError: it refuses, or does not answer.
        """
        number = next(self._numbers)
        waiter = self._delegations[number] = asyncio.get_running_loop().create_future()
        self._send(DelegateRequest(number=number, user=user, node=node, key=key, request=request))
        try:
            answer = await asyncio.wait_for(waiter, DELEGATION_SECONDS)
        except TimeoutError:
            raise ComputeMeshError(f"The driver did not answer within {DELEGATION_SECONDS:g} s: try again") from None
        finally:
            del self._delegations[number]
        if answer.error:
            raise ComputeMeshError(answer.error)
        return {"certificate": answer.certificate, "serial": answer.serial}

    async def run(self) -> None:
        """Converse until the driver's end closes."""
        writing = asyncio.create_task(self._write())
        speeds = asyncio.create_task(self._tell_speeds())
        try:
            while line := await self._reader.readline():
                self._hear(line)
        except (ConnectionError, ValueError) as error:
            logger.warning("The link to the driver was cut: %s", error)
        finally:
            for task in (writing, speeds, *self._asked):
                task.cancel()
            self._writer.close()

    # ------------------------------------------------------------ hearing

    def _hear(self, line: bytes) -> None:
        try:
            message = decode(line, ToChild)
        except ComputeMeshError as error:
            logger.warning("%s", error)
            return
        match message:
            case Nodes():
                self._plugin.set_nodes(message.nodes)
            case NodesChanged():
                self._plugin.change_nodes(nodes_after(self._plugin.roster.nodes, message), message.gone)
            case DeniedSerials():
                self._deny(frozenset(message.serials))
            case DelegateAnswer():
                waiter = self._delegations.get(message.number)
                if waiter is not None and not waiter.done():
                    waiter.set_result(message)
            case Ask():
                task = asyncio.create_task(self._answer(message))
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)

    async def _answer(self, ask: Ask) -> None:
        try:
            data, error = plain(await self._found(ask)), ""
        except ComputeMeshError as refusal:
            data, error = {}, str(refusal)
        except Exception as failure:
            logger.exception("The question %r could not be answered", ask.what)
            data, error = (
                {},
                f"The scheduler could not answer {ask.what!r}: {failure!r}",
            )
        self._send(Answer(number=ask.number, data=data, error=error))

    async def _found(self, ask: Ask) -> dict[str, Any]:
        match ask.what:
            case "why":
                return self._explained(ask.argument)
            case "placements":
                return {"placements": self._plugin.answers.placements(int(ask.argument))}
            case "tasks":
                return self._plugin.answers.tasks()
            case "running":
                return self._plugin.answers.running()
            case "nodes":
                return {"nodes": self._plugin.answers.nodes()}
            case "drain":
                return await self._plugin.draining.drain(ask.argument)
        raise ComputeMeshError(f"The scheduler knows no question {ask.what!r}: is the driver of another version?")

    def _explained(self, key: str) -> dict[str, Any]:
        answer = self._plugin.answers.why(key)
        if answer["state"] == "unknown":
            raise ComputeMeshError(answer["sentence"])
        return answer

    # ------------------------------------------------------------ saying

    def _send(self, message: Message) -> None:
        if len(self._outgoing) >= EVENTS and isinstance(message, SchedulerEvent):
            self._dropped += 1
        else:
            self._outgoing.append(message)
        self._wake.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._outgoing:
                    self._writer.write(encode(self._outgoing.popleft()) + b"\n")
                    await self._writer.drain()
                if self._dropped:
                    text = f"{self._dropped} events were dropped since the driver did not read them"
                    self._dropped = 0
                    self._send(SchedulerEvent(kind="events-dropped", text=text))
        except ConnectionError:
            pass  # the reading side sees the same end and says so

    def _on_worker(self, place: Place, gone: bool) -> None:
        speed = self._observed(place.name)
        self._told[place.name] = speed
        self._send(WorkerSeen(node=place.name, address=place.address, gone=gone, speed=speed))

    def _observed(self, node: str) -> float:
        speeds = self._plugin.speeds
        return round(speeds.correction(node), 4) if node in speeds.corrections else 0.0

    async def _tell_speeds(self) -> None:
        while True:
            await asyncio.sleep(SPEED_SECONDS)
            for place in list(self._plugin.roster.places.values()):
                speed = self._observed(place.name)
                before = self._told.get(place.name, 0.0)
                if abs(speed - before) > SPEED_CHANGE * max(speed, before):
                    self._on_worker(place, gone=False)
