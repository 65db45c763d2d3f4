"""The one connection from this Jupyter server to the driver, shared by all panels and open only while there is one.

Certificates and the driver's address stay on this side: a browser gets rows to show, or a sentence that says why not.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tornado import httpclient, iostream, websocket

from computemesh.audience import Audience, Reader
from computemesh.certificates import Role
from computemesh.driver_client import DriverClient, host_and_port
from computemesh.errors import ComputeMeshError, DriverUnreachable, NoMesh, NotTrusted, Refused
from computemesh.feed import (
    FEED_VERSION,
    FeedDelta,
    FeedNotice,
    FeedSnapshot,
    FromDriver,
    Picture,
    picture_after,
)
from computemesh.identity import Identity
from computemesh.protocol import Message, decode, encode

logger = logging.getLogger("computemesh.jupyterlab_ext")
PATH = "/v1/feed"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
"""Seconds between two attempts; doubled from the first to the longest while none succeeds."""
PING_SECONDS = 5.0
"""A driver that vanished without a word is noticed after two of these."""
CONNECT_SECONDS = 5.0
LARGEST_MESSAGE = 64 * 2**20


class Upstream:
    """Follows the driver's feed while anybody reads. `find` returns the identity to use, looked up at each attempt."""

    def __init__(self, find: Callable[[], Identity], first_pause: float = FIRST_PAUSE) -> None:
        self._find, self._first_pause = find, first_pause
        self._audience = Audience(self._whole)
        self._picture = Picture()
        self._notice: FeedNotice | None = None
        self._following: asyncio.Task[None] | None = None

    def join(self, send: Callable[[bytes], Awaitable[None]]) -> Reader:
        """Begin to tell a panel: all that is known at once, or why nothing is, then what changes."""
        if self._following is None:
            self._notice = FeedNotice(kind="connecting", text="Connecting to the mesh…")
            self._following = asyncio.create_task(self._follow())
        return self._audience.join(send)

    def leave(self, reader: Reader) -> None:
        """Tell a panel nothing more; the connection closes after the last one."""
        self._audience.leave(reader)
        if not self._audience:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._following is not None:
            self._following.cancel()
            self._following = None

    @property
    def following(self) -> bool:
        """Whether the connection is open or being opened."""
        return self._following is not None

    def _whole(self) -> bytes:
        return encode(self._notice or self._picture.snapshot())

    def _tell(self, message: Message) -> None:
        self._audience.tell(encode(message))

    # ------------------------------------------------------------ the driver

    async def _follow(self) -> None:
        pause = self._first_pause
        while True:
            try:
                async for message in _feed(self._find()):
                    self._hear(message)
                    pause = self._first_pause
            except ComputeMeshError as error:
                self._explain(error)
            except OSError as error:
                # A certificate that is missing, or that is just being renewed.
                self._explain(NotTrusted(f"This machine's certificate cannot be used: {error}"))
            # Many servers whose driver was restarted shall not come back in one moment.
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))
            pause = min(LONGEST_PAUSE, pause * 2)

    def _hear(self, message: FeedSnapshot | FeedDelta) -> None:
        if isinstance(message, FeedSnapshot) and message.version != FEED_VERSION:
            raise Refused(
                f"The driver's feed is of version {message.version}, this Jupyter server's {FEED_VERSION}: install "
                "the same computemesh on both and restart the Jupyter server"
            )
        self._picture = picture_after(self._picture, message)
        self._notice = None
        self._tell(message)

    def _explain(self, error: ComputeMeshError) -> None:
        notice = FeedNotice(kind=_kind_of(error), text=str(error))
        if notice != self._notice:
            logger.info("%s", error)
            self._notice = notice
            self._tell(notice)


def _kind_of(error: ComputeMeshError) -> str:
    if isinstance(error, NoMesh):
        return "no-mesh"
    return "refused" if isinstance(error, NotTrusted | Refused) else "unreachable"


async def _feed(identity: Identity) -> Any:
    """Yield the driver's messages until the connection ends, and then raise why.

    Raises:
        ComputeMeshError: there is no connection any more, in words.
    """
    host, port = host_and_port(identity.driver)
    request = httpclient.HTTPRequest(
        f"wss://{f'[{host}]' if ':' in host else host}:{port}{PATH}",
        ssl_options=identity.client_context((Role.DRIVER,)),
        connect_timeout=CONNECT_SECONDS,
    )
    try:
        connection = await websocket.websocket_connect(
            request,
            compression_options={},
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            max_message_size=LARGEST_MESSAGE,
        )
    except (OSError, httpclient.HTTPError, iostream.StreamClosedError, websocket.WebSocketError) as error:
        raise await _why_not(identity, error) from None
    try:
        while (text := await connection.read_message()) is not None:
            yield decode(text, FromDriver)
        if connection.close_reason:
            raise NotTrusted(connection.close_reason)
        raise DriverUnreachable(f"The driver at {identity.driver} ended the connection: is it being restarted?")
    finally:
        connection.close()


async def _why_not(identity: Identity, error: Exception) -> ComputeMeshError:
    """Ask once more by plain HTTPS, whose answers are words."""
    client = DriverClient(identity, timeout=CONNECT_SECONDS)
    try:
        await asyncio.to_thread(client.get, PATH)
    except Refused as refusal:
        if refusal.status in (403, 404):
            return refusal
    except ComputeMeshError as reason:
        return reason
    return DriverUnreachable(f"The driver at {identity.driver} answers, but its feed does not: {error}")
