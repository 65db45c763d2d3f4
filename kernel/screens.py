"""Where a cell's output appears: a notebook's cell, or a terminal."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from typing import Any

from .live_output import Screen
from .progress_words import Progress, bar_lines, progress_html, progress_text


class NotebookScreen:
    """Prints and displays in the running cell of a notebook.

    Progress is an updated display rather than a widget: it survives saving, nbconvert and papermill.
    """

    def __init__(self) -> None:
        self._progress_id = ""

    def text(self, stream: str, text: str) -> None:
        """Print."""
        _print(stream, text)

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a rich output."""
        from IPython.display import publish_display_data

        transient = {"display_id": display_id} if display_id else None
        publish_display_data(dict(data), dict(metadata), transient=transient, update=update)

    def clear(self, wait: bool) -> None:
        """Clear the cell's output."""
        from IPython.display import clear_output

        clear_output(wait)

    def progress(self, progress: Progress) -> None:
        """Show or renew the progress line."""
        plain = "\n".join([progress_text(progress), *bar_lines(progress)])
        self._show({"text/html": progress_html(progress), "text/plain": plain})

    def finished(self, text: str) -> None:
        """Replace the progress line by its last word."""
        from html import escape

        self._show({"text/html": f"<div role='status'><small>{escape(text)}</small></div>", "text/plain": text})

    def stopped(self, text: str) -> None:
        """Say what an interrupt cost, in place of the progress line if there is one."""
        if self._progress_id:
            self.finished(text)
        else:
            self.text("stderr", text + "\n")

    def _show(self, data: dict[str, Any]) -> None:
        known = bool(self._progress_id)
        if not known:
            self._progress_id = uuid.uuid4().hex
        self.display(data, {}, self._progress_id, known)


class TerminalScreen:
    """Prints on a terminal or into a log; rich output shows as its text."""

    def __init__(self) -> None:
        self._line = False

    def text(self, stream: str, text: str) -> None:
        """Print."""
        self._end_line()
        _print(stream, text)

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Print the text form."""
        self.text("stdout", f"{data.get('text/plain', '<rich output>')}\n")

    def clear(self, wait: bool) -> None:
        """Do nothing: a log keeps what it has."""

    def progress(self, progress: Progress) -> None:
        """Rewrite one line, on a terminal only."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[2K{progress_text(progress)}")
            sys.stderr.flush()
            self._line = True

    def finished(self, text: str) -> None:
        """Print the last word."""
        if self._line:
            sys.stderr.write(f"\r\x1b[2K{text}\n")
            sys.stderr.flush()
            self._line = False

    def stopped(self, text: str) -> None:
        """Say what an interrupt cost."""
        self.text("stderr", text + "\n")

    def _end_line(self) -> None:
        if self._line:
            sys.stderr.write("\r\x1b[2K")
            self._line = False


def _print(stream: str, text: str) -> None:
    file = sys.stderr if stream == "stderr" else sys.stdout
    file.write(text)
    file.flush()


def screen_here() -> Screen:
    """Return the screen of this process: the notebook's cell when there is a kernel, else the terminal."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return NotebookScreen() if shell is not None and hasattr(shell, "kernel") else TerminalScreen()
