"""The WebSocket of an agent: hello, beats in, orders out. One connection a node."""

from __future__ import annotations

import logging
from typing import Any

from tornado import websocket

from computemesh.certificates import Peer, Role
from computemesh.errors import ComputeMeshError, Refused
from computemesh.protocol import (
    VERSION,
    AgentMessage,
    Beat,
    BeatReply,
    Denied,
    Hello,
    Leave,
    Leaving,
    Message,
    Report,
    Welcome,
    decode,
    encode,
)

from .books import Record
from .driver import Driver
from .http import host_asked, peer_behind

logger = logging.getLogger("computemesh.driver")
REFUSED = 4403
"""WebSocket close code: the reason is for the person at the machine."""


class AgentSocket(websocket.WebSocketHandler):
    """Speaks with one agent."""

    def initialize(self, driver: Driver) -> None:
        """Keep the driver; called by tornado."""
        self._driver = driver
        self._peer: Peer | None = None
        self._incarnation = -1
        self._leaving: str | None = None
        self._unfollow: Any = None

    def check_origin(self, origin: str) -> bool:
        """Refuse browsers: an agent sends no Origin."""
        return False

    def prepare(self) -> None:
        """Let only nodes in, before the upgrade."""
        try:
            peer = self._driver.rights.trusted(peer_behind(self.request))
        except ComputeMeshError as error:
            self._turn_away(401, str(error))
            return
        if peer.role is not Role.NODE:
            self._turn_away(403, f"A {peer.role} certificate is not a node's: join with `mesh join`")
            return
        self._peer = peer

    def _turn_away(self, status: int, reason: str) -> None:
        self.set_status(status)
        self.finish({"error": reason})

    def on_message(self, message: str | bytes) -> None:
        """Take one message of the agent; called by tornado."""
        try:
            self._hear(decode(message, AgentMessage))
        except ComputeMeshError as error:
            # A close reason holds at most 123 bytes.
            logger.warning("%s was turned away: %s", self._peer.name if self._peer else "?", error)
            self.close(REFUSED, str(error).encode()[:120].decode(errors="ignore"))

    def _hear(self, message: Message) -> None:
        peer = self._driver.rights.trusted(self._peer)
        if isinstance(message, Hello):
            self._welcome(peer, message)
            return
        if self._incarnation < 0:
            raise Refused("An agent says hello first")
        match message:
            case Beat():
                self._driver.agent_beat(peer.name, message)
                self._say(BeatReply(sequence=message.sequence, gates=self._driver.gates(peer.name)))
            case Report():
                self._driver.record(message.kind, f"{peer.name}: {message.text}", peer.name, **message.data)
            case Leaving():
                self._leaving = message.reason
                self.close(1000, "goodbye")

    def _welcome(self, peer: Peer, hello: Hello) -> None:
        if hello.version != VERSION:
            raise Refused(f"Its protocol is {hello.version}, the driver's {VERSION}: install the same computemesh", 426)
        self._driver.agent_hello(peer, hello.facts, hello.incarnation, self._leave)
        self._incarnation = hello.incarnation
        self._unfollow = self._driver.follow(self._on_record)
        self._say(self._where_we_are())

    def _where_we_are(self) -> Welcome:
        return Welcome(
            scheduler=self._driver.status(host_asked(self.request)).scheduler,
            beat_seconds=self._driver.settings.patience.beat,
            denied=tuple(self._driver.books.denied),
        )

    def _on_record(self, record: Record) -> None:
        if record.kind == "certificates-denied":
            self._say(Denied(serials=tuple(self._driver.books.denied)))
        elif record.kind == "scheduler-started":
            self._say(self._where_we_are())

    def _leave(self, reason: str) -> None:
        self._say(Leave(reason=reason))
        self.close(REFUSED, reason.encode()[:120].decode(errors="ignore"))

    def _say(self, message: Message) -> None:
        if self.ws_connection is not None and not self.ws_connection.is_closing():
            self.write_message(encode(message))

    def on_close(self) -> None:
        """Take note that the agent has gone; called by tornado."""
        if self._unfollow is not None:
            self._unfollow()
        if self._peer is not None and self._incarnation >= 0:
            self._driver.agent_gone(self._peer.name, self._incarnation, self._leaving)
