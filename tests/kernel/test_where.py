"""--where chooses nodes by a condition that is read safely and decided when the cell is sent."""

from __future__ import annotations

import pytest

from computemesh.errors import BadRequirement
from computemesh.kernel.cell_source import BadCell
from computemesh.kernel.node_list import NodeRow
from computemesh.kernel.where_expression import check_where, matching

ROWS = [
    NodeRow("anna", "takes tasks", True, 8, 16_000_000_000, (), 20.0, 0.5, "berlin/floor1", "tcp://a", ("cpu",)),
    NodeRow(
        "bert", "takes tasks", True, 32, 64_000_000_000, ("A6000 (48 GB)",), None, 0.9, "berlin", "tcp://b",
        ("gpu", "big"), 48_000_000_000, "Linux",
    ),
    NodeRow("cleo", "has no worker yet", False, 64, 0, (), 5.0, None, "london", ""),
    NodeRow("dora", "takes tasks", True, 4, 8_000_000_000, (), 90.0, 0.1, "london", "tcp://d"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ("ram > 32", "b"),
        ("ram > 32 and site == 'berlin'", "b"),
        ("'berlin' in site", "ab"),
        ("cores >= 8 or site == 'london'", "abd"),
        ("not site == 'london'", "ab"),
        ("'gpu' in pools", "b"),
        ("gpus >= 1 and vram >= 40", "b"),
        ("name in ('anna', 'dora')", "ad"),
        ("name not in ['anna']", "bd"),
        ("4 < cores <= 32", "ab"),
        ("load < 50", "a"),
        ("not load > 50", "a"),
        ("load < 50 or score > 0.8", "ab"),
        ("os == 'linux'", "b"),
        ("available", "abd"),
        ("score > -1", "abd"),
    ],
)
def test_conditions(text, workers):
    assert matching(text, ROWS) == [f"tcp://{letter}" for letter in workers]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ram >", "no condition"),
        ("memory > 3", "memory"),
        ("__import__('os').system('x')", "not allowed"),
        ("name.startswith('a')", "not allowed"),
        ("[x for x in pools]", "not allowed"),
        ("(lambda: 1)()", "not allowed"),
        ("ram if ram else 1", "not allowed"),
        ("pools[0] == 'x'", "not allowed"),
        ("ram ** 99999999 > 1", "not allowed"),
        ("f'{name}' == 'x'", "not allowed"),
        ("name is 'x'", "not allowed"),
        ("b'x' == name", "no meaning"),
        ("", "no condition"),
    ],
)
def test_anything_else_is_refused_by_name(text, said):
    with pytest.raises(BadCell, match=said):
        check_where(text)


def test_a_text_is_not_compared_with_a_number():
    with pytest.raises(BadCell, match="numbers of GB"):
        matching("ram > '32GB'", ROWS)


def test_no_match_says_what_the_nodes_have():
    with pytest.raises(
        BadRequirement, match=r"No node meets .*anna \(ram 16, site berlin/floor1\).*cleo \(ram unknown"
    ):
        matching("ram > 500 and site == 'oslo'", ROWS)
