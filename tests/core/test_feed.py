"""The feed's messages lead from any picture of the mesh to any other, and a slow reader costs nothing."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from computemesh.audience import Audience
from computemesh.feed import (
    FeedDelta,
    FeedSnapshot,
    FromDriver,
    Headline,
    NodeRow,
    Picture,
    difference,
    picture_after,
    picture_of,
)
from computemesh.node import Health
from computemesh.protocol import decode, encode

ROWS = st.builds(
    NodeRow,
    name=st.sampled_from(["desk", "rack", "lap"]),
    health=st.sampled_from(Health),
    cores=st.integers(1, 64).map(float),
    gpus=st.lists(st.just("H200"), max_size=2).map(tuple),
    tasks=st.none() | st.integers(0, 3),
)
PICTURES = st.builds(picture_of, st.lists(ROWS, unique_by=lambda row: row.name), st.none() | st.integers(0, 9))


@given(PICTURES, PICTURES)
def test_a_delta_leads_from_any_picture_to_any_other(before, now):
    sent = decode(encode(difference(before, now)), FromDriver)
    assert picture_after(before, sent) == now
    assert bool(sent) == (before != now)


@given(PICTURES, PICTURES)
def test_a_snapshot_replaces_whatever_was_known(before, now):
    assert picture_after(before, decode(encode(now.snapshot()), FromDriver)) == now


def test_the_headline_sums_up_the_healthy_nodes():
    rows = [
        NodeRow("desk", health=Health.ALIVE, cores=4, ram=8, tasks=2),
        NodeRow("rack", health=Health.ALIVE, cores=32, ram=64, gpus=("A", "B"), tasks=0),
        NodeRow("lap", health=Health.SUSPECTED, cores=8, ram=16),
        NodeRow("gone", health=Health.DEAD, cores=8, ram=16),
    ]
    assert picture_of(rows, 5).headline == Headline(
        nodes=4, healthy=2, busy=1, offline=2, cores=36, ram=72, gpus=2, running=2, waiting=5
    )
    assert picture_of(rows, None).headline.running is None, "nobody knows while the scheduler says nothing"


class SlowReader:
    """Takes a message only when it is let."""

    def __init__(self):
        self.got = []
        self.may = asyncio.Semaphore(0)

    async def send(self, message):
        await self.may.acquire()
        self.got.append(decode(message, FromDriver))


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_slow_reader_gets_a_fresh_snapshot_instead_of_a_queue():
    now = Picture()
    audience = Audience(lambda: encode(now.snapshot()))
    slow, quick = SlowReader(), SlowReader()
    quick.may = asyncio.Semaphore(1000)
    audience.join(slow.send)
    audience.join(quick.send)
    await settled()
    for cores in range(1, 101):
        before, now = now, picture_of([NodeRow("desk", cores=float(cores))], 0)
        audience.tell(encode(difference(before, now)))
        await settled()
    assert [type(message) for message in quick.got] == [FeedSnapshot] + [FeedDelta] * 100
    for _ in range(100):
        slow.may.release()
    await settled()
    assert [type(message) for message in slow.got] == [FeedSnapshot, FeedSnapshot], "one for all that it missed"
    assert slow.got[-1].nodes[0].cores == 100


async def test_who_has_left_is_told_nothing():
    audience = Audience(lambda: encode(Picture().snapshot()))
    reader = SlowReader()
    joined = audience.join(reader.send)
    await settled()
    audience.leave(joined)
    reader.may.release()
    audience.tell(encode(FeedDelta(gone=("desk",))))
    await settled()
    assert reader.got == []
    assert len(audience) == 0
