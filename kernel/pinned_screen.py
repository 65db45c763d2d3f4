"""The screen of a cell that no longer runs: what its job says appears under it, whatever other cells run meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from .progress_words import Progress
from .screens import TerminalScreen


class PinnedScreen:
    """Sends a notebook's messages with the header of the cell that made it."""

    def __init__(self, shell: Any) -> None:
        self._kernel = shell.kernel
        self._parent = shell.kernel.get_parent()
        self.renewed: Callable[[Progress | None], None] | None = None

    def text(self, stream: str, text: str) -> None:
        """Print."""
        self._send("stream", {"name": stream, "text": text}, f"stream.{stream}")

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a rich output."""
        content = {
            "data": dict(data),
            "metadata": dict(metadata),
            "transient": {"display_id": display_id} if display_id else {},
        }
        kind = "update_display_data" if update else "display_data"
        self._send(kind, content, "display_data")

    def clear(self, wait: bool) -> None:
        """Clear the cell's output."""
        self._send("clear_output", {"wait": wait}, "display_data")

    def progress(self, progress: Progress) -> None:
        """Renew the handle, which shows it."""
        if self.renewed is not None:
            self.renewed(progress)

    def finished(self, text: str) -> None:
        """Renew the handle."""
        if self.renewed is not None:
            self.renewed(None)

    def stopped(self, text: str) -> None:
        """Say what stopping cost."""
        self.text("stderr", text + "\n")

    def _send(self, kind: str, content: dict[str, Any], topic: str) -> None:
        kernel = self._kernel
        kernel.session.send(kernel.iopub_socket, kind, content, parent=self._parent, ident=topic.encode())


class QuietScreen(TerminalScreen):
    """A terminal for a job behind other work: it prints what the runs say, and no progress."""

    renewed: Callable[[Progress | None], None] | None = None

    def progress(self, progress: Progress) -> None:
        """Say nothing: the handle tells."""


def screen_behind() -> PinnedScreen | QuietScreen:
    """Return the screen for a job that other cells run beside."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return PinnedScreen(shell) if shell is not None and hasattr(shell, "kernel") else QuietScreen()
