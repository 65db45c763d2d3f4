"""Prints what the runs of a cell send, in the thread of the cell that waits for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Protocol

from .progress_words import Progress


class Screen(Protocol):
    """Where a cell's output appears."""

    def text(self, stream: str, text: str) -> None:
        """Print to ``stdout`` or ``stderr``."""

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a rich output."""

    def clear(self, wait: bool) -> None:
        """Clear the cell's output."""

    def progress(self, progress: Progress) -> None:
        """Show how far the cell is; called again and again."""

    def finished(self, text: str) -> None:
        """Replace the progress by its last word."""

    def stopped(self, text: str) -> None:
        """Say what an interrupt cost."""


class LiveOutput:
    """Turns messages into output; with several runs each line says which node it came from."""

    def __init__(self, screen: Screen, prefixed: bool) -> None:
        self._screen = screen
        self._prefixed = prefixed
        self._partial: dict[tuple[int, str], str] = defaultdict(str)
        self.nodes: dict[int, str] = {}
        """Where each run that has started runs."""
        self.restarted: set[int] = set()
        self._received: dict[int, int] = defaultdict(int)

    def received(self, index: int) -> int:
        """Return how many messages of a run's current execution have come."""
        return self._received[index]

    def show(self, message: Mapping[str, Any]) -> None:
        """Take one message."""
        index, kind = message["index"], message["kind"]
        if kind == "start":
            self._start(index, message["node"])
        self._received[index] += 1
        if kind == "text":
            self._text(index, message["stream"], message["text"])
        elif kind == "display":
            self.display(index, message)
        elif kind == "clear":
            self._screen.clear(message["wait"])

    def display(self, index: int, message: Mapping[str, Any]) -> None:
        """Show one rich output of a run."""
        self.finish(index)
        if self._prefixed:
            self._screen.text("stdout", f"[{self.nodes.get(index, '?')}]\n")
        self._screen.display(
            message["data"], message["metadata"], message.get("display_id"), bool(message.get("update"))
        )

    def finish(self, index: int) -> None:
        """Print what a run has left without an end of line."""
        for (of, stream), text in list(self._partial.items()):
            if of == index and text:
                self._partial[of, stream] = ""
                self._line(index, stream, text)

    def _start(self, index: int, node: str) -> None:
        if index in self.nodes:
            # What an earlier execution printed cannot be taken back; say that it starts over.
            self.restarted.add(index)
            self._received[index] = 0
            self.finish(index)
            self._screen.text("stderr", f"[{node}] run {index} starts again; it was on {self.nodes[index]}\n")
        self.nodes[index] = node

    def _text(self, index: int, stream: str, text: str) -> None:
        if not self._prefixed:
            self._screen.text(stream, text)
            return
        *lines, rest = (self._partial[index, stream] + text).split("\n")
        self._partial[index, stream] = rest
        prefix = f"[{self.nodes.get(index, '?')}] "
        if lines:
            # A line that was rewritten by carriage returns counts in its last form.
            self._screen.text(stream, "".join(f"{prefix}{line.rsplit(chr(13), 1)[-1]}\n" for line in lines))

    def _line(self, index: int, stream: str, text: str) -> None:
        self._screen.text(stream, f"[{self.nodes.get(index, '?')}] {text.rsplit(chr(13), 1)[-1]}\n")
