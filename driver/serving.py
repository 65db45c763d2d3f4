"""Starts a driver in this process: home, lock, CA, ports, logs; runs until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import json
import logging
import logging.handlers
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornado import httpserver, web

from computemesh import config
from computemesh.certificates import Role
from computemesh.driver_client import host_and_port
from computemesh.errors import BadConfiguration, DriverError
from computemesh.identity import load_identity, write_private
from computemesh.locks import HeldElsewhere, held

from .agent_socket import AgentSocket
from .announcing import announced
from .authority import Granted, open_authority, own_identity
from .driver import Driver, DriverSettings
from .feed import Feed
from .feed_socket import FeedSocket
from .health import Patience
from .http import LARGEST_BODY, routes
from .journal import Journal
from .rights import RightsSettings
from .scheduler_child import ChildSettings

logger = logging.getLogger("computemesh.driver")


@dataclass(frozen=True)
class Place:
    """Where a driver lives and listens."""

    home: Path
    host: str
    """Address to listen on; empty: all."""
    port: int
    scheduler_port: int


def kept_place(home: Path) -> Place | None:
    """Return where this home's driver listened last, since its nodes and users look for it there.

    Raises:
        BadConfiguration: the file that says so cannot be read.
    """
    file = home / "driver" / "place.json"
    try:
        told = json.loads(file.read_text("utf-8"))
        return Place(home, str(told["host"]), int(told["port"]), int(told["scheduler_port"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadConfiguration(
            f"{file} cannot be read ({error}): remove it and give --host, --port and --scheduler-port again"
        ) from None


def keep_place(place: Place) -> None:
    """Keep where the driver listens for its next start."""
    told = {"host": place.host, "port": place.port, "scheduler_port": place.scheduler_port}
    write_private(place.home / "driver" / "place.json", json.dumps(told).encode())


def reachable_host(listening: str) -> str:
    """Return the address that other machines use to reach this one, best known."""
    if listening and listening not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return listening
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        # No packet is sent: connecting a datagram socket only asks the routing table. RFC 5737 documentation address.
        probe.connect(("192.0.2.1", 9))
        found: str = probe.getsockname()[0]
        return found
    return "127.0.0.1"


@contextlib.contextmanager
def only_driver(home: Path) -> Iterator[None]:
    """Hold the home for one driver.

    Raises:
        BadConfiguration: another driver holds it.
    """
    try:
        with held(home / "driver" / "lock"):
            yield
    except HeldElsewhere as other:
        raise BadConfiguration(
            f"Another driver (process {other.holder or '?'}) runs with the home {home}: stop it, or give another --home"
        ) from None


def log_to(home: Path, name: str) -> logging.Handler:
    """Return a handler for ``<home>/logs/<name>.log``, rotated at 10 MB, five kept."""
    folder = home / "logs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(
        folder / f"{name}.log", maxBytes=10_000_000, backupCount=5, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


def _free(host: str, port: int, what: str, option: str) -> list[socket.socket]:
    from tornado.netutil import bind_sockets

    try:
        return bind_sockets(port, host or None, reuse_port=False)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise DriverError(f"Port {port} for {what} is in use: free it, or give another with {option}") from None
        raise DriverError(f"{what} cannot listen on {host or 'all addresses'}, port {port}: {error.strerror}") from None


def make_driver(place: Place, now: datetime.datetime) -> Driver:
    """Return a driver of this home, not started; makes CA, identities and journal at the first time."""
    folder = place.home / "driver"
    authority = open_authority(folder, now)
    host = reachable_host(place.host)
    address = f"[{host}]:{place.port}" if ":" in host else f"{host}:{place.port}"
    hosts = sorted({host, "127.0.0.1", "localhost", socket.gethostname()})
    local = "127.0.0.1" if place.host in ("", "0.0.0.0", "::") else place.host  # noqa: S104 - compared, not bound
    wanted = (
        (folder, Role.DRIVER, "driver", address, hosts),
        (place.home / "admin", Role.ADMIN, "admin", f"{local}:{place.port}", ["localhost"]),
    )

    def renew_own(now: datetime.datetime, denied: frozenset[int]) -> list[tuple[Granted, Role, str]]:
        """Sign the driver's own certificates anew where half of their life is over or they are denied."""
        signed = []
        for place_of, role, name, reached, names in wanted:
            _, granted = own_identity(authority, place_of, role, name, reached, names, now, denied)
            if granted is not None:
                signed.append((granted, role, name))
        return signed

    first = renew_own(now, frozenset())
    identity = load_identity(folder)
    beat = config.seconds("driver.beat")
    scheduler_log = logging.getLogger("computemesh.scheduler_log")
    scheduler_log.propagate = False
    if not scheduler_log.handlers:
        handler = log_to(place.home, "scheduler")
        handler.setFormatter(logging.Formatter("%(message)s"))
        scheduler_log.addHandler(handler)
        scheduler_log.setLevel(logging.INFO)
    # A Unix socket's path holds at most about 100 bytes; a home may be deeper.
    sockets = Path(tempfile.mkdtemp(prefix="computemesh-"))
    listen = place.host or "0.0.0.0"  # noqa: S104 - what an administrator asked for; TLS with client certificates
    settings = DriverSettings(
        identity=identity,
        rights=RightsSettings(
            name=identity.name,
            address=identity.driver,
            authority=authority,
            certificate_lifetime=datetime.timedelta(seconds=config.seconds("driver.certificate-lifetime")),
            clock_skew=config.seconds("driver.clock-skew"),
            enrol_per_minute=int(config.number("driver.enrol-per-minute")),
        ),
        child=ChildSettings(
            folder,
            f"tls://{f'[{listen}]' if ':' in listen else listen}:{place.scheduler_port}",
            sockets / "scheduler",
            scheduler_log,
        ),
        patience=Patience(beat, int(config.number("driver.suspected-after")), int(config.number("driver.dead-after"))),
        history=int(config.seconds("driver.history")),
        ledger=place.home / "driver" / "ledger.sqlite",
        owner_rules=place.home / "driver" / "policy.toml",
    )
    driver = Driver(settings, Journal(folder / "journal.sqlite"), renew_own)
    driver.rights.took_over(first)
    return driver


