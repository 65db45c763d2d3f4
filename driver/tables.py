"""What the driver's answers look like in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from computemesh.gates import in_words

_HEALTH_STYLE = {"alive": "green", "suspected": "yellow", "dead": "red"}
_PARTS = ("cpu", "memory", "gpu", "reliability", "network", "battery", "idleness")


def _console() -> Console:
    # Another program reads a line a node; only a terminal has a width.
    return Console() if sys.stdout.isatty() else Console(width=400)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def show_nodes(nodes: Iterable[Mapping[str, Any]]) -> None:
    """Print a line a node."""
    table = _table(
        "NODE", "HEALTH", "STATE", "CORES", "RAM", "GPU", "OTHERS", "OURS", "SITE", "SCORE", "GETS NO TASKS SINCE IT"
    )
    found = list(nodes)
    for node in found:
        facts, sample = node["facts"], node["sample"] or {}
        ours = sample.get("cpu_ours", 0.0)
        table.add_row(
            facts["name"],
            Text(node["health"], _HEALTH_STYLE[node["health"]]),
            "-" if node["health"] == "dead" else "cordoned" if node["cordoned"] else node["harvest"],
            f"{facts['cores']:g}",
            in_words(facts["ram"]),
            str(len(facts["gpus"]) or "-"),
            f"{max(0.0, sample.get('cpu', 0.0) - ours):.0f} %",
            f"{ours:.0f} %",
            facts["site"] or "-",
            f"{node['score']['total']:.2f}",
            "; ".join(node["gates"]),
        )
    console = _console()
    if not found:
        console.print("No node has joined yet: `mesh token create` prints the command that joins one.")
        return
    console.print(table)


def show_pools(pools: Iterable[Mapping[str, Any]]) -> None:
    """Print a line a pool."""
    table = _table("POOL", "NODES", "LENDING", "CORES", "RAM", "GPU", "RULE")
    found = list(pools)
    for pool in found:
        table.add_row(
            pool["pool"],
            str(pool["nodes"]),
            str(pool["lending"]),
            f"{pool['cores']:g}",
            in_words(pool["ram"]),
            str(pool["gpus"]),
            Text(pool["rule"] or "said at the join"),
        )
    console = _console()
    if not found:
        console.print("There are no pools: set computemesh.pools, or join nodes with --pool.")
        return
    console.print(table)


def show_savings(found: Mapping[str, Any]) -> None:
    """Print what was harvested, a line a node, pool, site or day, and the total."""
    by, currency = str(found["by"]), found["currency"]
    table = _table(by.upper(), "HOURS LENT", "CORE HOURS", "USED", "OF CAPACITY", "GPU HOURS USED", f"SAVED {currency}")
    for line in [*found["lines"], {by: "total", **found["total"]}]:
        table.add_row(
            line[by],
            f"{line['hours']:.1f}",
            f"{line['core_hours_lent']:.1f}",
            f"{line['core_hours_used']:.1f}",
            f"{100 * line['used']:.0f} %",
            f"{line['gpu_hours_used']:.1f}",
            f"{line['saved']:.2f}",
            style="bold" if line[by] == "total" else "",
        )
    _console().print(table)


def show_node(node: Mapping[str, Any]) -> None:
    """Print one node whole."""
    facts, sample, score = node["facts"], node["sample"] or {}, node["score"]
    console = _console()
    table = Table(box=None, pad_edge=False, show_header=False)
    state = "; ".join(node["gates"]) or "takes tasks"
    gpus = ", ".join(f"{gpu['name']} ({in_words(gpu['vram'])})" for gpu in facts["gpus"]) or "none"
    rows = {
        "state": f"{node['health']}, {node['harvest']}: {state}",
        "says": node["harvest_reason"] or "nothing",
        "worker": node["worker"] or "none",
        "machine": f"{facts['hostname']}, {facts['os']}, {facts['architecture']}, Python {facts['python']}",
        "lends": f"{facts['cores']:g} cores ({facts['cpu_model']}), {in_words(facts['ram'])} RAM, GPUs: {gpus}",
        "core speed": f"{facts['core_speed']:.2f} million passes/s",
        "site, pools": f"{facts['site'] or '-'}, {', '.join(facts['pools']) or '-'}",
        "load": f"{sample.get('cpu', 0):.0f} % CPU, {sample.get('cpu_ours', 0):.0f} % ours, "
        f"{in_words(sample.get('ram_free', 0))} RAM free",
        "battery": "none" if sample.get("battery") is None else f"{sample['battery']:.0f} %",
        "input": "unknown" if sample.get("input_age") is None else f"{sample['input_age']:.0f} s ago",
        "network": f"{node['network']['round_trip'] * 1000:.1f} ms, {node['network']['throughput'] / 1e6:.0f} Mbit/s",
        "score": f"{score['total']:.3f} (" + ", ".join(f"{part} {score[part]:.2f}" for part in _PARTS) + ")",
        "packages": f"{len(facts['packages'] or ())} installed",
    }
    for label, text in rows.items():
        table.add_row(Text(label, "bold"), text)
    console.print(Text(facts["name"], "bold"))
    console.print(table)
    for event in node["events"]:
        console.print(event_line(event), highlight=False, markup=False)


def event_line(event: Mapping[str, Any]) -> str:
    """Return one event as one line."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"]))
    return f"{moment}  {event['kind']:<20}  {event['text']}"


def show_tokens(tokens: Iterable[Mapping[str, Any]]) -> None:
    """Print a line for each token that can still be used."""
    table = _table("ID", "ROLE", "NAME", "USES LEFT", "EXPIRES", "FROM", "POOLS")
    for token in (token for token in tokens if token["uses"] > 0):
        table.add_row(
            token["identifier"],
            token["role"],
            token["name"] or "-",
            str(token["uses"]),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(token["expires"])),
            ", ".join(token["networks"]) or "anywhere",
            ", ".join(token["pools"]) or "-",
        )
    _console().print(table)


def show_why(answer: Mapping[str, Any]) -> None:
    """Print the explanation of a placement."""
    console = _console()
    console.print(answer.get("sentence", ""), markup=False, highlight=False)
    table = _table("NODE", "ORDER", "SCORE", *(part.upper() for part in _PARTS))
    chosen = (answer.get("chosen") or {}).get("node")
    for node in answer.get("eligible", ()):
        parts = node["parts"]
        table.add_row(
            Text(node["node"], "green" if node["node"] == chosen else ""),
            f"{node['order']:.3f}",
            f"{parts.get('total', 0.0):.3f}",
            *(f"{parts[part]:.2f}" for part in _PARTS),
        )
    console.print(table)
    for node in answer.get("excluded", ()):
        console.print(f"{node['node']}: {'; '.join(node['reasons'])}", markup=False, highlight=False)
