"""The WebSocket of an agent: hello, beats in, orders out. One connection a node."""

from __future__ import annotations

import logging

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
    Rules,
    Welcome,
    decode,
    encode,
)

from .books import Record
from .driver import Driver
from .http import host_asked
from .peer_socket import PeerSocket

logger = logging.getLogger("computemesh.driver")


class AgentSocket(PeerSocket):
    """Speaks with one agent."""

    allowed = frozenset({Role.NODE})
    others_are_told = "is not a node's: join with `mesh join`"

    def initialize(self, driver: Driver) -> None:
        """Keep the driver; called by tornado."""
        super().initialize(driver)
        self._incarnation = -1
        self._leaving: str | None = None

    def on_message(self, message: str | bytes) -> None:
        """Take one message of the agent; called by tornado."""
        try:
            self._hear(decode(message, AgentMessage))
        except ComputeMeshError as error:
            logger.warning("%s was turned away: %s", self._peer.name if self._peer else "?", error)
            self.refuse(str(error))

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
                kept = self._driver.ledger.kept(peer.name)
                self._say(BeatReply(sequence=message.sequence, gates=self._driver.gates(peer.name), kept=kept))
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
            rules=self._driver.owner_rules.rules,
        )

    def _on_record(self, record: Record) -> None:
        if record.kind == "certificates-denied":
            self._say(Denied(serials=tuple(self._driver.books.denied)))
        elif record.kind == "policy-rules":
            self._say(Rules(rules=self._driver.owner_rules.rules))
        elif record.kind == "scheduler-started":
            self._say(self._where_we_are())

    def _leave(self, reason: str) -> None:
        self._say(Leave(reason=reason))
        self.refuse(reason)

    def _say(self, message: Message) -> None:
        if self.ws_connection is not None and not self.ws_connection.is_closing():
            self.write_message(encode(message))

    def on_close(self) -> None:
        """Take note that the agent has gone; called by tornado."""
        super().on_close()
        if self._peer is not None and self._incarnation >= 0:
            self._driver.agent_gone(self._peer.name, self._incarnation, self._leaving)
