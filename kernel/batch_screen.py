"""Shows a running batch: a live table in a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .batch_page import in_words

if TYPE_CHECKING:
    from rich.table import Table

    from .batch import Row

_STYLES = {"done": "green", "failed": "red", "running": "bold", "waiting": "dim", "stopped": "yellow"}


def table(rows: Sequence[Row], now: float) -> Table:
    """Return the table of all rows; `now` in monotonic seconds."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=in_words(rows), title_justify="left", box=None, pad_edge=False)
    for title, justify in (
        ("Notebook", "left"),
        ("State", "left"),
        ("Cells", "right"),
        ("Time", "right"),
        ("Node", "left"),
    ):
        made.add_column(title, justify=justify)  # type: ignore[arg-type]
    made.add_column("", overflow="ellipsis", no_wrap=True, ratio=1)
    for row in rows:
        again = f" (attempt {row.attempts})" if row.attempts > 1 else ""
        seconds = now - row.started if row.state == "running" else row.seconds
        said = "done before" if row.earlier else f"{row.state}{again}"
        made.add_row(
            Text(row.name), Text(said, _STYLES[row.state]), f"{row.cell}/{row.cells}" if row.cells else "",
            f"{seconds:.0f} s" if row.attempts else "", Text(row.nodes[-1] if row.nodes else ""),
            Text(row.error, "red"),
        )  # fmt: skip
    return made


def line(row: Row) -> str:
    """Return what one row has come to, for a log."""
    where = f" on {row.nodes[-1]}" if row.nodes else ""
    took = f" after {row.seconds:.1f} s" if row.state in ("done", "failed", "stopped") else ""
    return f"{row.name}: {row.state}{where}{took}" + (f": {row.error}" if row.error else "")


@contextmanager
def shown(rows: Callable[[], Sequence[Row]], console: Any) -> Iterator[Callable[[], None]]:
    """Yield what is to be called whenever something may have changed."""
    if not console.is_terminal:
        told: dict[str, str] = {}

        def tell() -> None:
            for row in rows():
                if row.state != "waiting" and told.get(row.output) != f"{row.state} {row.attempts}":
                    told[row.output] = f"{row.state} {row.attempts}"
                    console.print(line(row), highlight=False, markup=False, soft_wrap=True)

        yield tell
        return
    from rich.live import Live

    with Live(console=console, refresh_per_second=4, transient=False) as live:
        yield lambda: live.update(table(rows(), time.monotonic()))
