"""What ``mesh.nodes()`` returns: the nodes as a list that shows itself as a table, in text and in HTML."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, SupportsIndex, overload

from computemesh.gates import in_words

from .node_name import shown_name


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node as a person sees it; None means that nobody knows."""

    name: str
    state: str
    """In words: ``takes tasks``, or why it does not."""
    available: bool
    cores: float
    ram: int
    """Bytes lent to the mesh."""
    gpus: tuple[str, ...] = ()
    load: float | None = None
    """CPU in percent of the machine."""
    score: float | None = None
    """NodeScore, 0…1."""
    site: str = ""
    worker: str = ""
    """Address of its Dask worker; empty while it has none."""
    pools: tuple[str, ...] = ()
    vram: int = 0
    """Bytes of memory of its largest GPU."""
    os: str = ""


HEADINGS = ("node", "site", "state", "cores", "RAM", "GPU", "load", "score")


def cells_of(row: NodeRow) -> tuple[str, ...]:
    """Return `row` as the texts of a table."""
    return (
        row.name,
        row.site or "-",
        row.state,
        f"{row.cores:g}",
        in_words(row.ram) if row.ram else "-",
        ", ".join(row.gpus) or "-",
        "-" if row.load is None else f"{row.load:.0f} %",
        "-" if row.score is None else f"{row.score:.2f}",
    )


class NodeList(tuple[NodeRow, ...]):
    """Nodes, in order of their names; index it by number or by a node's name."""

    __slots__ = ()

    def __new__(cls, rows: Iterable[NodeRow]) -> NodeList:  # noqa: D102 - what the class is, it makes
        return super().__new__(cls, sorted(rows, key=lambda row: row.name))

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(row.name for row in self)

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> NodeRow: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[NodeRow, ...]: ...
    def __getitem__(self, which: SupportsIndex | str | slice) -> NodeRow | tuple[NodeRow, ...]:
        """Return one node by number or name, or several by a slice."""
        if isinstance(which, str):
            for row in self:
                if row.name == which:
                    return row
            raise KeyError(f"No node is called {which!r}: there are {', '.join(self.names) or 'none'}")
        return super().__getitem__(which)

    def __repr__(self) -> str:
        if not self:
            return "No node has joined the mesh yet."
        table = [HEADINGS, *(cells_of(row) for row in self)]
        widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in table]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        if not self:
            return "<p>No node has joined the mesh yet.</p>"
        head = "".join(f"<th style='text-align:left'>{escape(title)}</th>" for title in HEADINGS)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_html_row, self))}</tbody></table>"


def _html_row(row: NodeRow) -> str:
    # A dot beside words, not colour alone: the state must be readable without seeing colours.
    colour = "var(--jp-success-color1, #2e7d32)" if row.available else "var(--jp-warn-color1, #b26a00)"
    texts = [escape(text) for text in cells_of(row)]
    texts[2] = f"<span style='color:{colour}'>●</span> {texts[2]}"
    return "<tr>" + "".join(f"<td style='text-align:left'>{text}</td>" for text in texts) + "</tr>"


def rows_from_mesh(nodes: Iterable[Mapping[str, Any]]) -> list[NodeRow]:
    """Read what the driver answers: the fields of `Node`, with ``score`` and ``gates``."""
    return [_row_from_mesh(node) for node in nodes]


def _row_from_mesh(node: Mapping[str, Any]) -> NodeRow:
    facts, sample = node["facts"], node.get("sample") or {}
    gates, score = list(node.get("gates") or ()), node.get("score") or {}
    if not node.get("worker"):
        gates.append("has no worker yet")
    return NodeRow(
        name=facts["name"],
        state="; ".join(gates) if gates else "takes tasks",
        available=not gates,
        cores=float(facts.get("cores", 1)),
        ram=int(facts.get("ram", 0)),
        gpus=tuple(f"{gpu['name']} ({in_words(gpu['vram'])})" for gpu in facts.get("gpus") or ()),
        load=sample.get("cpu"),
        score=score.get("total"),
        site=facts.get("site", ""),
        worker=node.get("worker", ""),
        pools=tuple(facts.get("pools") or ()),
        vram=max((int(gpu["vram"]) for gpu in facts.get("gpus") or ()), default=0),
        os=str(facts.get("os", "")),
    )


def rows_from_plugin(places: Iterable[Mapping[str, Any]], info: Mapping[str, Any]) -> list[NodeRow]:
    """Read what the plugin answers, together with what Dask knows of the same workers."""
    known = {row.worker: row for row in rows_from_dask(info)}
    rows = []
    for place in places:
        gates = list(place.get("gates") or ())
        row = known.get(place["address"]) or NodeRow(place["node"], "", False, float(place.get("threads", 1)), 0)
        rows.append(
            replace(
                row,
                name=str(place["node"]),
                state="; ".join(gates) or row.state or "takes tasks",
                available=not gates and row.available,
                score=(place.get("score") or {}).get("total"),
                worker=place["address"],
            )
        )
    return rows


def rows_from_dask(info: Mapping[str, Any], local: bool = False) -> list[NodeRow]:
    """Read Dask's own `scheduler_info`, where there is no plugin."""
    return [
        NodeRow(
            name=(platform.node() or "this machine") if local else shown_name(worker.get("name", address)),
            state="local threads, no mesh" if local else _DASK_STATES.get(worker.get("status", "running"), "paused"),
            available=worker.get("status", "running") == "running",
            cores=float(worker.get("nthreads", 1)),
            ram=int(worker.get("memory_limit") or 0),
            load=(worker.get("metrics") or {}).get("cpu"),
            worker=address,
        )
        for address, worker in info["workers"].items()
    ]


_DASK_STATES = {"running": "takes tasks", "paused": "is paused", "closing_gracefully": "is leaving"}
