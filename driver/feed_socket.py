"""The WebSocket of a watcher, such as a Jupyter server: the mesh as a snapshot, then what changes. Nothing is heard."""

from __future__ import annotations

import contextlib
from typing import Any

from tornado import websocket

from computemesh.audience import Reader
from computemesh.certificates import Peer
from computemesh.errors import ComputeMeshError

from .agent_socket import REFUSED
from .books import Record
from .driver import Driver
from .feed import Feed
from .http import PEOPLE, peer_behind

PING_SECONDS = 10.0


class FeedSocket(websocket.WebSocketHandler):
    """Speaks to one watcher with a user's or an administrator's certificate."""

    def initialize(self, driver: Driver, feed: Feed) -> None:
        """Keep driver and feed; called by tornado."""
        self._driver, self._feed = driver, feed
        self._peer: Peer | None = None
        self._reader: Reader | None = None
        self._unfollow: Any = None

    @property
    def ping_interval(self) -> float:
        """Seconds between pings, by which a watcher that vanished is noticed."""
        return PING_SECONDS

    def check_origin(self, origin: str) -> bool:
        """Refuse browsers: a page of another site could otherwise use a certificate that the browser holds."""
        return False

    def get_compression_options(self) -> dict[str, Any]:
        """Compress; called by tornado."""
        return {}

    def prepare(self) -> None:
        """Let only people in, before the upgrade."""
        try:
            peer = self._driver.rights.trusted(peer_behind(self.request))
        except ComputeMeshError as error:
            self._turn_away(401, str(error))
            return
        if peer.role not in PEOPLE:
            self._turn_away(403, f"A {peer.role} certificate may not watch the mesh: it needs one of role admin/user")
            return
        self._peer = peer

    def _turn_away(self, status: int, reason: str) -> None:
        self.set_status(status)
        self.finish({"error": reason})

    def open(self, *_args: str, **_kwargs: str) -> None:
        """Begin to tell; called by tornado."""
        self._reader = self._feed.join(self._send)
        self._unfollow = self._driver.follow(self._on_record)

    async def _send(self, message: bytes) -> None:
        with contextlib.suppress(websocket.WebSocketClosedError):
            await self.write_message(message.decode())

    def _on_record(self, record: Record) -> None:
        if record.kind != "certificates-denied":
            return
        try:
            self._driver.rights.trusted(self._peer)
        except ComputeMeshError as error:
            self.close(REFUSED, str(error).encode()[:120].decode(errors="ignore"))

    def on_message(self, message: str | bytes) -> None:
        """Ignore what a watcher says; called by tornado."""

    def on_close(self) -> None:
        """Stop telling; called by tornado."""
        if self._unfollow is not None:
            self._unfollow()
        if self._reader is not None:
            self._feed.leave(self._reader)
