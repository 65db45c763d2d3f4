"""Agents as real processes, under a driver and a scheduler of this test's own."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import dask
import psutil
from distributed import Client, Scheduler

from computemesh import protocol

from .fake_driver import FakeDriver
from .waiting import BOUND, eventually

JOIN = """
from computemesh.cli import MeshGroup
from computemesh.node_agent.commands import join
MeshGroup(commands={"join": join})()
"""


@dataclass
class Joined:
    """One `mesh join`."""

    process: asyncio.subprocess.Process
    home: Path
    tree: list[psutil.Process] = field(default_factory=list)

    def see(self) -> list[psutil.Process]:
        """Remember all processes below the agent as they are now."""
        self.tree = psutil.Process(self.process.pid).children(recursive=True)
        return self.tree

    async def ends(self) -> tuple[int, str]:
        """Wait for the agent's end and return its exit code and stderr."""
        async with asyncio.timeout(BOUND):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()

    def log(self) -> str:
        return "".join(file.read_text() for file in sorted((self.home / "logs").glob("*.log")))


class Mesh:
    """A driver, its scheduler, a client, and agents that are gone at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver = FakeDriver(folder / "driver")
        self.scheduler: Scheduler
        self.client: Client
        self.agents: list[Joined] = []

    async def join(self, name: str, *options: str, enrolled: bool = True, **environment: str) -> Joined:
        home = self.folder / name
        if enrolled and not (home / "node" / "identity.json").exists():
            self.driver.node(home, name)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", JOIN, "join", "--home", str(home), *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )  # fmt: skip
        joined = Joined(process, home)
        self.agents.append(joined)
        return joined

    def policy(self, name: str, **fields: str) -> Path:
        """Write an owner's policy that this machine's own load and disk do not disturb; return its file."""
        written = {"others-cpu": "100 %", "keep-disk": "0 B", "keep-ram": "0 B"}
        written |= {field.replace("_", "-"): value for field, value in fields.items()}
        file = self.folder / name / "policy.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f'{field} = "{value}"\n' for field, value in written.items()), "utf-8")
        return file

    async def worker_of(self, agent: Joined) -> psutil.Process:
        """Wait until the agent's worker is registered and its capsules are warm."""
        await eventually(lambda: any(beat.worker for beat in self.driver.of(protocol.Beat)), "a worker in a beat")
        await eventually(lambda: self.scheduler.workers, "a registered worker")
        await eventually(lambda: len(agent.see()) >= 3, "worker, zygote and a spare")
        return psutil.Process(agent.process.pid).children()[0]

    def submit(self, function: object, *arguments: object, executor: str = "capsule", **mesh: object) -> object:
        with dask.annotate(executor=executor, mesh=mesh):
            return self.client.submit(function, *arguments, pure=False)
