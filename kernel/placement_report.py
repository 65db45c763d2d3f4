"""What ``mesh.why()`` returns: why a task runs where it does, or why it does not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from .node_name import shown_name

PARTS = ("cpu", "memory", "gpu", "reliability", "network", "battery", "idleness")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could have run the task."""

    node: str
    order: float
    """What candidates are ordered by: NodeScore × (0.8 + 0.1 battery + 0.1 idleness)."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The score's parts and their ``total``, the NodeScore; each in 0…1."""


@dataclass(frozen=True, slots=True, repr=False)
class Placement:
    """The explanation of one task's placement; shows itself as text and as a table."""

    key: str
    sentence: str
    chosen: str = ""
    """The node that got the task; empty while none has."""
    eligible: tuple[Candidate, ...] = ()
    excluded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The other nodes, and why they could not get it."""

    def __repr__(self) -> str:
        lines = [self.sentence]
        width = max((len(candidate.node) for candidate in self.eligible), default=0)
        for candidate in self.eligible:
            mark = "→" if candidate.node == self.chosen else " "
            shown = "  ".join(f"{name} {candidate.parts[name]:.2f}" for name in PARTS if name in candidate.parts)
            lines.append(f"{mark} {candidate.node:<{width}}  {candidate.order:.2f}   {shown}")
        lines += [f"  {node}: {'; '.join(reasons)}" for node, reasons in self.excluded.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        html = f"<p>{escape(self.sentence)}</p>"
        if self.eligible:
            titles = ("", "node", "order", "score", *PARTS)
            head = "".join(f"<th>{escape(title)}</th>" for title in titles)
            html += f"<table><tr>{head}</tr>{''.join(self._html_row(each) for each in self.eligible)}</table>"
        if self.excluded:
            points = (
                f"<li>{escape(node)}: {escape('; '.join(reasons))}</li>" for node, reasons in self.excluded.items()
            )
            html += f"<ul>{''.join(points)}</ul>"
        return html

    def _html_row(self, candidate: Candidate) -> str:
        numbers = [candidate.order, *(candidate.parts.get(name) for name in ("total", *PARTS))]
        texts = [
            "→" if candidate.node == self.chosen else "",
            escape(candidate.node),
            *("" if number is None else f"{number:.2f}" for number in numbers),
        ]
        return "<tr>" + "".join(f"<td>{text}</td>" for text in texts) + "</tr>"


def placement_from_mesh(key: str, answer: Mapping[str, Any]) -> Placement:
    """Read the plugin's answer."""
    return Placement(
        key=key,
        sentence=str(answer.get("sentence") or f"Nothing is known about {key}"),
        chosen=str((answer.get("chosen") or {}).get("node", "")),
        eligible=tuple(
            Candidate(str(each["node"]), float(each.get("order", 0.0)), dict(each.get("parts") or {}))
            for each in answer.get("eligible") or ()
        ),
        excluded={str(each["node"]): tuple(each["reasons"]) for each in answer.get("excluded") or ()},
    )


def placement_from_dask(key: str, holders: Sequence[str], info: Mapping[str, Any]) -> Placement:
    """Say what plain Dask knows, where there is no plugin."""
    names = [shown_name(info["workers"].get(holder, {}).get("name", holder)) for holder in holders]
    if names:
        sentence = f"{key} ran on {', '.join(names)}, chosen by Dask alone: this scheduler has no ComputeMesh plugin"
    else:
        sentence = f"{key} has no result yet or is unknown; this scheduler has no ComputeMesh plugin to explain it"
    return Placement(key, sentence, names[0] if names else "")
