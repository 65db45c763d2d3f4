"""The driver's HTTPS routes: thin handlers that check who asks, call one method of `Driver`, and answer in JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any, ClassVar

from tornado import web

from computemesh.certificates import Peer, Role, peer_of
from computemesh.errors import ComputeMeshError, NotTrusted, Refused
from computemesh.protocol import plain

from .books import Record
from .driver import Driver
from .savings import DAY_SECONDS, KINDS

logger = logging.getLogger("computemesh.driver")
EVERYONE = frozenset({Role.NODE, Role.USER, Role.ADMIN, Role.DRIVER})
PEOPLE = frozenset({Role.USER, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
LARGEST_BODY = 8 * 2**20
DRAIN_SECONDS = 3600.0


def peer_behind(request: Any) -> Peer | None:
    """Return whom a request's client certificate names; None without one."""
    return peer_of(request.get_ssl_certificate())


def host_asked(request: Any) -> str:
    """Return the host under which the other end reached the driver: it reaches the scheduler under the same."""
    host: str = request.host or "127.0.0.1"
    return (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host).strip("[]")


class Handler(web.RequestHandler):
    """What all routes share: rights, JSON, and errors as one sentence."""

    allowed: ClassVar[frozenset[Role]] = PEOPLE

    def initialize(self, driver: Driver) -> None:
        """Keep the driver; called by tornado."""
        self.driver = driver

    def prepare(self) -> None:
        """Let only the roles in `allowed` pass."""
        if self.allowed:
            self.peer = self.driver.rights.trusted(peer_behind(self.request))
            if self.peer.role not in self.allowed:
                needed = "/".join(sorted(self.allowed))
                raise Refused(f"A {self.peer.role} certificate may not do this; it needs one of role {needed}", 403)

    def body(self) -> Any:
        """Return the request's JSON body.

        Raises:
            Refused: it is none.
        """
        try:
            return json.loads(self.request.body or b"{}")
        except ValueError:
            raise Refused("The request's body is not JSON", 400) from None

    def answer(self, data: Any, status: int = 200) -> None:
        """Send `data` as JSON."""
        self.set_status(status)
        self.set_header("content-type", "application/json")
        self.finish(json.dumps(data))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an exception as one sentence; called by tornado."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, Refused):
            self.answer({"error": str(error)}, error.status)
        elif isinstance(error, NotTrusted):
            self.answer({"error": str(error)}, 401)
        elif isinstance(error, ComputeMeshError):
            self.answer({"error": str(error)}, 400)
        else:
            self.answer({"error": f"{self.request.method} {self.request.path}: {self._reason}"}, status_code)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log only what nobody foresaw; called by tornado."""
        if not isinstance(value, ComputeMeshError):
            super().log_exception(typ, value, tb)


class Enrol(Handler):
    """The one route without a client certificate."""

    allowed = frozenset()

    def post(self) -> None:
        """Trade a token for a certificate."""
        self.answer(self.driver.rights.enrol(self.body(), self.request.remote_ip or ""))


class Renew(Handler):
    """A new certificate for one that still counts."""

    allowed = EVERYONE

    def post(self) -> None:
        """Sign a new certificate of the same role and name."""
        self.answer(self.driver.rights.renew(self.peer, self.body(), self.request.remote_ip or ""))


class StatusRoute(Handler):
    """Where the scheduler is."""

    allowed = EVERYONE

    def get(self) -> None:
        """Return `Status`."""
        self.answer(plain(self.driver.status(host_asked(self.request))))


class Throughput(Handler):
    """Lets an agent measure the network between it and the driver."""

    allowed = frozenset({Role.NODE})

    def post(self) -> None:
        """Take a body and say that it came."""
        self.set_status(204)

    def get(self) -> None:
        """Return as many bytes as asked for, within a bound."""
        asked = self.get_query_argument("bytes", "0")
        if not asked.isdigit() or int(asked) > LARGEST_BODY:
            raise Refused(f"bytes={asked} is not usable: give 0 to {LARGEST_BODY}", 400)
        self.set_header("content-type", "application/octet-stream")
        self.finish(bytes(int(asked)))


class NodesRoute(Handler):
    """All nodes."""

    def get(self) -> None:
        """Return the nodes with scores and gates."""
        self.answer(self.driver.described())


class SavingsRoute(Handler):
    """What was harvested."""

    def get(self) -> None:
        """Return hours, share of capacity and money of the last ``days``, by node, pool, site or day."""
        days, by = self.get_query_argument("days", "30"), self.get_query_argument("by", "node")
        try:
            since = time.time() - DAY_SECONDS * float(days)
        except ValueError:
            since = -1.0
        if not 0 <= since <= time.time():
            raise Refused(f"days={days} is not usable: give a number of days", 400)
        if by not in KINDS:
            raise Refused(f"by={by} is not usable: give one of {', '.join(KINDS)}", 400)
        self.answer(self.driver.savings(since, by))


class MetricsRoute(Handler):
    """For Prometheus, which shows a user's certificate as everybody does."""

    def get(self) -> None:
        """Return the metrics as text."""
        self.set_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
        self.finish(self.driver.metrics())


class PoolsRoute(Handler):
    """All pools."""

    def get(self) -> None:
        """Return a row a pool."""
        self.answer(self.driver.pools())


class NodeRoute(Handler):
    """One node."""

    def get(self, name: str) -> None:
        """Return a node whole, with history and events."""
        self.answer(self.driver.node(name))


