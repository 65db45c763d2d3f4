"""A requirement is understood as written, refused when it makes no sense, and survives its journey."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.errors import BadRequirement
from computemesh.requirement import FIELDS, Requirement, most_demanding, requirement_from


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Requirement()),
        ({"cpu": 16}, Requirement(cpu=16)),
        ({"cpu": "0.5"}, Requirement(cpu=0.5)),
        ({"ram": "64GB"}, Requirement(ram=64_000_000_000)),
        ({"ram": "24GiB"}, Requirement(ram=24 * 2**30)),
        ({"ram": "1.5 gb"}, Requirement(ram=1_500_000_000)),
        ({"ram": 1000}, Requirement(ram=1000)),
        ({"gpu": 0.5, "vram": "12GB"}, Requirement(gpu=0.5, vram=12_000_000_000)),
        ({"cuda": "12.2"}, Requirement(cuda=(12, 2))),
        ({"cuda": 12}, Requirement(cuda=(12, 0))),
        ({"network": "10Gbps"}, Requirement(network=10_000_000_000)),
        ({"network": "100 Mbit/s"}, Requirement(network=100_000_000)),
        ({"battery": "60%"}, Requirement(battery=60)),
        ({"battery": 80}, Requirement(battery=80)),
        ({"pool": "gpu"}, Requirement(pool="gpu")),
        ({"packages": "torch>=2.4"}, Requirement(packages=("torch>=2.4",))),
        ({"packages": ["xgboost", "torch>=2.4"]}, Requirement(packages=("torch>=2.4", "xgboost"))),
        ({"gpu": None, "cpu": 1}, Requirement(cpu=1)),
    ],
)
def test_what_people_write_is_understood(spec, expected):
    assert requirement_from(spec) == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"cpu": 0}, {"cpu": -1}, {"cpu": "many"}, {"cpu": True}, {"cpu": float("nan")}, {"cpu": float("inf")},
        {"ram": "64 gigs"}, {"ram": "GB"}, {"ram": -5}, {"ram": ""}, {"gpu": "all"}, {"vram": []}, {"cuda": "new"},
        {"cuda": 0}, {"network": "10GB"}, {"network": "fast"}, {"battery": 101}, {"battery": "full"}, {"pool": ""},
        {"pool": "GPU pool"}, {"pool": 3}, {"packages": ["torch>>2"]}, {"packages": []}, {"packages": 7},
        {"packages": [None]},
    ],
)  # fmt: skip
def test_nonsense_is_refused_and_named(spec):
    (name, value), *_ = spec.items()
    with pytest.raises(BadRequirement) as refused:
        requirement_from(spec)
    shown = value[0] if isinstance(value, list) and value else value
    assert name in str(refused.value)
    assert repr(shown) in str(refused.value)


def test_an_unknown_field_is_refused_with_the_known_ones():
    with pytest.raises(BadRequirement, match="'memory'.*cpu, ram, gpu"):
        requirement_from({"memory": "4GB"})


requirements = st.builds(
    Requirement,
    cpu=st.one_of(st.just(0.0), st.floats(0.1, 512)),
    ram=st.integers(0, 2**50),
    gpu=st.one_of(st.just(0.0), st.floats(0.1, 16)),
    vram=st.integers(0, 2**40),
    cuda=st.one_of(st.just((0, 0)), st.tuples(st.integers(1, 20), st.integers(0, 9))),
    network=st.integers(0, 10**12),
    battery=st.one_of(st.just(0.0), st.floats(1, 100)),
    pool=st.sampled_from(["", "gpu"]),
    packages=st.sampled_from([(), ("torch>=2",), ("numpy", "torch>=2")]),
)


@given(requirements)
def test_a_requirement_survives_its_journey(requirement):
    assert requirement_from(requirement.to_spec()) == requirement


@given(requirements, requirements)
def test_the_most_demanding_asks_all_that_either_asks(first, second):
    both = most_demanding(first, second)
    assert both == most_demanding(second, first)
    for name in FIELDS[:7]:
        assert getattr(both, name) == max(getattr(first, name), getattr(second, name))
    assert set(first.packages) | set(second.packages) == set(both.packages)


def test_two_pools_cannot_be_fused():
    with pytest.raises(BadRequirement, match=r"'cpu'.*'gpu'"):
        most_demanding(Requirement(pool="cpu"), Requirement(pool="gpu"))
