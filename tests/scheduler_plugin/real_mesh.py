"""A real Dask scheduler with named workers in this process, with all of Dask's own invariant checks on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import dask
from distributed import Client, Scheduler, Worker

from computemesh.node import GpuFacts, Node, NodeFacts, Sample
from computemesh.scheduler_plugin import MeshPlugin

GB = 10**9
CHECKED = {
    "distributed.scheduler.validate": True,
    "distributed.worker.validate": True,
    "distributed.admin.tick.limit": "60s",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.active-memory-manager.interval": "100ms",
    "distributed.scheduler.work-stealing-interval": "50ms",
}


def node(name: str, speed: float = 1.0, gpus: tuple[int, ...] = (), **about: Any) -> Node:
    """Return a node with 4 cores and 16 GB unless said otherwise; `gpus` are memory sizes in GB."""
    facts = {
        "cores": 4.0,
        "ram": 16 * GB,
        "core_speed": speed,
        "gpus": tuple(GpuFacts("test GPU", size * GB) for size in gpus),
        **{key: about.pop(key) for key in ("cores", "ram", "pools", "packages", "cuda", "site") if key in about},
    }
    sample = Sample(**{"time": 0.0, "ram_free": facts["ram"], **about.pop("sample", {})})
    return Node(facts=NodeFacts(name=name, **facts), sample=sample, **about)


class Mesh:
    """A scheduler, its workers, a client and the plugin."""

    def __init__(self, scheduler: Scheduler, client: Client, plugin: MeshPlugin, stack: AsyncExitStack) -> None:
        self.scheduler, self.client, self.plugin = scheduler, client, plugin
        self._stack = stack
        self.workers: dict[str, Worker] = {}

    async def join(self, name: str, nthreads: int = 2, **settings: Any) -> Worker:
        worker = Worker(self.scheduler.address, name=name, nthreads=nthreads, **settings)
        self.workers[name] = await self._stack.enter_async_context(worker)
        return self.workers[name]

    def ran(self, futures: Any) -> dict[str, int]:
        """Return how many of the finished tasks each node has the result of."""
        count: dict[str, int] = {}
        for future in futures:
            ts = self.scheduler.tasks[future.key]
            for ws in ts.who_has or ():
                count[ws.name] = count.get(ws.name, 0) + 1
        return count

    def state(self, future: Any) -> str:
        ts = self.scheduler.tasks.get(future.key)
        return ts.state if ts is not None else "unknown"

    def why(self, future: Any) -> dict[str, Any]:
        return self.plugin.answers.why(future.key)

    async def until(self, condition: Callable[[], Any], seconds: float = 20.0) -> None:
        """Wait for what no event announces."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, "the condition did not come true"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def mesh(
    *workers: str | tuple[str, int],
    nodes: tuple[Node, ...] = (),
    plugin: MeshPlugin | None = None,
    **config: Any,
) -> AsyncIterator[Mesh]:
    """Start a mesh; a worker is a name or (name, threads)."""
    settings = {**CHECKED, **{name.replace("__", ".").replace("_", "-"): value for name, value in config.items()}}
    async with AsyncExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        scheduler = await stack.enter_async_context(
            Scheduler(dashboard=False, dashboard_address=":0", host="127.0.0.1", port=0)
        )
        made = plugin or MeshPlugin(nodes, foreign_sampling=False, random=Random(1))
        await scheduler.register_scheduler_plugin(made, idempotent=False)
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        found = Mesh(scheduler, client, made, stack)
        for worker in workers:
            name, nthreads = (worker, 2) if isinstance(worker, str) else worker
            await found.join(name, nthreads)
        try:
            yield found
        finally:
            for waited_for in LATCHES.values():
                waited_for.set()
        scheduler.validate_state()


LATCHES: dict[str, threading.Event] = {}
"""Workers run in this process, so a task can wait for the test by name."""


def latch(name: str) -> threading.Event:
    """Return a fresh latch; tasks that wait for it run until it is set."""
    LATCHES[name] = threading.Event()
    return LATCHES[name]


def held(value: Any = None, name: str = "latch", *_: Any) -> Any:
    """The task that waits for latch `name`."""
    assert LATCHES[name].wait(30), "nobody set the latch"
    return value
