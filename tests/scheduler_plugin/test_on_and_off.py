"""The plugin goes onto any scheduler, changes nothing without nodes, and comes off without trace."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import dask
import pytest
from distributed import Client, Scheduler, Worker

from computemesh.node import Harvest
from computemesh.scheduler_plugin import MeshPlugin
from computemesh.scheduler_plugin.shadows import UnsupportedDask

from .real_mesh import CHECKED, held, latch, mesh, node


def plain(x):
    return x * 2


def traces(scheduler):
    """Everything on a scheduler that the plugin may have touched."""
    extensions = {name: dict(vars(extension)) for name, extension in scheduler.extensions.items()}
    return {
        "scheduler": {name: value for name, value in vars(scheduler).items() if callable(value)},
        "handlers": dict(scheduler.handlers),
        "streams": dict(scheduler.stream_handlers),
        "plugins": set(scheduler.plugins),
        "worker plugins": set(scheduler.worker_plugins),
        "callbacks": set(scheduler.periodic_callbacks),
        "extensions": {
            name: {key: value for key, value in attributes.items() if callable(value)}
            for name, attributes in extensions.items()
        },
        "status": {address: ws.status for address, ws in scheduler.workers.items()},
    }


@contextlib.asynccontextmanager
async def plain_cluster(names=("a", "b")):
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(dask.config.set(CHECKED))
        made = Scheduler(dashboard=False, dashboard_address=":0", host="127.0.0.1", port=0)
        scheduler = await stack.enter_async_context(made)
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        for name in names:
            await stack.enter_async_context(Worker(scheduler.address, name=name, nthreads=1))
        await until(lambda: len(scheduler.running) == len(names))
        yield scheduler, client


async def until(condition, seconds=20.0):
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("sampling", [False, True])
async def test_it_comes_off_without_trace(sampling):
    async with plain_cluster() as (scheduler, client):
        before = traces(scheduler)
        plugin = MeshPlugin([node("a"), node("b", harvest=Harvest.OWNER)], foreign_sampling=sampling)
        await client.register_plugin(plugin)
        assert traces(scheduler) != before
        assert await client.gather(client.map(plain, range(20))) == [2 * i for i in range(20)]
        with dask.annotate(mesh={"pool": "nowhere"}):
            waiting = client.submit(plain, 3)
        await until(lambda: scheduler.unrunnable)
        assert waiting.status == "pending"
        await client.unregister_scheduler_plugin(MeshPlugin.name)
        assert traces(scheduler) == before
        assert await client.submit(plain, 100) == 200


async def test_without_nodes_every_decision_is_dasks_own():
    async with mesh(("a", 1), ("b", 1)) as m:
        futures = m.client.map(plain, range(50))
        total = m.client.submit(sum, futures)
        assert await total == sum(2 * i for i in range(50))
        assert not len(m.plugin.placements)
        assert not m.plugin.roster.awake


async def test_starting_twice_is_starting_once():
    async with plain_cluster() as (scheduler, client):
        plugin = MeshPlugin([node("a"), node("b")], foreign_sampling=False)
        await scheduler.register_scheduler_plugin(plugin, idempotent=True)
        first = traces(scheduler)
        await plugin.start(scheduler)
        assert traces(scheduler) == first
        assert await client.submit(plain, 4) == 8


async def test_a_second_plugin_takes_over_from_the_first():
    async with plain_cluster() as (scheduler, client):
        before = traces(scheduler)
        await client.register_plugin(MeshPlugin([node("a")], foreign_sampling=False))
        await client.register_plugin(MeshPlugin(foreign_sampling=False))
        assert set(scheduler.plugins[MeshPlugin.name].roster.nodes) == {"a"}
        await client.unregister_scheduler_plugin(MeshPlugin.name)
        assert traces(scheduler) == before


@pytest.mark.parametrize("name", ["valid_workers", "decide_worker_rootish_queuing_enabled"])
async def test_another_dask_is_refused_by_the_methods_name(name, monkeypatch):
    monkeypatch.setattr(Scheduler, name, lambda self, task, strategy: None)
    async with plain_cluster(names=()) as (scheduler, _):
        before = traces(scheduler)
        with pytest.raises(UnsupportedDask, match=f"Scheduler.{name} takes \\(self, task, strategy\\)"):
            await MeshPlugin(foreign_sampling=False).start(scheduler)
        assert traces(scheduler) == before


async def test_it_attaches_to_a_running_computation():
    async with plain_cluster() as (scheduler, client):
        go = latch("go")
        futures = client.map(held, range(20), name="go")
        await until(lambda: scheduler.queued)
        await client.register_plugin(MeshPlugin([node("a"), node("b")], foreign_sampling=False))
        plugin = scheduler.plugins[MeshPlugin.name]
        assert plugin.decisions.queued_work() > 0
        go.set()
        assert await client.gather(futures) == list(range(20))
        assert plugin.decisions.queued_work() == 0


async def test_a_foreign_clusters_workers_are_sampled():
    async with plain_cluster() as (scheduler, client):
        await client.register_plugin(MeshPlugin(foreign_sampling=True))
        plugin = scheduler.plugins[MeshPlugin.name]
        await until(lambda: len(plugin.roster.nodes) == 2)
        about = plugin.roster.nodes["a"]
        assert about.facts.cores == 1
        assert about.facts.ram > 0
        assert about.sample is not None
        assert about.sample.ram_free > 0
        answer = await client.scheduler.mesh_nodes()
        assert {entry["node"]: entry["known"] for entry in answer} == {"a": True, "b": True}
        with dask.annotate(mesh={"cpu": 1}):
            future = client.submit(plain, 4)
        assert await future == 8
        why = await client.scheduler.mesh_why(key=future.key)
        assert why["chosen"]["node"] in {"a", "b"}


def test_preloaded_into_a_scheduler_with_workers_that_know_nothing_of_us(tmp_path):
    """A real `dask scheduler --preload` process, and a worker process in which our package cannot be imported."""
    script = tmp_path / "blind.py"
    script.write_text(
        "import sys\n"
        "class Blind:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'computemesh':\n"
        "            raise ImportError('no computemesh here')\n"
        "sys.meta_path.insert(0, Blind())\n"
    )
    info = tmp_path / "scheduler.json"
    common = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    scheduler = subprocess.Popen(
        [*common, "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(info),
         "--preload", "computemesh.scheduler_plugin"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(info), "--no-nanny",
         "--no-dashboard", "--name", "foreign", "--nthreads", "1", "--preload", str(script)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        asyncio.run(_use_preloaded(info))
    finally:
        scheduler.terminate()
        scheduler.wait(20)
        worker.kill()
        worker.wait(20)
    assert "Traceback" not in (scheduler.stderr.read() if scheduler.stderr else "")


async def _use_preloaded(info):
    deadline = asyncio.get_running_loop().time() + 30
    while not info.exists():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    async with Client(scheduler_file=str(info), asynchronous=True) as client:
        await client.wait_for_workers(1, timeout=30)
        answer: list = []
        while not (answer and answer[0]["known"]):
            assert asyncio.get_running_loop().time() < deadline
            answer = await client.scheduler.mesh_nodes()
            await asyncio.sleep(0.05)
        assert answer[0]["node"] == "foreign"
        assert await client.submit(sum, [1, 2]) == 3
