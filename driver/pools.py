"""Pools by rule: which nodes belong to a named class of machines, decided from what they are and what time it is.

    computemesh:
      pools:
        gpu: vram >= 8GB
        memory: ram >= 64GB
        night: calendar('weekdays 18:00-08:00')
        london: "'london' in sites"

A node is in a pool by its rule, by its own `--pool`, or by the token that it joined with.
"""

from __future__ import annotations

import ast
import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from computemesh import conditions
from computemesh.errors import BadConfiguration
from computemesh.node import Harvest, Health, Node, NodeFacts
from computemesh.policy_calendar import calendar_of
from computemesh.requirement import requirement_from

FACTS = {
    "name": "the node's name",
    "site": "where it stands, such as london/floor2",
    "sites": "all places that it stands in, such as ('london', 'london/floor2')",
    "os": "linux, windows or darwin",
    "cores": "cores lent",
    "ram": "memory lent, in GB",
    "gpus": "number of GPUs",
    "vram": "memory of its largest GPU, in GB",
    "speed": "passes of the join benchmark per second on one core, in millions",
    "dedicated": "whether it has no owner to protect",
    "owner": "the user who joined it",
}


def facts_of(facts: NodeFacts) -> dict[str, Any]:
    """Return what a rule may ask about a node, in the units that people write."""
    parts = facts.site.split("/") if facts.site else []
    return {
        "name": facts.name,
        "site": facts.site,
        "sites": tuple("/".join(parts[: count + 1]) for count in range(len(parts))),
        "os": facts.os.lower() or None,
        "cores": facts.cores,
        "ram": facts.ram / 1e9 if facts.ram else None,
        "gpus": len(facts.gpus),
        "vram": max((gpu.vram for gpu in facts.gpus), default=0) / 1e9,
        "speed": facts.core_speed or None,
        "dedicated": facts.dedicated,
        "owner": facts.owner or None,
    }


@dataclass(frozen=True, slots=True)
class Rule:
    """One pool's rule."""

    pool: str
    text: str
    condition: ast.expr

    def holds(self, facts: NodeFacts, now: dt.datetime) -> bool:
        """Return whether a node of these facts belongs to the pool at `now`."""
        functions = {"calendar": lambda text: _calendar(text).is_open(now)}
        return bool(conditions.value(self.condition, facts_of(facts), functions))


@cache
def _calendar(text: str) -> Any:
    return calendar_of([part.strip() for part in text.split(";")])


def rules_of(written: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Read the configuration's rules.

    Raises:
        BadConfiguration: a name or rule cannot be used; says which.
    """
    return tuple(_rule(str(pool), text) for pool, text in written.items())


def _rule(pool: str, text: Any) -> Rule:
    where = f"computemesh.pools.{pool}"
    if not isinstance(text, str):
        raise BadConfiguration(f"{where} is {text!r}: write a condition such as 'vram >= 8GB'")
    try:
        requirement_from({"pool": pool})
        condition = conditions.read(text, FACTS, ("calendar",))
        for node in ast.walk(condition):
            if isinstance(node, ast.Call) and isinstance(node.args[0], ast.Constant):
                _calendar(str(node.args[0].value))
        rule = Rule(pool, text, condition)
        # A rule that compares what cannot be compared fails here rather than at the first node.
        rule.holds(NodeFacts("any", site="here", ram=1, core_speed=1.0, os="linux", owner="somebody"), _ANY_TIME)
    except ValueError as error:
        raise BadConfiguration(f"{where}: {error}") from None
    return rule


_ANY_TIME = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def pools_of(rules: Iterable[Rule], facts: NodeFacts, now: dt.datetime) -> frozenset[str]:
    """Return the pools to which a node belongs by rule at `now`."""
    return frozenset(rule.pool for rule in rules if rule.holds(facts, now))


def pool_rows(rules: Iterable[Rule], nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Return a row a pool, by name: its rule, its nodes, and what those lend that lend now."""
    texts = {rule.pool: rule.text for rule in rules}
    known = list(nodes)
    names = sorted({*texts, *(pool for node in known for pool in node.facts.pools)})
    rows = []
    for name in names:
        members = [node for node in known if name in node.facts.pools]
        lending = [
            node for node in members if node.harvest is Harvest.LENDING and node.health is Health.ALIVE and node.worker
        ]
        rows.append(
            {
                "pool": name,
                "rule": texts.get(name, ""),
                "nodes": len(members),
                "lending": len(lending),
                "cores": sum(node.facts.cores for node in lending),
                "ram": sum(node.facts.ram for node in lending),
                "gpus": sum(len(node.facts.gpus) for node in lending),
            }
        )
    return rows
