"""A whole mesh of real processes: `mesh up`, `mesh join`, TLS on loopback, each with a home of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from computemesh.driver_client import DriverClient
from computemesh.errors import ComputeMeshError
from computemesh.identity import load_identity


def mesh(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run one `mesh` command to its end."""
    command = [sys.executable, "-m", "computemesh", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def until(found: Callable[[], Any], what: str, bound: float = 60) -> Any:
    """Return what `found` returns once it is true; fails after `bound` seconds."""
    deadline = time.monotonic() + bound
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = found()
            if last:
                return last
        except ComputeMeshError as error:
            last = error
        time.sleep(0.1)
    pytest.fail(f"{what} did not come true within {bound:g} s; last: {last!r}")


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a process, and see it go."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass
class House:
    """One mesh: where it lives, and its processes by name."""

    folder: Path
    port: int
    scheduler_port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "driver-home"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def client(self) -> DriverClient:
        return DriverClient(load_identity(self.home / "admin"))

    def spawn(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "computemesh", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "DASK_COMPUTEMESH__DRIVER__ANNOUNCE": "False", **environment},
            )
        self.processes[name] = process
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8", errors="replace")

    def up(self, **environment: str) -> None:
        ports = ("--port", str(self.port), "--scheduler-port", str(self.scheduler_port))
        self.spawn("driver", "up", "--home", str(self.home), "--host", "127.0.0.1", *ports, **environment)
        until(lambda: self.home.joinpath("admin/identity.json").exists(), "the driver's first start")
        until(lambda: self.client.status().scheduler, "the scheduler")

    def token(self, role: str = "node", **options: str) -> dict[str, Any]:
        extra = [part for name, value in options.items() for part in (f"--{name}", value)]
        made = mesh("token", "create", "--json", "--role", role, "--home", str(self.home), *extra)
        assert made.returncode == 0, made.stderr
        found: dict[str, Any] = json.loads(made.stdout)
        return found

    def join(self, name: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        made = self.token()
        return self.spawn(
            name, "join", self.address, "--token", made["token"], "--ca", made["ca"], "--name", name,
            "--dedicated", "--threads", "1", "--memory", "1GB", "--service", "--home", str(self.folder / name),
            *options, **environment,
        )  # fmt: skip

    def rejoin(self, name: str) -> subprocess.Popen[bytes]:
        return self.spawn(
            name, "join", "--dedicated", "--threads", "1", "--memory", "1GB", "--service", "--home",
            str(self.folder / name),
        )  # fmt: skip

    def node(self, name: str) -> dict[str, Any]:
        return next(node for node in self.client.nodes() if node["facts"]["name"] == name)

    def lending(self, *names: str, bound: float = 90) -> None:
        for name in names:
            until(lambda name=name: self._lends(name), f"{name} lending", bound)

    def _lends(self, name: str) -> bool:
        process = self.processes.get(name)
        assert process is None or process.poll() is None, self.log(name)
        found = [node for node in self.client.nodes() if node["facts"]["name"] == name]
        return bool(found and found[0]["worker"] and not found[0]["gates"])

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        return [event for event in self.client.get("/v1/events?count=10000") if kind in ("", event["kind"])]

    def end(self, name: str, number: int = signal.SIGTERM) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(30)

    def close(self) -> None:
        for name in [*(name for name in self.processes if name != "driver"), "driver"]:
            process = self.processes.get(name)
            if process is None:
                continue
            process.send_signal(signal.SIGCONT)
            ended(process)


def scheduler_process(house: House) -> psutil.Process:
    """Return the driver's scheduler child."""
    children = psutil.Process(house.processes["driver"].pid).children()
    return next(child for child in children if "computemesh.scheduler_plugin.child" in command_of(child))


def worker_process(house: House, name: str) -> psutil.Process:
    children = psutil.Process(house.processes[name].pid).children()
    return next(child for child in children if "computemesh.node_agent.worker" in command_of(child))


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie too
        return ""


def client_of(house: House):
    from distributed import Client

    from computemesh.dask_security import MeshSecurity
    from computemesh.identity import load_identity

    security = MeshSecurity(load_identity(house.home / "admin"))
    return Client(house.client.status().scheduler, security=security, timeout=30)


def waiting_for(file: str) -> str:
    """Run as a task until `file` exists; at most a minute."""
    deadline = time.monotonic() + 60
    while not Path(file).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return file


def new_house(folder: Path) -> House:
    return House(folder, *free_ports(2))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A mesh that is up, without nodes, for one test alone."""
    found = new_house(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def shared_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A mesh with two nodes, shared by a file's tests."""
    found = new_house(tmp_path_factory.mktemp("house"))
    try:
        found.up()
        found.join("desk")
        found.join("rack")
        found.lending("desk", "rack")
        yield found
    finally:
        found.close()
