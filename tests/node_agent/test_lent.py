"""No more is lent than the owner's policy says, and the mesh is told the truth of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.node import GpuFacts, NodeFacts
from computemesh.node_agent.lent import Lent, held_to
from computemesh.node_agent.share import share_of
from computemesh.policy import Policy

TOTAL = 32 * 10**9


def whole(cores: int = 8, gpus: int = 2) -> Lent:
    facts = NodeFacts("n", cores=cores, ram=TOTAL, core_speed=3.0, gpus=(GpuFacts("test", 10**10),) * gpus)
    return Lent(share_of(cores, "", None), TOTAL, facts)


def test_half_of_it_is_half_of_everything():
    lent = held_to(whole(), Policy(cpu=50, ram=25, gpu=50), TOTAL)
    assert (lent.share.share, lent.share.threads, lent.memory, lent.gpus) == (0.5, 4, 8 * 10**9, 1)
    assert (lent.facts.cores, lent.facts.ram, lent.facts.core_speed) == (4.0, 8 * 10**9, 3.0)


def test_a_share_of_one_core_makes_it_slower():
    lent = held_to(whole(cores=2), Policy(cpu=25), TOTAL)
    assert lent.share.threads == 1
    assert lent.facts.core_speed == pytest.approx(1.5)


def test_what_was_said_at_the_join_counts_where_it_is_less():
    joined = Lent(share_of(8, "25%", None), 10**9, NodeFacts("n", cores=2, ram=10**9, core_speed=3.0))
    assert held_to(joined, Policy(), TOTAL) == joined


@given(st.integers(1, 128), st.integers(0, 8), st.floats(0, 100), st.floats(0, 100), st.floats(0, 100))
def test_never_more_than_either_says(cores, gpus, cpu, ram, gpu):
    before = whole(cores, gpus)
    lent = held_to(before, Policy(cpu=cpu, ram=ram, gpu=gpu), TOTAL)
    assert lent.share.lent <= max(cores * cpu / 100, 0.01 * cores) + 1e-9
    assert lent.share.threads <= before.share.threads
    assert lent.memory <= TOTAL * ram / 100
    assert lent.gpus <= gpus * gpu / 100
    told = lent.facts.cores * lent.facts.core_speed / 3.0
    assert told == pytest.approx(min(lent.share.lent, lent.share.threads))
