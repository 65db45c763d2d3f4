"""Among nodes that may, the better one is taken, in each of the places where Dask chooses."""

from __future__ import annotations

import dask
import pytest

from computemesh.node import Reliability

from .real_mesh import held, latch, mesh, node

GOOD = node("good", reliability=Reliability(kept=50.0))
POOR = node("poor", sample={"ram_free": 10**9, "cpu": 70.0}, reliability=Reliability(broken=50.0))


def plain(x, *_):
    return x * 2


def large(_):
    return bytes(50_000_000)


async def test_a_single_task_goes_to_the_best_node():
    async with mesh("poor", "good", nodes=(POOR, GOOD)) as m:
        for number in range(6):
            future = m.client.submit(plain, number)
            await future
            assert m.ran([future]) == {"good": 1}


async def test_free_threads_come_before_scores(saturation):
    async with mesh(
        ("poor", 2), ("good", 2), nodes=(POOR, GOOD), distributed__scheduler__worker_saturation=saturation
    ) as m:
        go = latch("go")
        futures = [m.client.submit(held, number, name="go", pure=False) for number in range(4)]
        await m.until(lambda: all(m.state(future) == "processing" for future in futures))
        busy = {ws.name: len(ws.processing) for ws in m.scheduler.workers.values()}
        assert busy == {"poor": 2, "good": 2}
        go.set()
        await m.client.gather(futures)


async def test_queued_tasks_take_the_better_nodes_first():
    async with mesh(("poor", 2), ("good", 2), nodes=(POOR, GOOD)) as m:
        await m.client.gather(m.client.map(plain, range(40)))
        first = m.plugin.placements.newest(1_000)[-1]
        assert first[1][0] == "good"


async def test_a_score_never_drives_a_task_from_its_data():
    async with mesh("poor", "good", nodes=(POOR, GOOD)) as m:
        there = m.client.submit(large, 0, workers=["poor"])
        await there
        after = m.client.submit(len, there)
        assert await after == 50_000_000
        assert m.ran([after]) == {"poor": 1}


async def test_with_copies_everywhere_the_score_decides():
    keep_copies = {"distributed__scheduler__active_memory_manager__start": False}
    async with mesh("poor", "good", nodes=(POOR, GOOD), **keep_copies) as m:
        [data] = await m.client.scatter([list(range(1000))], broadcast=True)
        for number in range(4):
            future = m.client.submit(plain, data, number, pure=False)
            await future
            assert m.ran([future]) == {"good": 1}


async def test_stealing_brings_waiting_work_to_a_fast_node_that_joins():
    async with mesh(
        ("slow", 1),
        nodes=(node("slow", 1.0), node("fast", 8.0)),
        distributed__scheduler__worker_saturation=float("inf"),
    ) as m:
        go = latch("go")
        futures = m.client.map(held, range(40), name="go")
        slow = m.scheduler.workers[m.workers["slow"].address]
        await m.until(lambda: len(slow.processing) == 40)
        await m.join("fast", 1)
        await m.until(lambda: len(slow.processing) <= 32)
        go.set()
        assert await m.client.gather(futures) == list(range(40))


async def test_stealing_leaves_a_slow_node_alone_when_the_fast_one_is_done_sooner():
    async with mesh(
        ("fast", 1), ("slow", 1), nodes=(node("fast", 16.0), node("slow", 1.0)),
        distributed__scheduler__work_stealing_interval="1h",
    ) as m:  # fmt: skip
        go = latch("go")
        futures = m.client.map(held, range(3), name="go", workers=["fast"], allow_other_workers=True)
        await m.until(lambda: len(m.scheduler.workers[m.workers["fast"].address].processing) == 3)
        for future in futures:
            m.scheduler.tasks[future.key].worker_restrictions = None
        stealing = m.scheduler.extensions["stealing"]
        stealing.balance()
        assert not stealing.in_flight
        go.set()
        await m.client.gather(futures)


async def test_constrained_tasks_are_stolen_only_by_who_may_run_them():
    nodes = (node("lab", gpus=(24,)), node("desk"), node("late", gpus=(24,)))
    async with mesh(("lab", 1), ("desk", 1), nodes=nodes, distributed__scheduler__worker_saturation=float("inf")) as m:
        go = latch("go")
        first = m.client.submit(plain, 1, workers=["lab"])
        await first
        with dask.annotate(mesh={"gpu": 0.1}):
            futures = [m.client.submit(held, number, "go", first, pure=False) for number in range(9)]
        lab = m.scheduler.workers[m.workers["lab"].address]
        await m.until(lambda: len(lab.processing) == 9)
        await m.join("late", 1)
        await m.until(lambda: len(lab.processing) < 9)
        assert not m.scheduler.workers[m.workers["desk"].address].processing
        held_here = sum(len(place.holds) for place in m.plugin.roster.places.values())
        go.set()
        await m.client.gather(futures)
        assert held_here >= 9
        assert not m.plugin.needs.holding()
        assert set(m.ran(futures)) == {"lab", "late"}


async def test_copies_of_results_go_to_the_better_half():
    nodes = (POOR, GOOD, node("home"))
    async with mesh("home", "poor", "good", nodes=nodes) as m:
        future = m.client.submit(plain, 1, workers=["home"])
        await future
        amm = m.scheduler.extensions["amm"]
        amm.workers_memory = dict.fromkeys(m.scheduler.workers.values(), 0)
        ts = m.scheduler.tasks[future.key]
        assert amm._find_recipient(ts, None, set()).name == "good"
        del amm.workers_memory


@pytest.mark.parametrize("speeds", [(1.0, 1.0), (1.0, 8.0)])
async def test_a_lone_free_node_always_gets_queued_work(speeds):
    """Nothing may wait for a faster node that never comes: all but the slowest are gated in the middle of a run."""
    from computemesh.node import Harvest

    first, second = speeds
    open_nodes = (node("one", first), node("two", second))
    async with mesh(("one", 1), ("two", 1), nodes=open_nodes) as m:
        go = latch("go")
        futures = m.client.map(held, range(20), name="go")
        await m.until(lambda: m.scheduler.queued)
        m.plugin.set_nodes([open_nodes[0], node("two", second, harvest=Harvest.OWNER)])
        go.set()
        assert await m.client.gather(futures) == list(range(20))


async def test_known_long_tasks_are_not_put_behind_others_and_a_slow_node_is_left_out_of_the_tail():
    durations = {"distributed__scheduler__default_task_durations": {"held": "10s"}}
    async with mesh(("fast", 1), ("slow", 1), nodes=(node("fast", 20.0), node("slow", 1.0)), **durations) as m:
        go = latch("go")
        futures = m.client.map(held, range(6), name="go")
        fast = m.scheduler.workers[m.workers["fast"].address]
        slow = m.scheduler.workers[m.workers["slow"].address]
        await m.until(lambda: len(fast.processing) == 1)
        assert not slow.processing
        assert len(m.scheduler.queued) == 5
        go.set()
        assert await m.client.gather(futures) == list(range(6))
