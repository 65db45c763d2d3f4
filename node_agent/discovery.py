"""Finds the driver of a mesh without its address: by multicast DNS on the local network, or among Tailscale's peers.

Both give candidates only. The pin of the CA decides who is the driver; `enrol` compares it before it sends the token.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from computemesh.announcement import SERVICE, Announced, addresses_of
from computemesh.errors import BadConfiguration, DriverUnreachable, NotTrusted

Answer = TypeVar("Answer")
LISTEN_SECONDS = 5.0
"""How long announcements are listened for; one that is there is heard within a tenth of a second."""
SETTLE_SECONDS = 0.3
"""How long further ones are waited for after the first that fits."""
DRIVER_PORT = 8790
TAG, HOST_NAMES = "tag:mesh-driver", ("mesh-driver", "computemesh-driver")
"""How Tailscale's administrator marks the driver: by this tag, else by one of these host names."""


def announced_drivers(pin: str, seconds: float = LISTEN_SECONDS, interfaces: Sequence[str] | None = None) -> list[str]:
    """Return the addresses of drivers of the mesh of `pin` that announce themselves here.

    Raises:
        DriverUnreachable: this machine has no network to listen on.
    """
    from zeroconf import InterfaceChoice, ServiceBrowser, ServiceListener, Zeroconf

    found: list[Announced] = []
    fits = threading.Event()

    class Listener(ServiceListener):
        def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
            info = zc.get_service_info(type_, name, 2000)
            if info is None or info.port is None:
                return
            said = {key.decode(): (value or b"").decode(errors="replace") for key, value in info.properties.items()}
            found.append(Announced(tuple(info.parsed_addresses()), info.port, said))
            if addresses_of(found, pin):
                fits.set()

        def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
            self.add_service(zc, type_, name)

        def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
            pass

    try:
        zeroconf = Zeroconf(interfaces=list(interfaces) if interfaces else InterfaceChoice.Default)
    except OSError as error:
        raise DriverUnreachable(f"This machine cannot listen for announcements: {error}") from None
    try:
        ServiceBrowser(zeroconf, SERVICE, Listener())
        if fits.wait(seconds):
            threading.Event().wait(SETTLE_SECONDS)
    finally:
        zeroconf.close()
    return addresses_of(found, pin)


def tailscale_status() -> dict[str, Any]:
    """Return what ``tailscale status --json`` says.

    Raises:
        BadConfiguration: Tailscale is not here, or not connected.
    """
    try:
        command = [shutil.which("tailscale") or "tailscale", "status", "--json"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
        status: dict[str, Any] = json.loads(ran.stdout)
    except FileNotFoundError:
        raise BadConfiguration("--tailscale: Tailscale is not installed here; give the driver's address") from None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BadConfiguration(f"--tailscale: `tailscale status --json` says nothing usable ({error})") from None
    if status.get("BackendState") != "Running":
        raise BadConfiguration(f"--tailscale: Tailscale is {status.get('BackendState', 'not running')}: `tailscale up`")
    return status


def tailscale_drivers(status: Mapping[str, Any], port: int = DRIVER_PORT) -> list[str]:
    """Return the addresses of peers that are marked as the driver, those with the tag first.

    The fields are ipnstate.Status and PeerStatus of Tailscale; ``Peer``, ``Tags`` and ``TailscaleIPs`` may be absent or
    null.
    """
    tagged: list[str] = []
    named: list[str] = []
    for peer in (status.get("Peer") or {}).values():
        if not peer.get("Online") or peer.get("Expired") or peer.get("ShareeNode"):
            continue
        addresses = [_with_port(address, port) for address in peer.get("TailscaleIPs") or ()]
        if TAG in (peer.get("Tags") or ()):
            tagged += addresses[:1]
        elif str(peer.get("HostName", "")).lower().startswith(HOST_NAMES):
            named += addresses[:1]
    return tagged + named


def own_tailscale_address(status: Mapping[str, Any]) -> str:
    """Return this machine's own address in Tailscale's network.

    Raises:
        BadConfiguration: it has none.
    """
    addresses = (status.get("Self") or {}).get("TailscaleIPs") or ()
    if not addresses:
        raise BadConfiguration("--tailscale: this machine has no address in Tailscale's network yet")
    return str(addresses[0])


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def first_that_answers(addresses: Iterable[str], ask: Callable[[str], Answer], what: str) -> Answer:
    """Return what the first candidate answers that can be asked and is of this mesh; others are passed over.

    Raises:
        DriverUnreachable, NotTrusted: none was; what was wrong with the last.
        Refused: the driver said no.
    """
    last: Exception | None = None
    for address in addresses:
        try:
            return ask(address)
        except (DriverUnreachable, NotTrusted) as error:
            last = error
    if last is not None:
        raise last
    raise DriverUnreachable(f"No driver of this mesh {what}: give its address, as `mesh join HOST[:PORT] …`")
