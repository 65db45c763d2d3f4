"""Which networks the machine is on, and whether they are metered, as far as the platform tells."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

NM = "org.freedesktop.NetworkManager"
METERED = {1: True, 3: True, 2: False, 4: False}
"""NMMetered: 1 and 3 are yes and a guess of yes, 2 and 4 no and a guess of no; 0 is unknown."""


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks of this machine at one moment."""

    addresses: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """Of connections, such as Wi-Fis; empty where nobody tells."""
    metered: bool | None = None


def allowed(networks: Networks, wanted: frozenset[str] | None) -> bool:
    """Return whether the machine is on a network that `wanted` names, by subnet or by name; None allows all."""
    if wanted is None:
        return True
    for each in wanted:
        if "/" not in each:
            if each in networks.names:
                return True
            continue
        subnet = ipaddress.ip_network(each, strict=False)
        if any(ipaddress.ip_address(address) in subnet for address in networks.addresses):
            return True
    return False


def look(bus: str = "SYSTEM") -> Networks:
    """Look at this machine; on Linux NetworkManager is asked too, where there is one."""
    addresses = frozenset(_addresses())
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ImportError, KeyError, ValueError):
            metered, names = _ask_network_manager(bus)
            return Networks(addresses, frozenset(names), metered)
    if sys.platform == "win32":
        with contextlib.suppress(OSError, AttributeError):
            return Networks(addresses, frozenset(), _windows_metered())
    return Networks(addresses)


def _addresses() -> Iterable[str]:
    import psutil

    for found in psutil.net_if_addrs().values():
        for each in found:
            if each.family in (socket.AF_INET, socket.AF_INET6):
                address = each.address.partition("%")[0]
                if not ipaddress.ip_address(address).is_loopback:
                    yield address


def _ask_network_manager(bus: str) -> tuple[bool | None, list[str]]:
    """Return its property ``Metered`` and the names of its active connections (NetworkManager's D-Bus API)."""
    from jeepney import DBusAddress, new_method_call
    from jeepney.io.blocking import open_dbus_connection
    from jeepney.low_level import MessageType

    connection = open_dbus_connection(bus)

    def ask(path: str, interface: str, name: str) -> Any:
        address = DBusAddress(path, bus_name=NM, interface="org.freedesktop.DBus.Properties")
        reply = connection.send_and_get_reply(new_method_call(address, "Get", "ss", (interface, name)), timeout=1)
        if reply.header.message_type is not MessageType.method_return:
            raise OSError(f"NetworkManager: {reply.body[0] if reply.body else 'error'}")
        return reply.body[0][1]

    try:
        metered = METERED.get(ask("/org/freedesktop/NetworkManager", NM, "Metered"))
        active = ask("/org/freedesktop/NetworkManager", NM, "ActiveConnections")
        return metered, [str(ask(path, f"{NM}.Connection.Active", "Id")) for path in active]
    finally:
        connection.close()


def _windows_metered() -> bool | None:
    """Return what INetworkCostManager says (netlistmgr.h): bits 2 and 4 are fixed and variable cost, 0x40000 roaming.

    Through PowerShell's WinRT projection, since COM from ctypes would be a page of its own.
    """
    import subprocess

    script = (
        "[Windows.Networking.Connectivity.NetworkInformation,Windows,ContentType=WindowsRuntime] > $null;"
        "$p=[Windows.Networking.Connectivity.NetworkInformation]::GetInternetConnectionProfile();"
        'if($p){$c=$p.GetConnectionCost(); "$($c.NetworkCostType) $($c.Roaming)"}'
    )
    command = ["powershell", "-NoProfile", "-NonInteractive", "-Command", script]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return cost_is_metered(said)


def cost_is_metered(said: list[str]) -> bool | None:
    """Return whether a connection's cost type and roaming, as PowerShell prints them, mean that it is metered."""
    if len(said) != 2:
        return None
    return said[0] in ("Fixed", "Variable") or said[1] == "True"
