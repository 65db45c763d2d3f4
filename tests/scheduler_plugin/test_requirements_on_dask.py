"""Tasks that ask for something get it, and only where it is; others wait, and say for what."""

from __future__ import annotations

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from computemesh.errors import BadRequirement
from computemesh.node import Harvest

from .real_mesh import GB, held, latch, mesh, node

GPU = node("lab", gpus=(24,), pools=("gpu",), cuda=(12, 4))
PLAIN = node("desk")


def asks(**spec):
    def mark(function):
        function.__mesh__ = spec
        return function

    return mark


@asks(gpu=0.1, vram=GB)
def on_gpu(x, *_):
    return x + 1


@asks(pool="gpu")
def in_pool(x):
    return x + 1


def plain(x):
    return x * 2


async def by_submit(client):
    return [client.submit(on_gpu, i, pure=False) for i in range(5)]


async def by_map(client):
    return client.map(on_gpu, range(40))


async def by_delayed(client):
    return [client.compute(dask.delayed(on_gpu)(dask.delayed(plain)(i))) for i in range(8)]


async def by_array(client):
    return [client.compute(da.ones(400, chunks=20).map_blocks(on_gpu).persist())]


async def by_dataframe(client):
    frame = dd.from_pandas(pd.DataFrame({"a": range(200)}), npartitions=20)
    return [client.compute(frame.map_partitions(on_gpu, meta=frame._meta))]


async def by_bag(client):
    return [client.compute(db.from_sequence(range(40), npartitions=20).map(on_gpu))]


async def by_annotation(client):
    with dask.annotate(mesh={"gpu": 0.1}):
        return client.map(plain, range(20))


async def by_annotation_at_compute(client):
    array = da.ones(400, chunks=20) + 1
    with dask.annotate(mesh={"pool": "gpu"}):
        return [client.compute(array.sum())]


ROADS = [by_submit, by_map, by_delayed, by_dataframe, by_bag, by_annotation, by_annotation_at_compute]


@pytest.mark.parametrize("road", ROADS)
async def test_only_a_node_that_has_it_runs_it(road, saturation):
    async with mesh("desk", "lab", nodes=(PLAIN, GPU), distributed__scheduler__worker_saturation=saturation) as m:
        futures = await road(m.client)
        await m.client.gather(futures)
        constrained = [key for key in m.plugin.placements if key in m.plugin.needs.of or "on_gpu" in str(key)]
        assert constrained
        assert {m.plugin.placements.get(key)[0] for key in constrained} == {"lab"}


async def test_array_blocks_keep_what_their_function_asks_through_fusion():
    async with mesh("desk", "lab", nodes=(PLAIN, GPU)) as m:
        future = m.client.compute(da.ones(400, chunks=20).map_blocks(on_gpu) + 1)
        assert (await future == np.full(400, 3.0)).all()
        fused = [key for key, need in m.plugin.needs.of.items()] or list(m.plugin.placements)
        blocks = [key for key in m.plugin.placements if isinstance(key, tuple)]
        assert blocks
        assert {m.plugin.placements.get(key)[0] for key in blocks} == {"lab"}
        del fused


async def test_an_annotation_overrides_the_function():
    async with mesh("desk", "lab", nodes=(node("desk", pools=("night",)), GPU)) as m:
        with dask.annotate(mesh={"pool": "night"}):
            future = m.client.submit(in_pool, 1)
        assert await future == 2
        assert m.ran([future]) == {"desk": 1}


async def test_nonsense_fails_its_own_task_at_once_and_no_other():
    async with mesh("desk", nodes=(PLAIN,)) as m:
        with dask.annotate(mesh={"ram": "many"}):
            bad = m.client.submit(plain, 1)
            later = m.client.submit(plain, m.client.submit(plain, 5))
        with dask.annotate(mesh={"speed": 9}):
            unknown = m.client.submit(plain, 2)
        after = m.client.submit(plain, bad, pure=False)
        good = m.client.submit(plain, 3)
        with pytest.raises(BadRequirement, match="ram='many'"):
            await bad
        with pytest.raises(BadRequirement, match="ram='many'"):
            await later
        with pytest.raises(BadRequirement, match="speed"):
            await unknown
        with pytest.raises(BadRequirement):
            await after
        assert await good == 6
        assert "ram='many'" in m.why(bad)["sentence"]


