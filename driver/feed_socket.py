"""The WebSocket of a watcher, such as a Jupyter server: the mesh as a snapshot, then what changes. Nothing is heard."""

from __future__ import annotations

import contextlib
from typing import Any

from tornado import websocket

from computemesh.audience import Reader
from computemesh.errors import ComputeMeshError

from .books import Record
from .driver import Driver
from .feed import Feed
from .http import PEOPLE
from .peer_socket import PeerSocket

PING_SECONDS = 10.0


class FeedSocket(PeerSocket):
    """Speaks to one watcher with a user's or an administrator's certificate."""

    allowed = PEOPLE
    others_are_told = "may not watch the mesh: it needs one of role admin/user"

    def initialize(self, driver: Driver, feed: Feed) -> None:  # type: ignore[override]
        """Keep driver and feed; called by tornado."""
        super().initialize(driver)
        self._feed = feed
        self._reader: Reader | None = None

    @property
    def ping_interval(self) -> float:
        """Seconds between pings, by which a watcher that vanished is noticed."""
        return PING_SECONDS

    def get_compression_options(self) -> dict[str, Any]:
        """Compress; called by tornado."""
        return {}

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
            self.refuse(str(error))

    def on_message(self, message: str | bytes) -> None:
        """Ignore what a watcher says; called by tornado."""

    def on_close(self) -> None:
        """Stop telling; called by tornado."""
        super().on_close()
        if self._reader is not None:
            self._feed.leave(self._reader)
