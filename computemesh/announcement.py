"""What a driver says of itself on the local network by multicast DNS (RFC 6762, 6763), and how it is recognised.

An announcement is a hint and nothing more: anybody can announce anything. Trust comes from the pin of the mesh's CA
alone, which the joining machine compares before it sends its token; and what is alive is learned from beats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SERVICE = "_computemesh._tcp.local."
FORMAT = "1"
PREFIX = 8
"""Digits of the pin that are announced: enough to tell meshes apart."""


@dataclass(frozen=True, slots=True)
class Announced:
    """One driver, as it announces itself."""

    addresses: tuple[str, ...]
    port: int
    properties: Mapping[str, str]


def properties_of(pin: str) -> dict[str, str]:
    """Return what is announced of a driver whose CA has this pin, ``sha256:…``."""
    return {"v": FORMAT, "mesh": short(pin), "role": "driver"}


def short(pin: str) -> str:
    """Return the part of a pin that is announced."""
    return pin.removeprefix("sha256:")[:PREFIX]


def addresses_of(found: Iterable[Announced], pin: str) -> list[str]:
    """Return the addresses ``host:port`` of the drivers that say that they are of the mesh of `pin`, in order."""
    addresses: list[str] = []
    for driver in found:
        said = driver.properties
        if said.get("v") != FORMAT or said.get("role") != "driver" or said.get("mesh") != short(pin):
            continue
        for host in driver.addresses:
            address = f"[{host}]:{driver.port}" if ":" in host else f"{host}:{driver.port}"
            if address not in addresses:
                addresses.append(address)
    return addresses
