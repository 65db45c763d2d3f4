"""The ledger is exact: each second that was lent counts once, whatever dies; money follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.driver.ledger import Ledger, Usage, place_of, usage_of
from computemesh.driver.savings import Prices, prices_of, summary
from computemesh.errors import BadConfiguration
from computemesh.node import GpuFacts, GpuSample, NodeFacts, Sample

FACTS = NodeFacts("n1", cores=4, cpus=8, site="london", pools=("gpu", "night"), gpus=(GpuFacts("NVIDIA A100", 1),))
NOW = 1_800_000_000.0


def sample(number: int, lent: bool = True, seconds: float = 1.0, **about: object) -> Sample:
    return Sample(NOW + number, number=number, seconds=seconds, lent=lent, **about)  # type: ignore[arg-type]


def total(ledger: Ledger) -> Usage:
    return sum((usage for _, usage in ledger.rows()), Usage())


@pytest.mark.parametrize(
    ("one", "usage"),
    [
        (sample(1, lent=False, cpu_ours=50.0), Usage()),
        (sample(1, seconds=0.0), Usage()),
        (sample(1, cpu_ours=25.0), Usage(1, 4, 2, 1, 0)),
        (sample(1, cpu_ours=100.0), Usage(1, 4, 4, 1, 0)),  # no more is used than is lent
        (sample(1, seconds=2.0, gpus=(GpuSample(0, 50.0),)), Usage(2, 8, 0, 2, 1)),
    ],
)
def test_what_a_sample_says_was_lent_and_used(one, usage):
    assert usage_of(one, FACTS) == usage


def test_a_wrong_clock_moves_nothing_into_another_year():
    assert place_of(sample(0), FACTS, NOW + 5).hour == 1_800_000_000 // 3600 * 3600
    assert place_of(Sample(0.0), FACTS, NOW) == place_of(Sample(NOW), FACTS, NOW)
    assert place_of(Sample(NOW + 10**9), FACTS, NOW) == place_of(Sample(NOW), FACTS, NOW)
    # What waited while the driver was away is noted in its own hour.
    assert place_of(Sample(NOW - 600), FACTS, NOW).hour == (1_800_000_000 - 600) // 3600 * 3600


@given(
    beats=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    fates=st.lists(st.sampled_from(["flush", "crash", "cut", "on"]), min_size=30, max_size=30),
)
def test_every_second_counts_once_whatever_dies(tmp_path_factory, beats, fates):
    """An agent and a driver that dies or loses the connection at any moment, before or after it has written."""
    file = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    ledger, sequence, number = Ledger(file), 0, 0
    unkept: list[tuple[int, list[Sample]]] = []
    waiting: list[Sample] = []
    for count, fate in zip(beats, fates, strict=False):
        waiting += [sample(number + each + 1) for each in range(count)]
        number += count
        sequence += 1
        unkept.append((sequence, waiting))
        ledger.take(FACTS, 1, sequence, waiting, NOW)
        waiting = []
        if fate == "flush":
            ledger.flush()
        unkept = [(each, samples) for each, samples in unkept if each > ledger.kept("n1")]
        if fate in ("crash", "cut"):
            if fate == "crash":
                ledger._base.close()
                ledger = Ledger(file)
            ledger.connected("n1")
            waiting, unkept, sequence = [one for _, samples in unkept for one in samples], [], 0
    ledger.take(FACTS, 1, sequence + 1, waiting, NOW)
    ledger.close()
    again = Ledger(file)
    assert total(again).lent == again.total.lent == number
    assert sum((usage for _, usage in again.rows(hourly=False)), Usage()).lent == number
    again.close()


def test_an_agent_that_starts_anew_counts_on(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.take(FACTS, 1, 1, [sample(1), sample(2)], NOW)
    ledger.take(FACTS, 2, 1, [sample(1)], NOW)
    assert total(ledger).lent == 3
    ledger.close()


def test_old_hours_are_dropped(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.take(FACTS, 1, 1, [sample(1)], NOW)
    ledger.flush()
    ledger.forget(NOW - 7200)
    assert total(ledger).lent == 1
    ledger.forget(NOW + 7200)
    assert total(ledger).lent == 0
    ledger.close()


def rows() -> list:
    return [
        (place_of(sample(0), FACTS, NOW), Usage(7200, 28800, 14400, 7200, 3600)),
        (place_of(sample(0), NodeFacts("n2"), NOW), Usage(3600, 3600, 0, 0, 0)),
    ]


def test_money_follows_the_price_list():
    prices = Prices("EUR", 0.10, 1.0, {"A100": 3.0})
    found = summary(rows(), "node", prices)
    assert [line["node"] for line in found["lines"]] == ["n1", "n2"]
    one = found["lines"][0]
    assert (one["hours"], one["core_hours_used"], one["gpu_hours_used"]) == (2, 4, 1)
    assert one["saved"] == pytest.approx(4 * 0.10 + 3.0)
    assert found["total"]["used"] == pytest.approx(14400 / 32400)


def test_a_node_in_two_pools_counts_in_both_and_once_in_the_total():
    found = summary(rows(), "pool", Prices())
    assert [line["pool"] for line in found["lines"]] == ["-", "gpu", "night"]
    assert found["total"]["hours"] == 3
    assert [line["site"] for line in summary(rows(), "site", Prices())["lines"]] == ["-", "london"]
    assert len(summary(rows(), "day", Prices())["lines"]) == 1


@pytest.mark.parametrize("wrong", [{"core-hour": -1}, {"gpu-hour": "much"}, {"gpus": {"A100": True}}])
def test_a_price_that_is_none_is_named(wrong):
    with pytest.raises(BadConfiguration, match=rf"computemesh\.savings\.{next(iter(wrong))}"):
        prices_of({"currency": "USD", "core-hour": 1, "gpu-hour": 1, "gpus": {}, **wrong})


def test_prometheus_reads_it():
    from prometheus_client.parser import text_string_to_metric_families

    from computemesh.driver.metrics import Metrics, exposition
    from computemesh.node import Harvest, Health, Node

    nodes = [
        Node(FACTS, sample(1, cpu=50.0, cpu_ours=20.0), worker="tls://1"),
        Node(NodeFacts("n2", owner="grace"), harvest=Harvest.OWNER),
        Node(NodeFacts("n3"), health=Health.DEAD),
    ]
    text = exposition(Metrics(nodes, Usage(lent=10800.0), 2)).decode()
    found = {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    assert found["computemesh_nodes_by_health", "dead"] == 1
    assert found["computemesh_nodes_by_harvest", "owner"] == 1
    assert found["computemesh_cores_lent",] == 4
    assert found["computemesh_node_cpu_others_percent", "n1"] == 30
    assert found["computemesh_lent_seconds_total",] == 10800
    assert "grace" not in text
