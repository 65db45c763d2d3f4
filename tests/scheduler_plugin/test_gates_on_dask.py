"""A gated node gets nothing, by whatever road a task or a result comes."""

from __future__ import annotations

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pytest

from computemesh.node import Harvest, Health

from .real_mesh import held, latch, mesh, node

OPEN = node("desk")
GATED = {
    "owner": node("laptop", harvest=Harvest.OWNER),
    "suspected": node("laptop", health=Health.SUSPECTED),
    "battery": node("laptop", sample={"battery": 30.0, "charging": False}),
    "cordoned": node("laptop", cordoned=True),
    "hot": node("laptop", sample={"temperature": 99.0}),
    "refused": node("laptop", refused="cannot be reached from its peers"),
}


def double(x):
    return 2 * x


async def by_submit(client):
    return [client.submit(double, i, pure=False) for i in range(3)]


async def by_map(client):
    return client.map(double, range(40))


async def by_delayed(client):
    leaves = [dask.delayed(double)(i) for i in range(20)]
    return [client.compute(dask.delayed(sum)(leaves))]


async def by_array(client):
    return [client.compute((da.ones((400, 400), chunks=(50, 50)) + 1).sum())]


async def by_dataframe(client):
    frame = dd.from_pandas(pd.DataFrame({"a": range(200), "b": [0, 1] * 100}), npartitions=20)
    return [client.compute(frame.groupby("b").a.sum())]


async def by_bag(client):
    return [client.compute(db.from_sequence(range(100), npartitions=20).map(double).sum())]


async def by_scatter(client):
    return list(await client.scatter(list(range(10))))


ROADS = [by_submit, by_map, by_delayed, by_array, by_dataframe, by_bag, by_scatter]


@pytest.mark.parametrize("road", ROADS)
async def test_a_gated_node_gets_nothing(road, saturation):
    async with mesh(
        "desk", "laptop", nodes=(OPEN, GATED["owner"]), distributed__scheduler__worker_saturation=saturation
    ) as m:
        futures = await road(m.client)
        await m.client.gather(futures)
        assert not m.workers["laptop"].data
        assert not [t for t in m.scheduler.transition_log if t.finish == "processing" and _at(m, t.key) == "laptop"]


def _at(m, key):
    placed = m.plugin.placements.get(key)
    return placed[0] if placed else None


@pytest.mark.parametrize("reason", GATED)
async def test_each_gate_holds_and_opens(reason):
    async with mesh("laptop", nodes=(GATED[reason],)) as m:
        future = m.client.submit(double, 1)
        await m.until(lambda: m.state(future) == "no-worker")
        assert m.why(future)["excluded"][0]["node"] == "laptop"
        m.plugin.set_nodes([node("laptop")])
        assert await future == 2


async def test_a_worker_that_reports_running_does_not_open_its_gate():
    async with mesh("desk", "laptop", nodes=(OPEN, GATED["owner"])) as m:
        laptop = m.scheduler.workers[m.workers["laptop"].address]
        m.workers["laptop"].status = type(laptop.status).paused
        await m.until(lambda: m.plugin.roster.places[laptop.address].reported == "paused")
        m.workers["laptop"].status = type(laptop.status).running
        await m.until(lambda: m.plugin.roster.places[laptop.address].reported == "running")
        assert laptop.status.name == "paused"
        assert laptop not in m.scheduler.running


async def test_opening_a_gate_does_not_wake_a_worker_that_paused_itself():
    async with mesh("desk", "laptop", nodes=(OPEN, GATED["owner"])) as m:
        laptop = m.scheduler.workers[m.workers["laptop"].address]
        m.workers["laptop"].status = type(laptop.status).paused
        await m.until(lambda: m.plugin.roster.places[laptop.address].reported == "paused")
        m.plugin.set_nodes([OPEN, node("laptop")])
        assert laptop.status.name == "paused"
        m.workers["laptop"].status = type(laptop.status).running
        await m.until(lambda: laptop.status.name == "running")


async def test_stealing_takes_nothing_to_a_gated_node():
    async with mesh(("desk", 1), ("laptop", 1), nodes=(OPEN, GATED["owner"])) as m:
        go = latch("go")
        desk = m.workers["desk"].address
        futures = m.client.map(held, range(30), name="go", workers=[desk], allow_other_workers=True)
        await m.until(lambda: len(m.scheduler.workers[desk].processing) == 30)
        m.scheduler.extensions["stealing"].balance()
        assert not m.scheduler.extensions["stealing"].in_flight
        go.set()
        await m.client.gather(futures)
        assert m.ran(futures) == {"desk": 30}


async def test_replicate_rebalance_and_amm_leave_a_gated_node_alone():
    async with mesh("desk", "lab", "laptop", nodes=(OPEN, node("lab"), GATED["owner"])) as m:
        futures = await m.client.scatter({f"x{i}": bytes(1000) for i in range(8)})
        await m.client.replicate(list(futures.values()))
        await m.client.rebalance()
        await m.client.rebalance(list(futures.values()), workers=[w.address for w in m.workers.values()])
        assert not m.workers["laptop"].data
        assert set(m.ran(futures.values())) == {"desk", "lab"}


@pytest.mark.parametrize("stealing", [True, False])
async def test_what_queues_on_a_node_moves_when_its_owner_returns(stealing):
    setting = {"distributed__scheduler__work_stealing": stealing}
    async with mesh(("desk", 1), ("laptop", 1), nodes=(OPEN, node("laptop")), **setting) as m:
        go = latch("go")
        laptop = m.scheduler.workers[m.workers["laptop"].address]
        m.plugin.set_nodes([node("desk", harvest=Harvest.OWNER), node("laptop")])
        futures = m.client.map(held, range(10), name="go", workers=["desk", "laptop"])
        await m.until(lambda: len(m.workers["laptop"].state.executing) == 1 and len(laptop.processing) == 10)
        m.plugin.set_nodes([OPEN, node("laptop")])
        m.plugin.set_nodes([OPEN, node("laptop", harvest=Harvest.OWNER)])
        await m.until(lambda: len(laptop.processing) == 1)
        go.set()
        assert await m.client.gather(futures) == list(range(10))
        assert m.ran(futures) == {"desk": 9, "laptop": 1}
