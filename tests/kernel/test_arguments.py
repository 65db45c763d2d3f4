"""The line of %%mesh is understood, or refused with what is wrong."""

from __future__ import annotations

import pytest

from computemesh.errors import BadRequirement
from computemesh.kernel.arguments import help_text, parse_line
from computemesh.kernel.cell_source import BadCell


@pytest.mark.parametrize(
    ("line", "target", "items"),
    [
        ("", "", ""),
        ("for x in items", "x", "items"),
        ("for x in items:", "x", "items"),
        ("for a, b in zip(p, q)", "(a, b)", "zip(p, q)"),
        ("for x in range(-3, a - b)", "x", "range(-3, a - b)"),
        ("for x in [i for i in y] --retries 2", "x", "[i for i in y]"),
        ("--cpu 2 for x in items -o out", "x", "items"),
        ("for x in a --pool gpu", "x", "a"),
    ],
)
def test_loops(line, target, items):
    found = parse_line(line)
    assert (found.target, found.items) == (target, items)


def test_options():
    found = parse_line("for x in y -o out --retries 2 --timeout '5 min' --ram 8GB --packages torch>=2 xgboost")
    assert (found.output, found.retries, found.timeout) == ("out", 2, 300)
    assert found.requirement.ram == 8_000_000_000
    assert found.requirement.packages == ("torch>=2", "xgboost")
    assert parse_line("--progress-after -1").progress_after == -1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--bogus", "--bogus"),
        ("for x", "for x"),
        ("for 3 in y", "for 3 in y"),
        ("for x in", "for x in"),
        ("for x in y --each", "--each"),
        ("--retries many", "many"),
        ("-o 3x", "3x"),
        ("nonsense", "nonsense"),
        ("--pool 'x", "quotation"),
        ("for x[0].y.z() in y", "for x"),
        ("--ship 3x", "3x"),
        ("--return a.b", "a.b"),
        ("--cap few", "few"),
        ("--where memory>3", "memory"),
    ],
)
def test_a_bad_line_names_what_is_wrong(line, said):
    with pytest.raises(BadCell, match=said.replace("[", r"\[").replace("(", r"\(").replace(")", r"\)")):
        parse_line(line)


def test_more_options():
    found = parse_line("--no-wait --keep --where 'ram > 32' --ship a b,c --return none --cap 5 --file x.csv data")
    assert (found.no_wait, found.keep, found.where) == (True, True, "ram > 32")
    assert (found.ship, found.returns, found.cap) == (("a", "b", "c"), (), 5)
    assert found.files == ("x.csv", "data")
    assert parse_line("--show-all").cap == -1
    plain = parse_line("")
    assert (plain.ship, plain.returns, plain.cap) == (None, None, None)
    assert parse_line("for x in y --where \"ram > 32 and site == 'berlin'\"").where == "ram > 32 and site == 'berlin'"


@pytest.mark.parametrize("option", ["replicas 3", "checkpoint 60"])
def test_what_comes_later_is_refused_by_name(option):
    with pytest.raises(BadRequirement, match=f"--{option}.*later release"):
        parse_line(f"--{option}")


def test_a_bad_requirement_names_the_value():
    with pytest.raises(BadRequirement, match="cpu='lots'"):
        parse_line("--cpu lots")
    with pytest.raises(BadRequirement, match="timeout='soon'"):
        parse_line("--timeout soon")


def test_help_reads_well():
    text = help_text()
    assert text.startswith("usage: %%mesh [for NAME in ITEMS] [options]")
    assert "%%mesh for seed in range(8)" in text
    assert max(map(len, text.splitlines())) <= 110
    for option in ("--no-wait", "--keep", "--where", "--ship", "--return", "--file", "--show-all", "--pool"):
        assert option in text
