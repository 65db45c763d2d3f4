"""Real Dask clusters in one process, and bounded waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import dask
import pytest
from distributed import Client, Scheduler, Worker

from computemesh.node_agent.capsules import CapsuleExecutor, CapsulePlugin

BOUND = 60.0
"""Seconds after which something that must happen counts as never happening."""


async def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait until `condition` holds and return what it said."""
    deadline = time.monotonic() + BOUND
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what or condition}")
        await asyncio.sleep(0.01)
    return found


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
