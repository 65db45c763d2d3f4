"""The summary of a batch: a page for people, plain data for programs."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from .batch import Row

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --good: #2a7d46; --bad: #c0392b; --dim: #777; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; font-weight: 600; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }}
th {{ font-weight: 600; color: var(--dim); }} td.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
.done {{ color: var(--good); }} .failed {{ color: var(--bad); }} .waiting, .stopped {{ color: var(--dim); }}
code {{ font-size: .9em; overflow-wrap: anywhere; }}
</style>
<h1>{title}</h1>
<table>
<thead><tr><th>Notebook<th>State<th>Cells<th>Seconds<th>Attempts<th>Nodes<th>Error</thead>
<tbody>
{rows}
</tbody></table>
</html>
"""
_ROW = (
    '<tr><td><a href="{link}">{name}</a><td class="{state}">{state}<td class="number">{cell}/{cells}'
    '<td class="number">{seconds:.1f}<td class="number">{attempts}<td>{nodes}<td><code>{error}</code></tr>'
)


def in_words(rows: Sequence[Row]) -> str:
    """Return how many notebooks are in which state, such as ``6 notebooks: 5 done, 1 failed``."""
    counts = Counter(row.state for row in rows)
    order = ("done", "failed", "stopped", "running", "waiting")
    parts = ", ".join(f"{counts[state]} {state}" for state in order if counts[state])
    return f"{len(rows)} notebook{'s' * (len(rows) != 1)}: {parts}"


def page(rows: Sequence[Row]) -> str:
    """Return the summary as a page that needs nothing else."""
    lines = (
        _ROW.format(
            link=html.escape(quote(row.output)),
            name=html.escape(row.name),
            state=html.escape(row.state),
            cell=row.cell,
            cells=row.cells,
            seconds=row.seconds,
            attempts=row.attempts,
            nodes=html.escape(", ".join(row.nodes)),
            error=html.escape(row.error),
        )
        for row in rows
    )
    return _PAGE.format(title=html.escape(in_words(rows)), rows="\n".join(lines))


def plain_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows as plain data; a time of this process's clock means nothing to others and is left out."""
    return [{**asdict(row), "started": 0.0} for row in rows]
