"""A WebSocket whose other end's certificate is judged before the upgrade: what agents' and watchers' have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tornado import websocket

from computemesh.certificates import Peer, Role
from computemesh.errors import ComputeMeshError

from .driver import Driver
from .http import peer_behind

REFUSED = 4403
"""WebSocket close code: the reason is for the person at the machine."""


class PeerSocket(websocket.WebSocketHandler):
    """One peer of an allowed role."""

    allowed: ClassVar[frozenset[Role]]
    others_are_told: ClassVar[str]
    """What follows ``A … certificate`` for a peer of another role."""

    def initialize(self, driver: Driver) -> None:
        """Keep the driver; called by tornado."""
        self._driver = driver
        self._peer: Peer | None = None
        self._unfollow: Callable[[], None] | None = None

    def check_origin(self, origin: str) -> bool:
        """Refuse browsers: a page of another site could otherwise use a certificate that the browser holds."""
        return False

    def prepare(self) -> None:
        """Let only the allowed roles in, before the upgrade."""
        try:
            peer = self._driver.rights.trusted(peer_behind(self.request))
        except ComputeMeshError as error:
            self._turn_away(401, str(error))
            return
        if peer.role not in self.allowed:
            self._turn_away(403, f"A {peer.role} certificate {self.others_are_told}")
            return
        self._peer = peer

    def _turn_away(self, status: int, reason: str) -> None:
        self.set_status(status)
        self.finish({"error": reason})

    def refuse(self, reason: str) -> None:
        """Close the connection and say why."""
        # A close reason holds at most 123 bytes.
        self.close(REFUSED, reason.encode()[:120].decode(errors="ignore"))

    def on_close(self) -> None:
        """Follow the journal no longer; called by tornado."""
        if self._unfollow is not None:
            self._unfollow()
