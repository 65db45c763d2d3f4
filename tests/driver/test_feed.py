"""What screens are told: rows without secrets, no work while nobody watches, words when the scheduler is away."""

import asyncio

import pytest

from computemesh.driver import feed as feed_module
from computemesh.driver.feed import Feed, Running, picture, row_of
from computemesh.errors import Refused
from computemesh.feed import FeedDelta, FeedSnapshot, FromDriver
from computemesh.gates import Limits
from computemesh.node import GpuFacts, GpuSample, Harvest, Health, Node, NodeFacts, Sample
from computemesh.protocol import decode, encode

LIMITS = Limits()


def node(name="desk", **about):
    facts = NodeFacts(
        name, "desk.internal.example", owner="ann", cores=4, ram=8 * 10**9, packages={"numpy": "2"}, site="london",
        gpus=(GpuFacts("H200", 10**11),),
    )  # fmt: skip
    sample = Sample(1.0, cpu=41.7, ram_free=4_123_456_789, gpus=(GpuSample(10**10, 77.4),), users=("ann",))
    return Node(facts, **{"sample": sample, "worker": "tls://10.1.2.3:4567", **about})


def test_a_row_is_rounded_so_that_noise_is_no_news():
    row = row_of(node(), LIMITS, Running({"desk": 3}, 0))
    assert (row.load, row.gpu_load, row.ram_free, row.tasks) == (42, 77, 4_100_000_000, 3)
    assert row.worker is True
    assert row.reasons == ()


def test_a_row_tells_no_addresses_owners_or_packages():
    text = encode(picture([node()], LIMITS, Running({}, 0)).snapshot()).decode()
    assert "desk" in text
    for secret in ("10.1.2.3", "ann", "internal.example", "numpy"):
        assert secret not in text


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"cordoned": True}, "is cordoned"),
        ({"cordoned": True, "draining": True}, "is draining"),
        ({"harvest": Harvest.OWNER}, "is in use by its owner"),
        ({"refused": "cannot be reached: timed out"}, "cannot be reached: timed out"),
    ],
)
def test_a_row_says_why_a_node_is_given_no_work(about, reason):
    assert reason in row_of(node(**about), LIMITS, Running({}, 0)).reasons


def test_of_a_dead_node_nothing_old_is_told():
    row = row_of(node(health=Health.DEAD), LIMITS, Running({"desk": 3}, 0))
    assert (row.load, row.gpu_load, row.ram_free, row.tasks) == (None, None, None, None)


class Mesh:
    """Stands in for the driver: counts how often it is looked at."""

    def __init__(self):
        self.nodes, self.looks, self.asked = [node()], 0, 0
        self.answer = {"running": {"desk": 2}, "waiting": 1}

    def look(self):
        self.looks += 1
        return self.nodes

    async def ask(self, what, argument, timeout):
        assert what == "running"
        self.asked += 1
        if self.answer is None:
            raise Refused("The scheduler is being started", 503)
        return self.answer


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(feed_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(feed_module, "ASK_SECONDS", 0.01)


class Screen:
    def __init__(self, feed):
        self.heard = asyncio.Queue()
        self.reader = feed.join(self.send)

    async def send(self, message):
        self.heard.put_nowait(decode(message, FromDriver))

    async def next(self):
        return await asyncio.wait_for(self.heard.get(), 10)

    async def until(self, true):
        while not true(message := await self.next()):
            pass
        return message


async def test_a_watcher_is_told_all_at_once_and_then_what_changes(quick):
    mesh = Mesh()
    feed = Feed(mesh.look, LIMITS, mesh.ask)
    screen = Screen(feed)
    assert isinstance(await screen.next(), FeedSnapshot)
    counted = await screen.until(lambda message: message.headline and message.headline.running == 2)
    assert isinstance(counted, FeedDelta)
    assert counted.headline.waiting == 1
    mesh.nodes = [node(), node("rack")]
    assert (await screen.until(lambda message: message.nodes)).nodes[0].name == "rack"
    mesh.nodes = [node("rack")]
    assert (await screen.until(lambda message: message.gone)).gone == ("desk",)
    feed.leave(screen.reader)


async def test_nothing_is_looked_at_while_nobody_watches(quick):
    mesh = Mesh()
    feed = Feed(mesh.look, LIMITS, mesh.ask)
    await asyncio.sleep(0.1)
    assert (mesh.looks, mesh.asked) == (0, 0)
    one, other = Screen(feed), Screen(feed)
    await one.until(lambda message: message.headline and message.headline.running == 2)
    feed.leave(one.reader)
    assert feed.watched
    feed.leave(other.reader)
    assert not feed.watched
    seen = (mesh.looks, mesh.asked)
    await asyncio.sleep(0.1)
    assert (mesh.looks, mesh.asked) == seen
    again = Screen(feed)
    assert isinstance(await again.next(), FeedSnapshot)
    feed.stop()


async def test_a_scheduler_that_is_away_leaves_counts_unknown_rather_than_old(quick):
    mesh = Mesh()
    feed = Feed(mesh.look, LIMITS, mesh.ask)
    screen = Screen(feed)
    await screen.until(lambda message: message.headline and message.headline.running == 2)
    mesh.answer = None
    lost = await screen.until(lambda message: message.headline and message.headline.running is None)
    assert lost.nodes[0].tasks is None
    feed.stop()
