"""The driver's feed on the wire: who may watch, what is told, and what a Jupyter server makes of a driver's death."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tornado import httpclient, websocket

from computemesh.certificates import Role
from computemesh.errors import ComputeMeshError, NoMesh, Refused
from computemesh.feed import FEED_VERSION, FeedNotice, FeedSnapshot, FromDriver, Picture, picture_after
from computemesh.identity import Identity, find_identity, load_identity
from computemesh.jupyterlab_ext.upstream import Upstream
from computemesh.protocol import decode

from .conftest import House, client_of, free_ports, mesh, waiting_for


def logged_in(house: House, home: Path, name: str) -> Identity:
    token = house.token("user", name=name)
    done = mesh("login", house.address, "--token", token["token"], "--ca", token["ca"], "--home", str(home))
    assert done.returncode == 0, done.stderr
    return find_identity(home)


async def watching(identity: Identity, **headers: str) -> websocket.WebSocketClientConnection:
    request = httpclient.HTTPRequest(
        f"wss://{identity.driver}/v1/feed", ssl_options=identity.client_context((Role.DRIVER,)), headers=headers
    )
    return await websocket.websocket_connect(request, compression_options={})


class Watched:
    """The mesh as one watcher sees it."""

    def __init__(self, connection: websocket.WebSocketClientConnection) -> None:
        self.connection, self.picture = connection, Picture()

    async def until(self, true) -> Picture:
        async with asyncio.timeout(30):
            while not true(self.picture):
                text = await self.connection.read_message()
                assert text is not None, (self.connection.close_code, self.connection.close_reason)
                self.picture = picture_after(self.picture, decode(text, FromDriver))
        return self.picture


async def test_a_user_sees_nodes_cordons_and_running_tasks(shared_house: House, tmp_path):
    identity = logged_in(shared_house, tmp_path, "watcher")
    watched = Watched(await watching(identity))
    first = decode(await watched.connection.read_message(), FromDriver)
    assert isinstance(first, FeedSnapshot)
    assert (first.version, [row.name for row in first.nodes]) == (FEED_VERSION, ["desk", "rack"])
    watched.picture = picture_after(watched.picture, first)
    assert watched.picture.headline.healthy == 2

    admin = shared_house.client
    await asyncio.to_thread(admin.post, "/v1/nodes/desk/cordon")
    picture = await watched.until(lambda now: now.nodes["desk"].cordoned)
    assert picture.nodes["desk"].reasons == ("is cordoned",)
    assert not picture.nodes["rack"].cordoned
    await asyncio.to_thread(admin.post, "/v1/nodes/desk/uncordon")
    await watched.until(lambda now: not now.nodes["desk"].cordoned)

    go = tmp_path / "go"
    with client_of(shared_house) as client:
        futures = client.map(waiting_for, [str(go)] * 5, pure=False)
        busy = await watched.until(lambda now: now.headline.running == 2 and now.headline.waiting)
        assert (busy.headline.busy, busy.nodes["desk"].tasks, busy.nodes["rack"].tasks) == (2, 1, 1)
        go.touch()
        assert await asyncio.to_thread(client.gather, futures) == [str(go)] * 5
    await watched.until(lambda now: (now.headline.running, now.headline.waiting, now.headline.busy) == (0, 0, 0))
    watched.connection.close()


async def test_a_node_and_a_browser_may_not_watch(shared_house: House):
    node = load_identity(shared_house.folder / "desk" / "node")
    with pytest.raises(httpclient.HTTPClientError, match="403"):
        await watching(node)
    admin = load_identity(shared_house.home / "admin")
    with pytest.raises(httpclient.HTTPClientError, match="403"):
        await watching(admin, Origin="https://evil.example")
    anonymous = httpclient.HTTPRequest(f"wss://{shared_house.address}/v1/feed", validate_cert=False)
    with pytest.raises((httpclient.HTTPClientError, OSError, websocket.WebSocketError)):
        await websocket.websocket_connect(anonymous)


async def test_a_revoked_user_is_cut_off_while_watching(shared_house: House, tmp_path):
    identity = logged_in(shared_house, tmp_path, "mallory")
    connection = await watching(identity)
    assert await connection.read_message() is not None
    await asyncio.to_thread(shared_house.client.post, "/v1/revoke", {"name": "mallory"})
    async with asyncio.timeout(20):
        while await connection.read_message() is not None:
            pass
    assert "revoked" in connection.close_reason


# ---------------------------------------------------------------- the Jupyter server's end


class Panel:
    """A browser's panel, as the server extension sees it."""

    def __init__(self, upstream: Upstream) -> None:
        self.news: asyncio.Queue = asyncio.Queue()
        self.reader = upstream.join(self.send)

    async def send(self, message: bytes) -> None:
        self.news.put_nowait(decode(message, FromDriver | FeedNotice))

    async def until(self, true, bound: float = 60):
        async with asyncio.timeout(bound):
            while not true(message := await self.news.get()):
                pass
        return message


def is_snapshot(message) -> bool:
    return isinstance(message, FeedSnapshot)


def notice(kind: str):
    return lambda message: isinstance(message, FeedNotice) and message.kind == kind


async def test_panels_share_one_connection_which_ends_with_the_last_of_them(shared_house: House):
    asked = []

    def find() -> Identity:
        asked.append(1)
        return load_identity(shared_house.home / "admin")

    upstream = Upstream(find)
    assert not upstream.following
    panels = [Panel(upstream) for _ in range(3)]
    for panel in panels:
        assert len((await panel.until(is_snapshot)).nodes) == 2
    late = Panel(upstream)
    assert is_snapshot(await late.news.get()), "who comes later is told at once"
    assert len(asked) == 1
    for panel in (*panels, late):
        assert upstream.following
        upstream.leave(panel.reader)
    assert not upstream.following


async def test_what_is_wrong_is_said_in_words_and_ends_by_itself(shared_house: House, tmp_path):
    nobody = replace(load_identity(shared_house.home / "admin"), driver=f"127.0.0.1:{free_ports(1)[0]}")
    found: list[Identity | ComputeMeshError] = [NoMesh("log in with `mesh login HOST --token …`")]

    def find() -> Identity:
        if isinstance(found[0], ComputeMeshError):
            raise found[0]
        return found[0]

    upstream = Upstream(find, first_pause=0.1)
    panel = Panel(upstream)
    assert "mesh login" in (await panel.until(notice("no-mesh"))).text
    found[0] = nobody
    assert "Nobody listens" in (await panel.until(notice("unreachable"))).text
    found[0] = load_identity(shared_house.folder / "desk" / "node")
    assert "may not watch" in (await panel.until(notice("refused"))).text
    found[0] = Refused("no")
    await panel.until(lambda message: notice("refused")(message) and message.text == "no")
    found[0] = load_identity(shared_house.home / "admin")
    await panel.until(is_snapshot)
    upstream.leave(panel.reader)


async def test_a_driver_that_is_killed_and_comes_back_is_followed_again(house: House):
    upstream = Upstream(lambda: load_identity(house.home / "admin"), first_pause=0.1)
    panel = Panel(upstream)
    await panel.until(is_snapshot)
    await asyncio.to_thread(house.end, "driver", signal.SIGKILL)
    await panel.until(notice("unreachable"))
    await asyncio.to_thread(house.up)
    await panel.until(is_snapshot)
    upstream.leave(panel.reader)
