"""The driver's scheduler process: TLS, the guard and the plugin in it, alive as long as its link."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import sys

import pytest
from distributed import Client, Worker

from computemesh.certificates import Role, certificate_pem, key_pem, new_authority, new_key, new_request, sign
from computemesh.dask_security import MeshSecurity
from computemesh.identity import Identity, save_identity
from computemesh.protocol import (
    Answer,
    Ask,
    DeniedSerials,
    FromChild,
    Nodes,
    NodesChanged,
    NodeState,
    Started,
    WorkerSeen,
    decode,
    encode,
)

from .real_mesh import node

NOW = datetime.datetime.now(datetime.UTC)


def identities(folder):
    """Return a new mesh's identities: driver, node and user."""
    authority = new_authority(NOW)
    made = {}
    for role, name in ((Role.DRIVER, "driver"), (Role.NODE, "desk"), (Role.USER, "ann")):
        key = new_key()
        certificate = sign(
            authority, new_request(key, name), role, name, ["127.0.0.1"], NOW, datetime.timedelta(hours=1)
        )
        made[role] = Identity(folder / role, role, name, "127.0.0.1:1")
        save_identity(made[role], certificate_pem(authority[1]), certificate_pem(certificate), key_pem(key))
    return made


class Driver:
    """The other end of the link."""

    def __init__(self):
        self.heard = []
        self.news = asyncio.Event()
        self.connected = asyncio.Event()
        self.writer = None

    async def converse(self, reader, writer):
        self.writer = writer
        self.connected.set()
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self.heard.append(decode(line, FromChild))
                self.news.set()

    def say(self, *messages):
        for message in messages:
            self.writer.write(encode(message) + b"\n")

    async def hear(self, kind, condition=lambda message: True):
        async with asyncio.timeout(30):
            while True:
                for message in self.heard:
                    if isinstance(message, kind) and condition(message):
                        return message
                self.news.clear()
                await self.news.wait()

    async def ask(self, number, what, argument=""):
        self.say(Ask(number=number, what=what, argument=argument))
        return await self.hear(Answer, lambda answer: answer.number == number)


@contextlib.asynccontextmanager
async def running_child(tmp_path):
    who = identities(tmp_path)
    driver = Driver()
    server = await asyncio.start_unix_server(driver.converse, str(tmp_path / "link"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "computemesh.scheduler_plugin.child", "--link", str(tmp_path / "link"),
        "--listen", "tls://127.0.0.1:0", "--identity", str(who[Role.DRIVER].folder),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        address = (await driver.hear(Started)).address
        yield who, driver, process, address
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        server.close()


async def test_the_child_serves_answers_and_ends_with_its_link(tmp_path):
    async with running_child(tmp_path) as (who, driver, process, address):
        assert address.startswith("tls://127.0.0.1:")
        driver.say(Nodes(nodes=(node("desk", pools=("day",)),)))
        node_security, user_security = MeshSecurity(who[Role.NODE]), MeshSecurity(who[Role.USER])
        async with (
            Worker(address, name="desk", nthreads=1, security=node_security, protocol="tls", host="127.0.0.1"),
            Client(address, security=user_security, asynchronous=True) as client,
        ):
            assert (await driver.hear(WorkerSeen)).node == "desk"
            future = client.submit(sum, [1, 2])
            assert await future == 3
            why = await driver.ask(1, "why", future.key)
            assert why.data["chosen"]["node"] == "desk"
            assert (await driver.ask(2, "tasks")).data["states"] == {"memory": 1}
            driver.say(NodesChanged(states={"desk": NodeState(cordoned=True)}))
            [desk] = (await driver.ask(5, "nodes")).data["nodes"]
            assert desk["gates"] == ["is cordoned"]
            driver.say(NodesChanged(states={"desk": NodeState()}))
            assert "knows no question" in (await driver.ask(3, "weather")).error
            assert (await driver.ask(4, "drain", "desk")).data["left"] == 1
            driver.say(DeniedSerials(serials=()))
        assert (await driver.hear(WorkerSeen, lambda seen: seen.gone)).node == "desk"
        driver.writer.close()
        async with asyncio.timeout(20):
            assert await process.wait() == 0


async def test_nobody_without_a_certificate_gets_in(tmp_path):
    async with running_child(tmp_path) as (_, driver, process, address):
        host, _, port = address.removeprefix("tls://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x00" * 64)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        with pytest.raises(OSError):
            await Client(address.replace("tls", "tcp"), asynchronous=True, timeout="2s")
        assert (await driver.ask(1, "tasks")).data["states"] == {}
        assert process.returncode is None


async def test_a_driver_that_dies_takes_the_scheduler_along(tmp_path):
    async with running_child(tmp_path) as (_, driver, process, _):
        driver.writer.transport.abort()
        async with asyncio.timeout(20):
            assert await process.wait() == 0


async def test_without_a_driver_at_the_socket_it_says_so_and_ends(tmp_path):
    who = identities(tmp_path)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "computemesh.scheduler_plugin.child", "--link", str(tmp_path / "nobody"),
        "--listen", "tls://127.0.0.1:0", "--identity", str(who[Role.DRIVER].folder),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert b"cannot serve at tls://127.0.0.1:0" in said
    assert b"Traceback" not in said
