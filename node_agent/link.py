"""The agent's side of its WebSocket to the driver: hello, beats out, orders in, and what the network is like."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketError, websocket_connect

from computemesh import protocol
from computemesh.certificates import Role
from computemesh.driver_client import host_and_port
from computemesh.errors import DriverError, DriverUnreachable, NotTrusted, Refused
from computemesh.identity import Identity
from computemesh.node import NodeFacts

logger = logging.getLogger("computemesh.node_agent")

REFUSED_CODE = 4403
"""WebSocket close code of the driver: the reason is for the person at this machine."""
PATIENCE_SECONDS = 10.0
SILENT_BEATS = 5
"""Beats without an answer after which the connection counts as gone."""
SMOOTHING = 0.2
"""Weight of the newest round trip in the running mean."""
PROBE_BYTES = 2_000_000


class Link:
    """One connection to the driver, from hello to its end."""

    def __init__(
        self,
        identity: Identity,
        hello: protocol.Hello,
        beat: Callable[[int], protocol.Beat],
        ordered: Callable[[protocol.Message], None],
        measured: Callable[[float], None],
        kept: Callable[[int], None] = lambda sequence: None,
    ) -> None:
        """`beat` makes the next beat, `ordered` takes what the driver says, `measured` a round trip in seconds, and
        `kept` the number of the last beat whose samples the driver has on disk."""
        self._identity = identity
        self._hello = hello
        self._beat = beat
        self._ordered = ordered
        self._measured = measured
        self._kept = kept
        self._socket: WebSocketClientConnection | None = None
        self._sent: dict[int, float] = {}
        self._sequence = self._asked_after = 0
        self._beat_seconds = 2.0
        self._hurry = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._answered = asyncio.Event()
        self.gates: tuple[str, ...] = ()
        """Why the driver gives this node no tasks, as it last said."""

    async def converse(self) -> None:
        """Connect and speak until the connection ends; it always ends by an error.

        Raises:
            Refused: the driver wants nothing of this node, with its reason.
            NotTrusted: one of the two certificates does not count.
            DriverUnreachable: nobody answers, or the connection broke.
        """
        host, port = host_and_port(self._identity.driver)
        self._socket = await _open(self._identity, host, port)
        try:
            self._write(self._hello)
            async with asyncio.timeout(PATIENCE_SECONDS):
                welcome = await self._read()
            self._take(welcome)
            beating = asyncio.create_task(self._beat_for_ever())
            reading = asyncio.create_task(self._read_for_ever())
            self._hung_up.clear()
            hung_up = asyncio.create_task(self._hung_up.wait())
            try:
                await asyncio.wait({beating, reading, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (beating, reading, hung_up):
                    task.cancel()
                ended = await asyncio.gather(beating, reading, return_exceptions=True)
            for error in reversed(ended):
                if isinstance(error, Exception):
                    raise error
            raise DriverUnreachable("The connection to the driver is not trusted after a sleep")
        except TimeoutError:
            raise DriverUnreachable(f"The driver at {host}:{port} took the connection but says nothing") from None
        except WebSocketClosedError:
            raise self._why_closed() from None
        finally:
            self._socket.close()
            self._socket = None

    def says(self, facts: NodeFacts) -> None:
        """Tell the driver of other facts, by a new hello, if they are other."""
        if facts != self._hello.facts:
            self._hello = msgspec.structs.replace(self._hello, facts=facts)
            self.hang_up()

    def hang_up(self) -> None:
        """Let go of the connection: what is at its other end may have given it up long ago."""
        self._hung_up.set()

    def beat_now(self) -> None:
        """Beat outside the rhythm: something has changed that the driver should know at once."""
        self._hurry.set()

    async def told(self, patience: float) -> None:
        """Beat now and wait until the driver has answered, if it does within `patience` seconds."""
        if self._socket is None:
            return
        self._answered.clear()
        self._asked_after = self._sequence
        self._hurry.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._answered.wait()

    def say(self, message: protocol.Message) -> bool:
        """Send `message` if the connection stands; returns whether it does."""
        if self._socket is None:
            return False
        with contextlib.suppress(WebSocketClosedError):
            self._write(message)
            return True
        return False

    async def leave(self, reason: str) -> None:
        """Say goodbye and wait a moment for the driver to have heard it."""
        socket = self._socket
        if socket is None or not self.say(protocol.Leaving(reason=reason)):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                while socket.close_code is None:  # noqa: ASYNC110 - tornado has no event for it
                    await asyncio.sleep(0.02)

    def _write(self, message: protocol.Message) -> None:
        if self._socket is None:
            raise WebSocketClosedError
        self._socket.write_message(protocol.encode(message))

    async def _read(self) -> Any:
        if self._socket is None:
            raise WebSocketClosedError
        data = await self._socket.read_message()
        if data is None:
            raise self._why_closed()
        return protocol.decode(data, protocol.DriverOrder)

    def _why_closed(self) -> DriverError:
        code = self._socket.close_code if self._socket is not None else None
        reason = self._socket.close_reason if self._socket is not None else None
        if code == REFUSED_CODE:
            return Refused(f"The driver at {self._identity.driver} turned this node away: {reason or 'no reason'}", 403)
        return DriverUnreachable(f"The connection to the driver at {self._identity.driver} broke")

    def _take(self, order: protocol.Message) -> None:
        if isinstance(order, protocol.BeatReply):
            sent = self._sent.pop(order.sequence, None)
            if sent is not None:
                self._measured(time.monotonic() - sent)
            self._kept(order.kept)
            self.gates = order.gates
            if order.sequence > self._asked_after:
                self._answered.set()
            return
        if isinstance(order, protocol.Welcome):
            self._beat_seconds = order.beat_seconds
        if isinstance(order, protocol.Leave):
            raise Refused(f"The driver sent this node away: {order.reason}", 403)
        self._ordered(order)

    async def _read_for_ever(self) -> None:
        while True:
            self._take(await self._read())

    async def _beat_for_ever(self) -> None:
        self._sequence = self._asked_after = 0
        self._sent.clear()
        while True:
            self._sequence = sequence = self._sequence + 1
            self._hurry.clear()
            self._sent[sequence] = time.monotonic()
            self._write(self._beat(sequence))
            silent = [moment for moment in self._sent.values() if time.monotonic() - moment > self._beat_seconds / 2]
            if len(silent) > SILENT_BEATS:
                raise DriverUnreachable(f"The driver at {self._identity.driver} has stopped answering")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_seconds):
                    await self._hurry.wait()


async def _open(identity: Identity, host: str, port: int) -> WebSocketClientConnection:
    request = HTTPRequest(
        f"wss://{f'[{host}]' if ':' in host else host}:{port}/v1/agent",
        ssl_options=identity.client_context((Role.DRIVER,)),
        connect_timeout=PATIENCE_SECONDS,
        request_timeout=PATIENCE_SECONDS,
    )
    try:
        return await websocket_connect(request)
    except HTTPClientError as error:
        raise _refusal(error, host, port) from None
    except WebSocketError:
        raise DriverUnreachable(f"What answers at {host}:{port} is no driver") from None
    except (OSError, TimeoutError) as error:
        from computemesh.driver_client import explain

        raise explain(error if isinstance(error, OSError) else TimeoutError(), host, port) from None


def _refusal(error: HTTPClientError, host: str, port: int) -> DriverError:
    said = ""
    if error.response is not None and error.response.body:
        with contextlib.suppress(ValueError, AttributeError):
            said = json.loads(error.response.body).get("error", "")
    if error.code == 401:
        return NotTrusted(said or f"The driver at {host}:{port} does not accept this node's certificate: join again")
    if error.code == 599:
        return DriverUnreachable(f"No answer from the driver at {host}:{port}: {error.message}")
    if error.code >= 500:
        return DriverUnreachable(f"The driver at {host}:{port} answered with status {error.code}")
    return Refused(said or f"The driver at {host}:{port} answered with status {error.code}", error.code)


def smoothed(mean: float, newest: float) -> float:
    """Return the running mean of round trips, in seconds; the first counts whole."""
    return newest if mean == 0 else mean + SMOOTHING * (newest - mean)


def measure_throughput(identity: Identity, size: int = PROBE_BYTES) -> float:
    """Return bits per second between this machine and the driver, the slower direction; blocks meanwhile.

    Raises:
        DriverUnreachable: it could not be measured.
    """
    host, port = host_and_port(identity.driver)
    connection = http.client.HTTPSConnection(
        host, port, context=identity.client_context((Role.DRIVER,)), timeout=6 * PATIENCE_SECONDS
    )
    try:
        connection.connect()
        times = [
            _timed(connection, "POST", "/v1/throughput", bytes(size), 204),
            _timed(connection, "GET", f"/v1/throughput?bytes={size}", None, 200),
        ]
    except (OSError, http.client.HTTPException) as error:
        raise DriverUnreachable(f"The throughput to {host}:{port} could not be measured: {error}") from None
    finally:
        connection.close()
    return 8 * size / max(*times, 1e-6)


def _timed(connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None, good: int) -> float:
    began = time.monotonic()
    connection.request(method, path, body)
    response = connection.getresponse()
    response.read()
    if response.status != good:
        raise http.client.HTTPException(f"{method} {path} was answered with status {response.status}")
    return time.monotonic() - began


def hello_of(facts: NodeFacts, incarnation: int) -> protocol.Hello:
    """Return the first word of a connection."""
    return protocol.Hello(version=protocol.VERSION, incarnation=incarnation, facts=facts)
