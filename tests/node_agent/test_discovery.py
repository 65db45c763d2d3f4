"""A driver is found without its address; who it is decides the pin alone."""

from __future__ import annotations

import asyncio

import pytest

from computemesh.announcement import Announced, addresses_of, properties_of
from computemesh.driver.announcing import announced
from computemesh.errors import BadConfiguration, DriverUnreachable, NotTrusted
from computemesh.node_agent.discovery import (
    announced_drivers,
    first_that_answers,
    own_tailscale_address,
    tailscale_drivers,
)

PIN, OTHER = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32


async def test_a_driver_that_announces_itself_is_found_and_one_of_another_mesh_is_not():
    """Real multicast DNS, on loopback."""
    async with (
        announced("127.0.0.1", 8790, PIN, "127.0.0.1"),
        announced("127.0.0.1", 8890, OTHER, "127.0.0.1"),
    ):
        found = await asyncio.to_thread(announced_drivers, PIN, 30.0, ["127.0.0.1"])
        assert found == ["127.0.0.1:8790"]
    assert await asyncio.to_thread(announced_drivers, PIN, 0.5, ["127.0.0.1"]) == []


def test_only_what_says_that_it_is_a_driver_of_this_mesh_is_asked():
    ours = properties_of(PIN)
    found = [
        Announced(("10.0.0.5", "fd00::5"), 8790, ours),
        Announced(("10.0.0.5",), 8790, ours),
        Announced(("10.0.0.6",), 8790, properties_of(OTHER)),
        Announced(("10.0.0.7",), 8790, {**ours, "role": "node"}),
        Announced(("10.0.0.8",), 8790, {**ours, "v": "2"}),
        Announced(("10.0.0.9",), 8790, {}),
    ]
    assert addresses_of(found, PIN) == ["10.0.0.5:8790", "[fd00::5]:8790"]


def peer(**about: object) -> dict[str, object]:
    """One of PeerStatus, as ``tailscale status --json`` writes it."""
    return {
        "HostName": "laptop", "DNSName": "laptop.tail1234.ts.net.", "OS": "linux", "TailscaleIPs": ["100.64.0.9"],
        "Online": True, **about,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("peers", "addresses"),
    [
        (None, []),
        ({}, []),
        ({"a": peer()}, []),
        ({"a": peer(Tags=["tag:mesh-driver"], TailscaleIPs=["100.64.0.5", "fd7a::5"])}, ["100.64.0.5:8790"]),
        ({"a": peer(HostName="Mesh-Driver-2")}, ["100.64.0.9:8790"]),
        (
            {"a": peer(HostName="mesh-driver"), "b": peer(Tags=["tag:mesh-driver"], TailscaleIPs=["100.64.0.5"])},
            ["100.64.0.5:8790", "100.64.0.9:8790"],
        ),
        ({"a": peer(Tags=["tag:mesh-driver"], Online=False)}, []),
        ({"a": peer(Tags=["tag:mesh-driver"], Expired=True)}, []),
        ({"a": peer(Tags=["tag:mesh-driver"], ShareeNode=True)}, []),
        ({"a": peer(Tags=None, TailscaleIPs=None, HostName="mesh-driver")}, []),
        ({"a": peer(Tags=["tag:mesh-driver"], TailscaleIPs=["fd7a::5"])}, ["[fd7a::5]:8790"]),
    ],
)
def test_the_driver_among_tailscales_peers(peers, addresses):
    assert tailscale_drivers({"BackendState": "Running", "Peer": peers}) == addresses


def test_a_machines_own_address_in_tailscales_network():
    assert own_tailscale_address({"Self": {"TailscaleIPs": ["100.64.0.1", "fd7a::1"]}}) == "100.64.0.1"
    with pytest.raises(BadConfiguration, match="no address"):
        own_tailscale_address({"Self": {"TailscaleIPs": None}})


def test_candidates_that_are_away_or_of_another_mesh_are_passed_over():
    def ask(address: str) -> str:
        if address == "away":
            raise DriverUnreachable("nobody listens")
        if address == "foreign":
            raise NotTrusted("another CA")
        return address

    assert first_that_answers(["away", "here"], ask, "announces itself") == "here"
    with pytest.raises(DriverUnreachable, match="nobody listens"):
        first_that_answers(["away"], ask, "announces itself")
    assert first_that_answers(["foreign", "here"], ask, "announces itself") == "here"
    with pytest.raises(NotTrusted):
        first_that_answers(["away", "foreign"], ask, "announces itself")
    with pytest.raises(DriverUnreachable, match="No driver of this mesh announces itself: give its address"):
        first_that_answers([], ask, "announces itself")
