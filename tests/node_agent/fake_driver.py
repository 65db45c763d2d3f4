"""A driver as agents see it: real TLS and WebSocket, a real Dask scheduler, and a script in the test's hand."""

from __future__ import annotations

import datetime
import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Scheduler
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

from computemesh import protocol
from computemesh.certificates import (
    Role,
    certificate_pem,
    fingerprint,
    key_pem,
    new_authority,
    new_key,
    new_request,
    peer_of,
    sign,
)
from computemesh.dask_security import MeshSecurity
from computemesh.identity import Identity, load_identity, save_identity


class Authority:
    """A mesh's CA that hands out identities."""

    def __init__(self) -> None:
        self.authority = new_authority(datetime.datetime.now(datetime.UTC))

    @property
    def pin(self) -> str:
        return fingerprint(self.authority[1])

    def certify(self, request: bytes, role: Role, name: str, age: float = 0.0, life: float = 3600.0) -> bytes:
        """Sign a certificate that began `age` seconds ago and lives for `life`."""
        began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
        lifetime = datetime.timedelta(seconds=life)
        return certificate_pem(sign(self.authority, request, role, name, ["127.0.0.1"], began, lifetime))

    def identity(self, folder: Path, role: Role, name: str, driver: str, **times: float) -> Identity:
        key = new_key()
        certificate = self.certify(new_request(key, name), role, name, **times)
        save_identity(
            Identity(folder, role, name, driver), certificate_pem(self.authority[1]), certificate, key_pem(key)
        )
        return load_identity(folder)


@dataclass
class FakeDriver:
    """Says what the test tells it to, and keeps what agents said."""

    folder: Path
    authority: Authority = field(default_factory=Authority)
    scheduler_address: str = ""
    beat_seconds: float = 0.1
    denied: tuple[int, ...] = ()
    refuse: str = ""
    """Close connections with this reason instead of a welcome."""
    silent: bool = False
    """Answer no beat."""
    tokens: set[str] = field(default_factory=set)
    heard: deque[protocol.Message] = field(default_factory=lambda: deque(maxlen=10_000))
    sockets: list[AgentHandler] = field(default_factory=list)
    connections: int = 0
    probes: list[str] = field(default_factory=list)
    renewals: int = 0
    port: int = 0
    server: HTTPServer | None = None

    def open(self) -> None:
        """Listen, on the same port each time."""
        identity = self.authority.identity(self.folder, Role.DRIVER, "driver", "127.0.0.1:0")
        context = identity.server_context(optional=True)
        # A driver shows its CA too, so that a joining machine can check the pin.
        with (self.folder / "chain.crt").open("wb") as chain:
            chain.write(identity.certificate.read_bytes() + identity.authority.read_bytes())
        context.load_cert_chain(self.folder / "chain.crt", identity.key)
        routes = [
            ("/v1/agent", AgentHandler, {"driver": self}),
            ("/v1/throughput", Throughput, {"driver": self}),
            ("/v1/renew", Renewal, {"driver": self}),
            ("/v1/enrol", Enrolment, {"driver": self}),
        ]
        self.server = HTTPServer(Application(routes), ssl_options=context)
        sockets = bind_sockets(self.port, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        self.server.add_sockets(sockets)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def close(self) -> None:
        """Stop listening and cut every connection, as a killed driver does."""
        assert self.server is not None
        self.server.stop()
        for handler in list(self.sockets):
            if handler.ws_connection is not None:
                handler.ws_connection._abort()
        await self.server.close_all_connections()

    def node(self, home: Path, name: str, **times: float) -> Identity:
        """Enrol a node without its asking."""
        return self.authority.identity(home / "node", Role.NODE, name, self.address, **times)

    def of(self, kind: type[Any]) -> list[Any]:
        """Return what was heard of one kind."""
        return [message for message in list(self.heard) if isinstance(message, kind)]

    def tell(self, message: protocol.Message) -> None:
        """Say something to every connected agent."""
        for handler in self.sockets:
            handler.write_message(protocol.encode(message))

    def welcome(self) -> protocol.Welcome:
        return protocol.Welcome(scheduler=self.scheduler_address, beat_seconds=self.beat_seconds, denied=self.denied)


class AgentHandler(WebSocketHandler):
    def initialize(self, driver: FakeDriver) -> None:
        self.driver = driver

    def prepare(self) -> None:
        peer = peer_of(self.request.get_ssl_certificate())
        if peer is None or peer.role is not Role.NODE:
            self.set_status(401)
            self.finish({"error": "who are you?"})

    def open(self, *_: str) -> None:
        self.driver.connections += 1
        self.driver.sockets.append(self)

    def on_message(self, data: str | bytes) -> None:
        message = protocol.decode(data, protocol.AgentMessage)
        self.driver.heard.append(message)
        match message:
            case protocol.Hello():
                if self.driver.refuse:
                    self.close(4403, self.driver.refuse)
                else:
                    self.write_message(protocol.encode(self.driver.welcome()))
            case protocol.Beat():
                if not self.driver.silent:
                    self.write_message(protocol.encode(protocol.BeatReply(sequence=message.sequence)))
            case protocol.Leaving():
                self.close(1000)

    def on_close(self) -> None:
        if self in self.driver.sockets:
            self.driver.sockets.remove(self)


class Route(RequestHandler):
    def initialize(self, driver: FakeDriver) -> None:
        self.driver = driver


class Throughput(Route):
    def post(self) -> None:
        self.driver.probes.append(f"POST {len(self.request.body)}")
        self.set_status(204)

    def get(self) -> None:
        self.driver.probes.append("GET")
        self.finish(bytes(int(self.get_query_argument("bytes"))))


class Renewal(Route):
    def post(self) -> None:
        peer = peer_of(self.request.get_ssl_certificate())
        assert peer is not None
        self.driver.renewals += 1
        request = json.loads(self.request.body)["request"].encode()
        self.finish({"certificate": self.driver.authority.certify(request, peer.role, peer.name).decode()})


class Enrolment(Route):
    def post(self) -> None:
        asked = json.loads(self.request.body)
        if asked["token"] not in self.driver.tokens:
            self.set_status(403)
            self.finish({"error": "The token is unknown, used or expired: ask for another"})
            return
        self.driver.tokens.remove(asked["token"])
        certificate = self.driver.authority.certify(asked["request"].encode(), Role.NODE, asked["name"])
        self.finish({"role": "node", "name": asked["name"], "certificate": certificate.decode()})


def tls_scheduler(driver: FakeDriver) -> Scheduler:
    """Return a scheduler, not yet started, that holds the driver's certificate."""
    identity = load_identity(driver.folder)
    return Scheduler(
        host="127.0.0.1",
        port=0,
        protocol="tls",
        security=MeshSecurity(identity),
        dashboard_address=":0",
        validate=True,
    )
