"""Pools by rule: which machines belong to a named class, and when."""

from __future__ import annotations

import datetime as dt

import pytest

from computemesh.driver.pools import pool_rows, pools_of, rules_of
from computemesh.errors import BadConfiguration
from computemesh.node import GpuFacts, Harvest, Health, Node, NodeFacts

RULES = rules_of(
    {
        "gpu": "vram >= 8GB",
        "memory": "ram >= 64GB and cores > 4",
        "night": "calendar('daily 18:00-08:00; weekends')",
        "london": "'london' in sites",
        "by-day": "not calendar('daily 18:00-08:00')",
        "fast": "speed > 2",
    }
)
NOON = dt.datetime.fromisoformat("2026-12-01 12:00").astimezone()
NIGHT = dt.datetime.fromisoformat("2026-12-01 23:00").astimezone()
SATURDAY = dt.datetime.fromisoformat("2026-12-05 12:00").astimezone()


@pytest.mark.parametrize(
    ("facts", "now", "pools"),
    [
        (NodeFacts("n"), NOON, {"by-day"}),
        (NodeFacts("n"), NIGHT, {"night"}),
        (NodeFacts("n"), SATURDAY, {"night", "by-day"}),
        (NodeFacts("n", gpus=(GpuFacts("a", 4 * 10**9), GpuFacts("b", 24 * 10**9))), NIGHT, {"gpu", "night"}),
        (NodeFacts("n", gpus=(GpuFacts("a", 4 * 10**9),)), NIGHT, {"night"}),
        (NodeFacts("n", ram=64 * 10**9, cores=8), NIGHT, {"memory", "night"}),
        (NodeFacts("n", ram=64 * 10**9, cores=4), NIGHT, {"night"}),
        (NodeFacts("n", site="london/floor2"), NIGHT, {"london", "night"}),
        (NodeFacts("n", site="londonderry"), NIGHT, {"night"}),
        (NodeFacts("n", core_speed=3.0), NIGHT, {"fast", "night"}),
    ],
)
def test_a_node_is_in_the_pools_whose_rules_it_meets(facts, now, pools):
    assert pools_of(RULES, facts, now) == pools


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("vram >= 8 gigabytes", "pools.p: 'vram >= 8 gigabytes' is no condition"),
        ("memory > 4", "there is no fact 'memory'; there are name, site"),
        ("ram > 'much'", "cannot be compared"),
        ("calendar('sometimes')", "'sometimes' is no calendar"),
        ("open('/etc/passwd')", "is not allowed"),
        ("calendar(name)", "is not allowed"),
        ("().__class__", "is not allowed"),
        (5, "write a condition such as"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(rule, says):
    with pytest.raises(BadConfiguration, match=says.replace("(", r"\(")):
        rules_of({"p": rule})


def test_a_pools_row_counts_what_lends_now():
    def node(name: str, harvest: Harvest = Harvest.LENDING, **about: object) -> Node:
        facts = NodeFacts(name, cores=4, ram=10**9, pools=("office",))
        return Node(facts, harvest=harvest, worker="tls://1", **about)  # type: ignore[arg-type]

    nodes = [node("a"), node("b", Harvest.OWNER), node("c", health=Health.DEAD)]
    rows = {row["pool"]: row for row in pool_rows(RULES, nodes)}
    assert rows["office"] == {
        "pool": "office", "rule": "", "nodes": 3, "lending": 1, "cores": 4, "ram": 10**9, "gpus": 0
    }  # fmt: skip
    assert rows["gpu"]["nodes"] == 0
    assert rows["gpu"]["rule"] == "vram >= 8GB"