class NodeAction(Handler):
    """What an administrator does with a node."""

    allowed = ADMINS

    async def post(self, name: str, action: str) -> None:
        """Cordon, uncordon or drain a node."""
        if action == "drain":
            seconds = self.body().get("timeout", DRAIN_SECONDS)
            if not isinstance(seconds, int | float) or not 0 < seconds <= DRAIN_SECONDS:
                raise Refused(f"timeout={seconds!r} is not usable: give 1 to {DRAIN_SECONDS:g} seconds", 400)
            self.answer(await self.driver.drain(name, seconds))
            return
        if action == "cordon":
            self.driver.cordon(name)
        else:
            self.driver.uncordon(name)
        self.answer({"node": name, "action": action})


class Why(Handler):
    """Explains a placement."""

    async def post(self) -> None:
        """Return the scheduler's explanation of a task."""
        key = self.body().get("key")
        if not isinstance(key, str) or not key:
            raise Refused("Give the task's key, as `future.key` shows it", 400)
        self.answer(await self.driver.child.ask("why", key))


class Placements(Handler):
    """Where tasks went."""

    async def get(self) -> None:
        """Return the newest placements that the scheduler remembers: key, prefix, node, when."""
        count = self.get_query_argument("count", "100")
        if not count.isdigit():
            raise Refused(f"count={count} is not usable: give a whole number", 400)
        self.answer((await self.driver.child.ask("placements", count))["placements"])


class Tokens(Handler):
    """Tokens are made and seen by administrators."""

    allowed = ADMINS

    def get(self) -> None:
        """Return all tokens, without anything secret."""
        hidden = {"digest"}
        tokens = [plain(token) for token in self.driver.books.tokens.values()]
        self.answer([{key: value for key, value in token.items() if key not in hidden} for token in tokens])

    def post(self) -> None:
        """Make a token."""
        asked = self.body()
        try:
            role = Role(asked.get("role", "node"))
            lifetime, uses = float(asked["lifetime"]), int(asked.get("uses", 1))
            name, pools = str(asked.get("name", "")), [str(pool) for pool in asked.get("pools", ())]
            networks = [str(network) for network in asked.get("networks", ())]
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(f"The token asked for is not usable: {error}", 400) from None
        if role is Role.DRIVER or lifetime <= 0 or uses < 1:
            raise Refused("A token is for a node, user or admin, lives for a while and has at least one use", 400)
        self.answer(self.driver.rights.create_token(role, lifetime, uses, name, networks, pools))


class Token(Handler):
    """One token."""

    allowed = ADMINS

    def delete(self, identifier: str) -> None:
        """Make a token worthless."""
        self.driver.rights.revoke_token(identifier)
        self.answer({"revoked": identifier})


class Revoke(Handler):
    """Certificates that no longer count."""

    allowed = ADMINS

    def post(self) -> None:
        """Turn a node or person away from now on."""
        self.answer(self.driver.revoke(str(self.body().get("name", "")), self.peer.name))


class Events(Handler):
    """The journal for people, once or live."""

    async def get(self) -> None:
        """Return the newest events; with ``follow=1`` go on with each new one, a line each."""
        count = self.get_query_argument("count", "100")
        node = self.get_query_argument("node", "")
        if not count.isdigit() or int(count) > 10_000:
            raise Refused(f"count={count} is not usable: give 0 to 10000", 400)
        recent = self.driver.events(int(count), node)
        if self.get_query_argument("follow", "") != "1":
            self.answer([self._shown(record) for record in recent])
            return
        await self._follow(recent, node)

    async def _follow(self, recent: list[Record], node: str) -> None:
        queue: asyncio.Queue[Record | None] = asyncio.Queue(maxsize=1000)

        def hear(record: Record) -> None:
            # A reader that is a thousand events behind is cut rather than let grow: it can ask again.
            if queue.full():
                self._gone.set()
            elif not node or record.node == node:
                queue.put_nowait(record)

        self._gone = asyncio.Event()
        forget = self.driver.follow(hear)
        self.set_header("content-type", "application/x-ndjson")
        try:
            for record in recent:
                self.write(json.dumps(self._shown(record)) + "\n")
            await self.flush()
            gone = asyncio.create_task(self._gone.wait())
            while not self._gone.is_set():
                following = asyncio.create_task(queue.get())
                await asyncio.wait({following, gone}, return_when=asyncio.FIRST_COMPLETED)
                if following.done() and (found := following.result()) is not None:
                    self.write(json.dumps(self._shown(found)) + "\n")
                    await self.flush()
                else:
                    following.cancel()
            gone.cancel()
        finally:
            forget()

    def on_connection_close(self) -> None:
        """End following when the reader has gone; called by tornado."""
        if hasattr(self, "_gone"):
            self._gone.set()

    def _shown(self, record: Record) -> dict[str, Any]:
        about: dict[str, Any] = plain(record)
        if self.peer.role is not Role.ADMIN:
            about.pop("data")
        elif "token" in about["data"]:
            about["data"]["token"].pop("digest", None)
        return about


def routes(driver: Driver) -> list[Any]:
    """Return all routes but the agents' WebSocket."""
    name = r"([a-z0-9.-]+)"
    table: list[tuple[str, type[Handler]]] = [
        (r"/v1/enrol", Enrol),
        (r"/v1/renew", Renew),
        (r"/v1/status", StatusRoute),
        (r"/v1/throughput", Throughput),
        (r"/v1/nodes", NodesRoute),
        (r"/v1/pools", PoolsRoute),
        (r"/v1/savings", SavingsRoute),
        (r"/metrics", MetricsRoute),
        (rf"/v1/nodes/{name}", NodeRoute),
        (rf"/v1/nodes/{name}/(cordon|uncordon|drain)", NodeAction),
        (r"/v1/why", Why),
        (r"/v1/placements", Placements),
        (r"/v1/tokens", Tokens),
        (rf"/v1/tokens/{name}", Token),
        (r"/v1/revoke", Revoke),
        (r"/v1/events", Events),
    ]
    return [(path, handler, {"driver": driver}) for path, handler in table]
