"""Gates close for the right reasons, requirements say what is missing, scores order nodes as the design says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh import scores
from computemesh.gates import Limits, closed_gates, unmet
from computemesh.node import GpuFacts, GpuSample, Harvest, Health, Network, Node, NodeFacts, Reliability, Sample
from computemesh.requirement import requirement_from

GB = 10**9
PLAIN = Node(NodeFacts("n", cores=8, ram=16 * GB, core_speed=2.0, packages={"torch": "2.5.1"}), Sample(time=0))
WITH_GPUS = replace(
    PLAIN,
    facts=replace(PLAIN.facts, gpus=(GpuFacts("A", 16 * GB), GpuFacts("B", 24 * GB)), cuda=(12, 2), pools=("gpu",)),
)


def sampled(**changes):
    return replace(PLAIN, sample=replace(PLAIN.sample, **changes))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (PLAIN, []),
        (replace(PLAIN, sample=None), []),
        (replace(PLAIN, health=Health.SUSPECTED), ["suspected"]),
        (replace(PLAIN, health=Health.DEAD), ["dead"]),
        (replace(PLAIN, cordoned=True), ["cordoned"]),
        (replace(PLAIN, cordoned=True, draining=True), ["draining"]),
        (replace(PLAIN, harvest=Harvest.OWNER), ["owner"]),
        (replace(PLAIN, harvest=Harvest.SUSPENDED), ["suspended"]),
        (replace(PLAIN, refused="cannot be reached: no route"), ["cannot be reached"]),
        (sampled(battery=59.0, charging=False), ["battery at 59 %, below 60 %"]),
        (sampled(battery=59.0, charging=True), []),
        (sampled(battery=60.0, charging=False), []),
        (sampled(temperature=90.1), ["too hot"]),
        (sampled(temperature=90.0), []),
        (replace(sampled(temperature=95.0), cordoned=True, health=Health.SUSPECTED), ["suspected", "cordoned", "hot"]),
    ],
)
def test_a_gate_is_closed_for_each_reason_and_no_other(node, expected):
    reasons = closed_gates(node, Limits())
    assert len(reasons) == len(expected)
    for reason, word in zip(reasons, expected, strict=True):
        assert word in reason


@pytest.mark.parametrize(
    ("node", "spec", "lacks"),
    [
        (PLAIN, {"cpu": 8, "ram": "16GB"}, []),
        (PLAIN, {"cpu": 9}, ["has 8 of 9 cores"]),
        (PLAIN, {"ram": "17GB"}, ["has 16 GB of 17 GB RAM"]),
        (PLAIN, {"gpu": 1}, ["has 0 of 1 GPUs"]),
        (PLAIN, {"vram": "8GB"}, ["has no GPU with 8 GB"]),
        (WITH_GPUS, {"gpu": 2}, []),
        (WITH_GPUS, {"gpu": 1, "vram": "24GB"}, []),
        (WITH_GPUS, {"gpu": 2, "vram": "24GB"}, ["has 1 of 2 GPUs with 24 GB"]),
        (WITH_GPUS, {"gpu": 0.5, "vram": "24GB"}, []),
        (WITH_GPUS, {"vram": "40GB"}, ["has 0 of 1 GPUs with 40 GB; its best has 24 GB"]),
        (WITH_GPUS, {"cuda": "12.2"}, []),
        (WITH_GPUS, {"cuda": "12.4"}, ["has CUDA 12.2, needs 12.4"]),
        (PLAIN, {"cuda": "11"}, ["has no CUDA, needs 11.0"]),
        (PLAIN, {"network": "1Gbps"}, ["no measured network"]),
        (replace(PLAIN, network=Network(0.001, 9e8)), {"network": "1Gbps"}, ["900 of 1000 Mbit/s"]),
        (replace(PLAIN, network=Network(0.001, 2e9)), {"network": "1Gbps"}, []),
        (sampled(battery=70.0, charging=False), {"battery": 80}, ["70 % of 80 %"]),
        (sampled(battery=70.0, charging=True), {"battery": 80}, []),
        (PLAIN, {"battery": 80}, []),
        (PLAIN, {"pool": "gpu"}, ["not in pool 'gpu'"]),
        (WITH_GPUS, {"pool": "gpu"}, []),
        (PLAIN, {"packages": ["torch>=2.4"]}, []),
        (PLAIN, {"packages": ["Torch>=2.6", "xgboost"]}, ["has torch 2.5.1, needs >=2.6", "has no xgboost"]),
        (replace(PLAIN, facts=replace(PLAIN.facts, packages=None)), {"packages": "torch"}, ["does not say"]),
    ],
)
def test_what_is_missing_is_said(node, spec, lacks):
    found = unmet(requirement_from(spec), node)
    assert len(found) == len(lacks)
    for phrase, words in zip(found, lacks, strict=True):
        assert words.lower() in phrase.lower()


percent = st.floats(0, 100)
nodes = st.builds(
    Node,
    facts=st.builds(
        NodeFacts,
        name=st.just("n"),
        cores=st.floats(0.1, 256),
        ram=st.integers(0, 2**45),
        core_speed=st.floats(0, 100),
        gpus=st.lists(st.builds(GpuFacts, name=st.just("g"), vram=st.integers(1, 2**37)), max_size=4).map(tuple),
    ),
    sample=st.none()
    | st.builds(
        Sample,
        time=st.just(0.0),
        cpu=percent,
        cpu_ours=percent,
        ram_free=st.integers(0, 2**45),
        gpus=st.lists(st.builds(GpuSample, vram_free=st.integers(0, 2**37), load=percent), max_size=4).map(tuple),
        battery=st.none() | percent,
        charging=st.none() | st.booleans(),
    ),
    network=st.builds(Network, st.floats(0, 10), st.floats(0, 1e11)),
    reliability=st.builds(Reliability, st.floats(0, 1e6), st.floats(0, 1e6)),
)


@given(st.lists(nodes, min_size=1, max_size=6))
def test_every_part_and_the_score_lie_between_0_and_1(mesh):
    largest = scores.largest_of(mesh)
    for node in mesh:
        found = scores.score(node, largest, scores.Weights())
        for part in scores.Score.__dataclass_fields__:
            assert 0 <= getattr(found, part) <= 1 + 1e-9, part
        assert found.order <= found.total + 1e-9


def test_the_weights_are_the_designs():
    best = replace(WITH_GPUS, network=Network(1e-9, 1e15), reliability=Reliability(1e9, 0))
    found = scores.score(best, scores.largest_of([best]), scores.Weights())
    assert found.total == pytest.approx(0.35 + 0.15 + 0.15 + 0.10, abs=0.01)  # the sample says that no memory is free
    free = replace(best, sample=replace(best.sample, ram_free=32 * GB))
    assert scores.score(free, scores.largest_of([free]), scores.Weights()).total == pytest.approx(1.0, abs=0.001)


@given(nodes, st.floats(0.5, 50))
def test_more_load_of_others_never_raises_the_order(node, more):
    base = node.sample or Sample(time=0)
    calm = replace(node, sample=replace(base, cpu=10.0, cpu_ours=0.0))
    busy = replace(node, sample=replace(base, cpu=10.0 + more, cpu_ours=0.0))
    largest = scores.largest_of([calm])
    weights = scores.Weights()
    assert scores.score(busy, largest, weights).order <= scores.score(calm, largest, weights).order + 1e-9


def test_broken_loans_lower_reliability_and_a_new_node_starts_in_between():
    new = scores.reliability_of(Reliability())
    assert scores.reliability_of(Reliability(kept=50)) > new > scores.reliability_of(Reliability(kept=5, broken=20))


def test_the_penalty_runs_from_nothing_to_the_configured_seconds():
    weights = scores.Weights(seconds=3.0)
    assert scores.penalty(1.0, weights) == 0
    assert scores.penalty(0.0, weights) == 3.0
