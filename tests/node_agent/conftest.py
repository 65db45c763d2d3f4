"""Real Dask clusters in one process, and bounded waiting."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, Scheduler, Worker

from computemesh.certificates import Role
from computemesh.dask_security import MeshSecurity
from computemesh.node_agent.capsules import CapsuleExecutor, CapsulePlugin

from .fake_driver import tls_scheduler
from .real_agent import Mesh
from .waiting import BOUND, eventually, needed


@dataclass
class Cluster:
    """One scheduler, one worker with capsules, one client."""

    scheduler: Scheduler
    worker: Worker
    client: Client
    capsules: CapsuleExecutor

    def submit(self, function: Callable[..., Any], *args: Any, **mesh: Any) -> Any:
        """Submit `function` to run in a capsule."""
        with dask.annotate(executor="capsule", mesh=mesh):
            return self.client.submit(function, *args, pure=False)

    async def running(self, key: str) -> int:
        """Wait until `key` runs in a capsule and return that one's process id."""
        run = await eventually(lambda: self.capsules.running.get(key), f"{key} runs")
        capsule = await eventually(lambda: run._capsule, f"{key} has a capsule")
        return int(capsule.pid)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    settings = {
        "distributed.scheduler.validate": True,
        "distributed.worker.validate": True,
        "distributed.admin.log-format": "%(message)s",
        "distributed.worker.memory.pause": False,
    }
    with dask.config.set(settings):
        async with (
            Scheduler(host="127.0.0.1", port=0, dashboard_address=":0", validate=True) as scheduler,
            Worker(scheduler.address, nthreads=2, name="n1", host="127.0.0.1", validate=True) as worker,
        ):
            plugin = CapsulePlugin()
            await worker.plugin_add(plugin)
            assert plugin.executor is not None
            async with Client(scheduler.address, asynchronous=True) as client:
                yield Cluster(scheduler, worker, client, plugin.executor)
            worker.validate_state()


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    made = Mesh(tmp_path)
    made.driver.open()
    async with tls_scheduler(made.driver) as scheduler:
        made.scheduler = scheduler
        made.driver.scheduler_address = scheduler.address
        user = made.driver.authority.identity(tmp_path / "user", Role.USER, "ada", made.driver.address)
        async with Client(scheduler.address, security=MeshSecurity(user), asynchronous=True) as client:
            made.client = client
            try:
                yield made
            finally:
                for agent in made.agents:
                    if agent.process.returncode is None:
                        agent.process.kill()
                        await agent.ends()
    await made.driver.close()


@pytest.fixture
def display() -> Iterator[str]:
    server = needed("Xvfb")
    needed("xdotool")
    read, write = os.pipe()
    process = subprocess.Popen(
        [server, "-displayfd", str(write), "-nolisten", "tcp", "-screen", "0", "64x64x24"],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as number:
        name = f":{number.readline().strip()}"
    yield name
    process.terminate()
    process.wait(BOUND)