async def serve(place: Place, ready: Callable[[Driver], None], stop: asyncio.Event) -> None:
    """Run a driver until `stop` is set; `ready` is called once it listens and its scheduler does.

    Raises:
        ComputeMeshError: it cannot start, with the reason.
    """
    with only_driver(place.home):
        # The scheduler's port is tried now for a clear message; the child binds it itself.
        for taken in _free(place.host, place.scheduler_port, "the scheduler", "--scheduler-port"):
            taken.close()
        sockets = _free(place.host, place.port, "the driver", "--port")
        driver = make_driver(place, datetime.datetime.now(datetime.UTC))
        feed = Feed(driver.nodes, driver.limits, driver.child.ask)
        websockets: list[Any] = [
            (r"/v1/agent", AgentSocket, {"driver": driver}),
            (r"/v1/feed", FeedSocket, {"driver": driver, "feed": feed}),
        ]
        application = web.Application(
            [*routes(driver), *websockets],
            log_function=_log_request,
            websocket_max_message_size=LARGEST_BODY,
        )
        context = driver.settings.identity.server_context(optional=True)
        server = httpserver.HTTPServer(
            application, ssl_options=context, max_body_size=LARGEST_BODY, max_header_size=65536
        )
        server.add_sockets(sockets)
        await driver.start()
        announcing = contextlib.AsyncExitStack()
        if config.value("driver.announce"):
            host, port = host_and_port(driver.settings.identity.driver)
            pin = driver.settings.rights.authority.pin
            await announcing.enter_async_context(announced(host, port, pin, place.host))
        try:
            started = asyncio.create_task(driver.child.started.wait())
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                keep_place(place)
                ready(driver)
            await stopped
            started.cancel()
        finally:
            await announcing.aclose()
            server.stop()
            feed.stop()
            await server.close_all_connections()
            await driver.stop()
            driver.settings.child.socket.parent.rmdir()


def _log_request(handler: Any) -> None:
    if handler.get_status() >= 500:
        logger.error("%s %s: %d", handler.request.method, handler.request.path, handler.get_status())


def run(place: Place, ready: Callable[[Driver], None]) -> None:
    """Run a driver in the foreground until SIGINT or SIGTERM."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, stop.set)
            except NotImplementedError:  # Windows has no signal handlers on its loop
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
        await serve(place, ready, stop)

    root = logging.getLogger("computemesh")
    root.addHandler(log_to(place.home, "driver"))
    root.setLevel(logging.INFO)
    logging.getLogger("tornado").addHandler(log_to(place.home, "http"))
    asyncio.run(main())
