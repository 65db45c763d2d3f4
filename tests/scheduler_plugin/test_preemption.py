"""A machine that its owner takes back: its tasks run elsewhere, and nobody is blamed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from computemesh.node import Harvest
from computemesh.node_agent.handing_back import go_on, hand_back
from computemesh.scheduler_plugin.preemption import expected_to_go, given_back

from .real_mesh import held, latch, mesh, node

LENT = node("laptop", worker="tls://10.0.0.7:1")


def increment(x):
    return x + 1


@pytest.mark.parametrize(
    ("about", "gone", "expected"),
    [
        (LENT, False, False),
        (replace(LENT, harvest=Harvest.SUSPENDED), False, True),
        (replace(LENT, harvest=Harvest.EVICTING), False, True),
        (replace(LENT, harvest=Harvest.EVICTING, worker=""), True, True),
        (replace(LENT, harvest=Harvest.OWNER, worker=""), True, True),
        (replace(LENT, worker=""), False, False),
        (None, False, False),
    ],
)
def test_which_workers_are_taken_away_and_whose_end_blames_nobody(about, gone, expected):
    assert given_back(about) is gone
    assert expected_to_go(about) is expected


async def test_what_ran_on_a_machine_that_is_given_back_runs_elsewhere_and_is_not_suspicious():
    latch("latch")
    async with mesh("laptop", nodes=(node("laptop"), node("desk"))) as m:
        # More often than a task may see its worker die.
        for _ in range(5):
            future = m.client.submit(held, 5, pure=False, key="work")
            await m.until(lambda future=future: m.state(future) == "processing")
            address = m.workers["laptop"].address
            m.plugin.set_nodes((node("laptop", worker=address), node("desk")))
            m.plugin.set_nodes((node("laptop", harvest=Harvest.EVICTING), node("desk")))
            await m.until(lambda address=address: address not in m.scheduler.workers)
            assert m.scheduler.tasks["work"].suspicious == 0
            await m.workers["laptop"].close(timeout=0, executor_wait=False)
            m.plugin.set_nodes((node("laptop"), node("desk")))
            await m.join("laptop")
        await m.join("desk")
        m.plugin.set_nodes((node("laptop", harvest=Harvest.OWNER), node("desk")))
        latch("latch").set()
        assert await m.client.submit(increment, 1) == 2


async def test_a_frozen_worker_whose_connection_breaks_blames_no_task():
    latch("latch")
    async with mesh("laptop", nodes=(node("laptop"),)) as m:
        future = m.client.submit(held, 5, pure=False)
        await m.until(lambda: m.state(future) == "processing")
        m.plugin.set_nodes((node("laptop", harvest=Harvest.SUSPENDED),))
        worker = m.workers["laptop"]
        worker.batched_stream.comm.abort()
        await m.until(lambda: worker.address not in m.scheduler.workers)
        assert m.scheduler.tasks[future.key].suspicious == 0


async def test_silence_that_was_announced_is_no_end():
    async with mesh("laptop", nodes=(node("laptop", harvest=Harvest.SUSPENDED),)) as m:
        (ws,) = m.scheduler.workers.values()
        ws.last_seen = 0.0
        await m.until(lambda: time.time() - ws.last_seen < 60)
        assert ws.address in m.scheduler.workers


async def test_a_worker_that_is_held_hands_back_what_it_has_not_begun():
    gate = latch("latch")
    async with mesh("laptop", nodes=(node("laptop"),), distributed__scheduler__worker_saturation="inf") as m:
        running = [m.client.submit(held, number, pure=False) for number in range(2)]
        behind = [m.client.submit(increment, number, pure=False) for number in range(5)]
        waiting = m.client.submit(sum, behind)
        (ws,) = m.scheduler.workers.values()
        await m.until(lambda: len(ws.processing) == 7)
        worker = m.workers["laptop"]
        await m.until(lambda: len(worker.state.tasks) == 7)
        assert hand_back(worker) == 5
        assert hand_back(worker) == 0, "it is held already"
        await m.until(lambda: len(ws.processing) == 2)
        await m.join("desk")
        m.plugin.set_nodes((node("laptop"), node("desk")))
        assert await waiting == sum(range(1, 6))
        gate.set()
        assert await m.client.gather(running) == [0, 1], "what ran ends where it is"
        go_on(worker)
        await m.until(lambda: ws.status.name == "running")
        worker.validate_state()