async def test_nonsense_in_a_task_that_waits_for_another_fails_at_once():
    async with mesh("desk", nodes=(PLAIN,)) as m:
        go = latch("go")
        first = m.client.submit(held, 1, name="go")
        with dask.annotate(mesh={"gpu": -1}):
            second = m.client.submit(plain, first)
        with pytest.raises(BadRequirement, match="gpu=-1"):
            await second
        go.set()
        assert await first == 1


async def test_one_gpu_is_held_by_one_task_and_halves_by_two(saturation):
    async with mesh(("lab", 8), nodes=(GPU,), distributed__scheduler__worker_saturation=saturation) as m:
        go = latch("go")
        lab = m.scheduler.workers[m.workers["lab"].address]
        with dask.annotate(mesh={"gpu": 0.5}):
            halves = m.client.map(held, range(5), name="go")
        await m.until(lambda: len(lab.processing) == 2)
        assert [m.state(future) for future in halves].count("no-worker") == 3
        assert "taken" in m.why(halves[-1])["excluded"][0]["reasons"][0]
        go.set()
        assert await m.client.gather(halves) == list(range(5))
        assert not m.plugin.needs.holding()


async def test_vram_is_counted_on_one_gpu_not_on_their_sum():
    async with mesh(("lab", 8), nodes=(node("lab", gpus=(16, 16)),)) as m:
        go = latch("go")
        lab = m.scheduler.workers[m.workers["lab"].address]
        with dask.annotate(mesh={"vram": "10GB"}):
            futures = m.client.map(held, range(3), name="go")
        await m.until(lambda: len(lab.processing) == 2)
        with dask.annotate(mesh={"vram": "20GB"}):
            never = m.client.submit(held, 9, name="go")
        await m.until(lambda: m.state(never) == "no-worker")
        assert "20 GB" in m.why(never)["sentence"]
        go.set()
        assert await m.client.gather(futures) == [0, 1, 2]


async def test_waiting_tasks_start_in_order_of_priority():
    async with mesh(("lab", 4), nodes=(GPU,)) as m:
        go = latch("go")
        started = []
        with dask.annotate(mesh={"gpu": 1}):
            first = m.client.submit(held, 0, name="go")
            await m.until(lambda: m.state(first) == "processing")
            low = m.client.submit(plain, 1, priority=-10)
            high = m.client.submit(plain, 2, priority=10)
        await m.until(lambda: m.state(low) == m.state(high) == "no-worker")
        go.set()
        await m.client.gather([low, high])
        started = [step.key for step in m.scheduler.transition_log if step.finish == "processing"]
        assert started.index(high.key) < started.index(low.key)


async def test_cores_of_a_large_task_take_the_slots_of_small_ones():
    async with mesh(("desk", 4), nodes=(PLAIN,)) as m:
        go = latch("go")
        desk = m.scheduler.workers[m.workers["desk"].address]
        with dask.annotate(mesh={"cpu": 3}):
            large = m.client.submit(held, 0, name="go")
        await m.until(lambda: m.state(large) == "processing")
        small = m.client.map(held, range(20), name="go")
        await m.until(lambda: len(m.scheduler.queued) > 0)
        # Dask's saturation of 1.1 gives 4 threads 5 slots, of which the large task takes 3.
        assert len(desk.processing) == 3
        go.set()
        await m.client.gather([large, *small])


async def test_memory_is_counted():
    async with mesh(("desk", 8), nodes=(PLAIN,)) as m:
        go = latch("go")
        desk = m.scheduler.workers[m.workers["desk"].address]
        with dask.annotate(mesh={"ram": "6GB"}):
            futures = m.client.map(held, range(5), name="go")
        await m.until(lambda: len(desk.processing) == 2)
        go.set()
        assert await m.client.gather(futures) == list(range(5))


async def test_tasks_that_wait_for_room_start_also_when_a_later_graph_names_them(saturation):
    """A pipeline of maps: the second map's graph names the first one's tasks again, while they wait."""
    with dask.config.set({"distributed.scheduler.worker-saturation": saturation}):
        async with mesh(("desk", 8), nodes=(PLAIN,)) as m:
            go = latch("go")
            with dask.annotate(mesh={"ram": "6GB"}):
                first = m.client.map(held, range(5), name="go")
                await m.until(lambda: sum(m.state(future) == "no-worker" for future in first) == 3)
                second = m.client.map(plain, first)
                third = m.client.map(plain, second)
                await m.until(lambda: all(future.key in m.scheduler.tasks for future in third))
            go.set()
            assert await m.client.gather(third) == [4 * n for n in range(5)]


