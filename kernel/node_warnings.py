"""Sends Python's warnings from a cell to the notebook as such, so that it can show each once however many runs."""

from __future__ import annotations

import linecache
import warnings
from typing import Any, TextIO


def watch_warnings() -> None:
    """Replace `warnings.showwarning` once for this process; outside cells it does what it always did."""
    stock: Any = warnings.showwarning
    if getattr(stock, "of_mesh", False):
        return

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        from .node_output import current_sink

        sink = current_sink()
        if sink is None or file is not None:
            stock(message, category, filename, lineno, file, line)
            return
        source = linecache.getline(filename, lineno) if line is None else line
        sink.send(
            {
                "kind": "warning",
                "category": category.__name__,
                "text": str(message),
                "file": filename,
                "line": lineno,
                "source": source.strip(),
            }
        )

    show.of_mesh = True  # type: ignore[attr-defined]
    warnings.showwarning = show
