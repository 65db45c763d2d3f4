"""The plugin's decisions on plain data: capacity, sampling, speeds, the tail of a run, words."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.errors import BadRequirement
from computemesh.node import GpuFacts, NodeFacts
from computemesh.requirement import Requirement, requirement_from
from computemesh.scheduler_plugin.capacity import Free, capacity_of, fitting, lacking
from computemesh.scheduler_plugin.sampling import sampled
from computemesh.scheduler_plugin.speeds import Speeds, rest_done, worth_starting
from computemesh.scheduler_plugin.why import asked_in_words, unschedulable_sentence
from computemesh.task_spec import PLAIN, TaskSpec, fused, task_spec_from

from .real_mesh import GB, node


def facts(*gpus, cores=8.0, ram=32):
    return NodeFacts("n", cores=cores, ram=ram * GB, gpus=tuple(GpuFacts("g", size * GB) for size in gpus))


# ---------------------------------------------------------------- capacity


@pytest.mark.parametrize(
    ("asked", "gpus", "indices"),
    [
        ({"gpu": 1}, (24, 16), [1]),  # the tightest fit keeps the large one free
        ({"gpu": 1, "vram": "20GB"}, (24, 16), [0]),
        ({"gpu": 2}, (24, 16), [1, 0]),
        ({"gpu": 2, "vram": "20GB"}, (24, 16), None),
        ({"gpu": 3}, (24, 16), None),
        ({"gpu": 0.5}, (24, 16), [1]),
        ({"gpu": 1.5}, (24, 16), [1, 0]),
        ({"vram": "10GB"}, (8, 16), [1]),
        ({"vram": "10GB"}, (8, 8), None),
        ({"cpu": 9}, (), None),
        ({"ram": "33GB"}, (), None),
        ({"cpu": 8, "ram": "32GB"}, (), []),
    ],
)
def test_what_fits_and_on_which_gpus(asked, gpus, indices):
    hold = fitting(requirement_from(asked), capacity_of(facts(*gpus)))
    assert (None if hold is None else [index for index, _ in hold.gpus]) == indices


def test_two_halves_share_a_gpu_and_a_third_takes_another():
    half = requirement_from({"gpu": 0.5})
    holds = []
    for _ in range(4):
        hold = fitting(half, capacity_of(facts(24, 24), holds))
        holds.append(hold)
    assert [hold.gpus[0][0] for hold in holds] == [0, 0, 1, 1]
    assert fitting(half, capacity_of(facts(24, 24), holds)) is None


amounts = st.builds(
    Requirement,
    cpu=st.sampled_from([0, 0.3, 0.5, 1, 2, 4]),
    ram=st.integers(0, 20 * GB),
    gpu=st.sampled_from([0, 0.1, 0.25, 0.5, 1, 1.5, 2]),
    vram=st.integers(0, 24 * GB),
)


@given(st.lists(amounts, max_size=12), st.lists(st.sampled_from([8, 16, 24]), max_size=4), st.randoms())
def test_tasks_come_and_go_in_any_order_and_never_take_more_than_there_is(asked, gpus, random):
    about = facts(*gpus)
    holds = []
    for requirement in asked:
        hold = fitting(requirement, capacity_of(about, holds))
        if hold is not None:
            holds.append(hold)
        else:
            assert lacking(requirement, capacity_of(about, holds))
        if holds and random.random() < 0.3:
            holds.pop(random.randrange(len(holds)))
        free = capacity_of(about, holds)
        assert free.cpu >= -1e-6
        assert free.ram >= 0
        assert all(gpu.share >= -1e-6 and gpu.vram >= 0 for gpu in free.gpus)
    assert capacity_of(about, []) == capacity_of(about)


def test_nothing_asked_fits_anywhere_even_where_nothing_is_free():
    assert fitting(Requirement(), Free(cpu=0.0, ram=0)) is not None


# ---------------------------------------------------------------- sampling


@given(st.integers(0, 300), st.integers(1, 300), st.integers(2, 40), st.integers())
def test_a_decision_looks_at_a_bounded_number_and_always_at_somebody(free, extra, limit, seed):
    ranking = list(range(free + extra))
    Random(seed).shuffle(ranking)
    pool = set(range(free))
    found = sampled(pool, ranking, limit, Random(seed))
    assert set(found) <= pool
    assert len(found) <= max(limit, 0) or len(pool) <= limit
    assert bool(found) == bool(pool)
    best = [item for item in ranking[:limit] if item in pool][: limit // 2]
    assert set(best) <= set(found)


# ---------------------------------------------------------------- speeds


@given(st.integers(0, 10**6))
def test_speeds_are_learned_from_tasks_alone(seed):
    random = Random(seed)
    true = {"a": 1.0, "b": 2.0, "c": 4.0}
    speeds = Speeds()
    for _ in range(300):
        prefix = random.choice(["load", "fit"])
        name = random.choice(list(true))
        length = {"load": 0.5, "fit": 3.0}[prefix] * random.uniform(0.8, 1.2)
        speeds.observe(prefix, name, length / true[name])
    assert speeds.speed("b") / speeds.speed("a") == pytest.approx(2.0, rel=0.35)
    assert speeds.speed("c") / speeds.speed("a") == pytest.approx(4.0, rel=0.35)
    ratio = speeds.work["fit"].value / speeds.work["load"].value
    assert ratio == pytest.approx(6.0, rel=0.35)


def test_a_benchmark_that_lied_is_corrected_and_a_change_is_followed():
    speeds = Speeds(promised={"a": 1.0, "b": 1.0})
    for _ in range(40):
        speeds.observe("p", "a", 1.0)
        speeds.observe("p", "b", 0.5)
    assert speeds.speed("b") / speeds.speed("a") == pytest.approx(2.0, rel=0.1)
    for _ in range(150):
        speeds.observe("p", "a", 1.0)
        speeds.observe("p", "b", 4.0)
    assert speeds.speed("b") / speeds.speed("a") == pytest.approx(0.25, rel=0.2)


def test_tiny_tasks_teach_nothing_and_faults_are_bounded():
    speeds = Speeds()
    speeds.observe("p", "a", 0.001)
    assert not speeds.work
    for _ in range(50):
        speeds.observe("p", "a", 1.0)
        speeds.observe("p", "broken", 10_000.0)
    assert 1 / 17 < speeds.correction("broken") < 1


def test_what_left_is_forgotten():
    speeds = Speeds()
    speeds.observe("p", "a", 1.0)
    speeds.observe("p", "b", 1.0)
    speeds.keep({"a": None})
    assert "b" not in speeds.corrections


@pytest.mark.parametrize(
    ("finish", "rest", "elsewhere", "start"),
    [
        (1.0, 10.0, 5.0, True),  # far from the end: every node helps
        (8.0, 5.0, 2.0, False),  # the others are done before
        (8.0, 5.0, 9.0, True),  # nobody would be sooner
        (8.0, math.inf, math.inf, True),  # a lone node always works
    ],
)
def test_when_a_slow_node_is_left_alone(finish, rest, elsewhere, start):
    assert worth_starting(finish, rest, elsewhere) is start


def test_a_lone_node_waits_for_nobody():
    assert rest_done(10.0, 4.0, total_speed=1.0, own_speed=1.0) == math.inf
    assert rest_done(10.0, 4.0, total_speed=3.0, own_speed=1.0) == 3.0


# ---------------------------------------------------------------- specs and words


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ({"executor": "process"}, "executor='process'"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"retries": -1}, "retries=-1"),
        ({"retries": True}, "retries=True"),
        ({"colour": 1}, "'colour'"),
        (["cpu"], "give a dict"),
    ],
)
def test_nonsense_is_refused_with_the_value_named(written, word):
    with pytest.raises(BadRequirement, match=word.replace("[", r"\[")):
        task_spec_from(written)


def test_a_spec_survives_being_written_and_read():
    spec = task_spec_from({"cpu": 2, "executor": "capsule", "timeout": "10 min", "retries": 2, "packages": ["torch"]})
    assert task_spec_from(spec.to_spec()) == spec
    assert not PLAIN
    assert spec


def test_when_tasks_fuse_the_most_demanding_wins():
    first = task_spec_from({"cpu": 2, "ram": "1GB", "timeout": 5})
    second = task_spec_from({"cpu": 1, "gpu": 1, "executor": "capsule", "timeout": 7})
    merged = fused(first, second)
    assert merged == TaskSpec(requirement_from({"cpu": 2, "ram": "1GB", "gpu": 1}), "capsule", 12.0)
    assert fused(first, task_spec_from({"cpu": 1})).timeout == 0


@pytest.mark.parametrize(
    ("asked", "nodes", "words"),
    [
        (
            {"gpu": 2, "vram": "24GB"},
            [node("a"), node("b", gpus=(16,))],
            "needs 2 GPUs with 24 GB; the best node has 1 with 16 GB (b)",
        ),
        ({"cpu": 64}, [node("a"), node("b", cores=32.0)], "needs 64 cores; the best node, b, has 32 of 64 cores"),
        ({"pool": "night"}, [node("a")], "the best node, a, is not in pool 'night'"),
        ({"gpu": 1}, [], "needs 1 GPU; nothing is known of any node"),
    ],
)
def test_what_is_missing_is_said_in_words(asked, nodes, words):
    assert words in unschedulable_sentence(requirement_from(asked), nodes)


def test_everything_that_can_be_asked_has_words():
    everything = requirement_from(
        {"cpu": 1.5, "ram": "4GB", "gpu": 0.5, "vram": "8GB", "cuda": "12.1", "network": "1Gbps", "battery": 50,
         "pool": "gpu", "packages": ["torch>=2"]}
    )  # fmt: skip
    assert asked_in_words(everything) == (
        "1.5 cores, 4 GB RAM, 0.5 GPU with 8 GB, CUDA 12.1, 1000 Mbit/s, 50 % battery, a node of pool 'gpu', "
        "the packages torch>=2"
    )
