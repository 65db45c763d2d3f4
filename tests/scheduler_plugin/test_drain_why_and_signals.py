"""Drain, `mesh why`, and signals to capsules, on a real scheduler."""

from __future__ import annotations

import asyncio

import dask
import pytest

from computemesh.node import Harvest

from .real_mesh import held, latch, mesh, node


def plain(x):
    return x * 2


async def test_a_drain_moves_queued_work_lets_running_work_end_and_leaves_no_result_behind(saturation):
    config = {"distributed__scheduler__worker_saturation": saturation}
    async with mesh(("old", 1), nodes=(node("old"), node("new")), **config) as m:
        go = latch("go")
        kept = m.client.map(plain, range(5))
        await m.client.gather(kept)
        old = m.scheduler.workers[m.workers["old"].address]
        with dask.annotate(mesh={"cpu": 1}):
            dependents = m.client.map(held, kept, name="go")
        await m.until(lambda: m.workers["old"].state.executing)
        await m.join("new", 2)
        drain = asyncio.create_task(m.plugin.draining.drain("old"))
        await m.until(lambda: len(old.processing) == 1)
        assert not drain.done()
        assert old.status.name == "paused"
        go.set()
        answer = await asyncio.wait_for(drain, 30)
        assert answer == {"node": "old", "empty": True, "left": 0}
        assert await m.client.gather(dependents) == [0, 2, 4, 6, 8]
        assert all(len(m.scheduler.tasks[future.key].who_has) >= 1 for future in kept)
        await m.workers["old"].close()
        assert await m.client.gather(kept) == [0, 2, 4, 6, 8]


async def test_a_drain_with_nobody_to_take_the_results_says_so():
    async with mesh("only", nodes=(node("only"),)) as m:
        futures = m.client.map(plain, range(3))
        await m.client.gather(futures)
        answer = await m.plugin.draining.drain("only")
        assert answer == {"node": "only", "empty": False, "left": 3}


async def test_a_drain_of_a_node_without_a_worker_is_done_at_once():
    async with mesh("a", nodes=(node("a"), node("b"))) as m:
        assert (await m.plugin.draining.drain("b"))["empty"]


async def test_why_names_the_chosen_node_its_parts_and_what_was_wrong_with_the_others():
    nodes = (node("fast", 4.0), node("slow", 1.0), node("laptop", harvest=Harvest.OWNER), node("away"))
    async with mesh("fast", "slow", "laptop", nodes=nodes) as m:
        future = m.client.submit(plain, 1)
        await future
        why = await m.client.scheduler.mesh_why(key=future.key)
        assert why["state"] == "memory"
        assert why["chosen"]["node"] == "fast"
        assert why["chosen"]["parts"]["cpu"] == 1.0
        assert [entry["node"] for entry in why["eligible"]] == ["fast", "slow"]
        assert why["eligible"][0]["penalty"] < why["eligible"][1]["penalty"]
        reasons = {entry["node"]: list(entry["reasons"]) for entry in why["excluded"]}
        assert reasons == {"laptop": ["is in use by its owner"], "away": ["has no worker"]}
        assert "ran on fast" in why["sentence"]


async def test_why_of_a_key_nobody_knows():
    async with mesh("a", nodes=(node("a"),)) as m:
        why = await m.client.scheduler.mesh_why(key="nothing-1")
        assert why["state"] == "unknown"
        assert "never submitted" in why["sentence"]


async def test_why_reads_a_tuple_key_as_a_person_types_it():
    import dask.array as da

    async with mesh("a", nodes=(node("a"),)) as m:
        array = m.client.persist(da.ones(4, chunks=2))
        await m.until(lambda: any(isinstance(key, tuple) for key in m.plugin.placements))
        key = next(key for key in m.plugin.placements if isinstance(key, tuple))
        assert (await m.client.scheduler.mesh_why(key=str(key)))["chosen"]["node"] == "a"
        del array


async def test_remembered_placements_are_bounded():
    async with mesh("a", nodes=(node("a"),), computemesh__placement__remembered=10) as m:
        await m.client.gather(m.client.map(plain, range(50)))
        assert 5 <= len(m.plugin.placements) <= 10


async def test_signals_go_only_to_workers_with_capsules():
    async with mesh(("thread", 1), nodes=(node("thread"), node("capsules"))) as m:
        go = latch("go")
        future = m.client.submit(held, 1, name="go")
        await m.until(lambda: m.state(future) == "processing")
        assert not await m.client.scheduler.mesh_capsule_signal(keys=[future.key], how="kill")
        go.set()
        await future


async def test_a_capsule_task_runs_where_capsules_are_and_gets_signals_there():
    from concurrent.futures import ThreadPoolExecutor

    heard = []
    async with mesh(("thread", 1), nodes=(node("thread"), node("capsules"))) as m:
        worker = await m.join(
            "capsules", 1, metrics={"mesh": lambda worker: {"executors": ["capsule"]}},
            executor={"capsule": ThreadPoolExecutor(1)},
        )  # fmt: skip
        worker.stream_handlers["mesh-capsule-signal"] = lambda key, how, **_: heard.append((key, how))
        go = latch("go")
        with dask.annotate(mesh={"executor": "capsule", "timeout": "1 min"}):
            future = m.client.submit(held, 1, name="go")
        await m.until(lambda: m.state(future) == "processing")
        ts = m.scheduler.tasks[future.key]
        assert ts.processing_on.name == "capsules"
        assert ts.annotations["executor"] == "capsule"
        assert ts.annotations["mesh"]["timeout"] == 60
        assert list(await m.client.scheduler.mesh_capsule_signal(keys=[future.key], how="interrupt")) == [future.key]
        await m.until(lambda: heard)
        assert heard == [(future.key, "interrupt")]
        go.set()
        assert await future == 1


async def test_a_capsule_task_runs_in_a_thread_where_nobody_has_capsules():
    async with mesh("a", nodes=(node("a"),)) as m:
        with dask.annotate(mesh={"executor": "capsule"}):
            future = m.client.submit(plain, 1)
        assert await future == 2


async def test_an_unknown_signal_is_refused():
    async with mesh("a", nodes=(node("a"),)) as m:
        with pytest.raises(ValueError, match="'stop'"):
            await m.client.scheduler.mesh_capsule_signal(keys=[], how="stop")


async def test_retries_written_on_the_function_count():
    async with mesh("a", nodes=(node("a"),)) as m:
        with dask.annotate(mesh={"retries": 3}):
            future = m.client.submit(plain, 1)
        await future
        assert m.scheduler.tasks[future.key].retries == 3