async def test_an_impossible_task_says_what_is_missing_and_starts_when_a_node_joins():
    async with mesh("lab", nodes=(node("lab", gpus=(16,)),)) as m:
        events = []
        m.plugin.reports.append(lambda kind, text, node, data: events.append((kind, text)))
        with dask.annotate(mesh={"gpu": 2, "vram": "24GB"}):
            futures = m.client.map(plain, range(3))
        await m.until(lambda: m.state(futures[0]) == "no-worker")
        words = "needs 2 GPUs with 24 GB; the best node has 1 with 16 GB"
        assert words in m.why(futures[0])["sentence"]
        assert [kind for kind, text in events if words in text] == ["unschedulable"]
        assert m.plugin.answers.tasks()["unschedulable"][0]["tasks"] == 3
        assert any(words in event[1]["text"] for event in m.scheduler.get_events("mesh"))
        m.plugin.set_nodes([node("lab", gpus=(16,)), node("big", gpus=(24, 24))])
        await m.join("big")
        assert await m.client.gather(futures) == [0, 2, 4]
        assert m.ran(futures) == {"big": 3}
        assert not m.plugin.answers.tasks()["unschedulable"]


async def test_an_impossible_task_starts_when_a_node_changes():
    async with mesh("desk", nodes=(PLAIN,)) as m:
        with dask.annotate(mesh={"pool": "night"}):
            future = m.client.submit(plain, 4)
        await m.until(lambda: m.state(future) == "no-worker")
        m.plugin.set_nodes([node("desk", pools=("night",))])
        assert await future == 8


async def test_what_nobody_knows_is_not_met_and_says_so():
    async with mesh("desk") as m:
        with dask.annotate(mesh={"ram": "1GB"}):
            future = m.client.submit(plain, 4)
        await m.until(lambda: m.state(future) == "no-worker")
        assert "nothing is known of any node" in m.why(future)["sentence"]
        assert await m.client.submit(plain, 5) == 10


async def test_a_fitting_node_behind_a_gate_is_waited_for_not_given_up():
    async with mesh("lab", nodes=(node("lab", gpus=(24,), harvest=Harvest.OWNER),)) as m:
        with dask.annotate(mesh={"gpu": 1}):
            future = m.client.submit(plain, 4)
        await m.until(lambda: m.state(future) == "no-worker")
        assert "unschedulable" not in m.why(future)["sentence"]
        assert m.why(future)["excluded"][0]["reasons"] == ["is in use by its owner"]
        m.plugin.set_nodes([GPU])
        assert await future == 8


async def test_loose_workers_never_loosen_a_requirement():
    async with mesh("desk", "lab", nodes=(PLAIN, GPU)) as m:
        with dask.annotate(mesh={"gpu": 1}):
            future = m.client.submit(plain, 1, workers=["desk"], allow_other_workers=True)
        assert await future == 2
        assert m.ran([future]) == {"lab": 1}


async def test_a_dying_worker_gives_back_what_its_tasks_held():
    async with mesh("lab", nodes=(GPU, node("other", gpus=(24,)))) as m:
        go = latch("go")
        with dask.annotate(mesh={"gpu": 1}):
            future = m.client.submit(held, 7, name="go")
        await m.until(lambda: m.state(future) == "processing")
        await m.scheduler.remove_worker(m.workers["lab"].address, stimulus_id="test", expected=True)
        await m.until(lambda: m.state(future) == "no-worker")
        assert not m.plugin.needs.holding()
        await m.join("other")
        go.set()
        assert await future == 7


async def test_forgotten_tasks_leave_no_books():
    async with mesh("lab", nodes=(GPU,)) as m:
        with dask.annotate(mesh={"gpu": 0.5}):
            futures = m.client.map(plain, range(30))
        await m.client.gather(futures)
        del futures
        await m.until(lambda: not m.scheduler.tasks)
        assert not m.plugin.needs.of
        assert not list(m.plugin.needs.kinds())
        assert not m.plugin.needs.waiting
        assert m.plugin.decisions.queued_work() == 0
