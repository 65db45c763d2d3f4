"""Prints what the runs of a cell send, in the thread of the cell that waits for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .output_log import OutputLog, last_form
from .progress_words import Progress

_LOWER_BAR = re.compile(r"\n([^\n]*)\x1b\[A")
"""A nested progress bar: one line down, written, and up again."""


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
    """Turns messages into output; with several runs each line says which node it came from, and each run has a cap."""

    def __init__(
        self,
        screen: Screen,
        prefixed: bool,
        cap_lines: int = -1,
        cap_characters: int = 64_000,
        title_of: Callable[[str], str] = str,
        handle: str = "_mesh",
    ) -> None:
        self._screen = screen
        self._prefixed = prefixed
        self._cap_lines = cap_lines
        self._cap_characters = cap_characters
        self._title_of = title_of
        self._handle = handle
        self._partial: dict[tuple[int, str], str] = defaultdict(str)
        self._received: dict[int, int] = defaultdict(int)
        self._shown: dict[int, tuple[int, int]] = {}
        self._said: set[tuple[Any, ...]] = set()
        self.log = OutputLog()
        self.nodes: dict[int, str] = {}
        """Where each run that has started runs."""
        self.bars: dict[int, str] = {}
        """The line that a run is rewriting now, such as a progress bar."""
        self.capped: set[int] = set()
        self.restarted: set[int] = set()

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
            self.log.add(index, message["stream"], message["text"])
            self._text(index, message["stream"], message["text"])
        elif kind == "display":
            self.display(index, message)
        elif kind == "clear":
            # The cell's output is that of all its runs; one of several cannot take the others' away.
            self._screen.clear(message["wait"]) if not self._prefixed else None
        elif kind == "warning":
            self._warning(message)
        elif kind == "note" and ("note", message["text"]) not in self._said:
            self._said.add(("note", message["text"]))
            self._screen.text("stderr", f"{message['text']}\n")

    def display(self, index: int, message: Mapping[str, Any]) -> None:
        """Show one rich output of a run."""
        self.finish(index)
        identity = message.get("display_id")
        update = bool(message.get("update"))
        if self._prefixed:
            # The same cell's runs use the same ids, each for a display of its own.
            identity = f"{identity}-run-{index}-{id(self)}" if identity else identity
            if not update:
                self._screen.text("stdout", f"[{self.nodes.get(index, '?')}]\n")
        self._screen.display(message["data"], message["metadata"], identity, update)

    def finish(self, index: int) -> None:
        """Print what a run has left without an end of line."""
        self.bars.pop(index, None)
        for (of, stream), text in list(self._partial.items()):
            if of == index and text:
                self._partial[of, stream] = ""
                if last_form(text).strip() or "\r" not in text:
                    self._lines(index, stream, [text])

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
        whole = self._partial[index, stream] + text
        if "\x1b[A" in whole:
            whole = _LOWER_BAR.sub(r"\r\1", whole)
        *lines, rest = whole.split("\n")
        if "\r" in rest:
            # Only the last form of a line that is rewritten again and again is of use.
            self.bars[index] = last_form(rest)
            rest = f"\r{last_form(rest)}"
        elif lines:
            self.bars.pop(index, None)
        self._partial[index, stream] = rest
        if lines:
            self._lines(index, stream, lines)

    def _lines(self, index: int, stream: str, lines: list[str]) -> None:
        """Print whole lines of a run, as far as its cap allows."""
        if index in self.capped:
            return
        count, characters = self._shown.get(index, (0, 0))
        prefix = f"[{self.nodes.get(index, '?')}] "
        text = []
        for line in lines:
            if self._cap_lines >= 0 and (count >= self._cap_lines or characters >= self._cap_characters):
                self.capped.add(index)
                break
            shown = last_form(line)
            text.append(f"{prefix}{shown}\n")
            count, characters = count + 1, characters + len(shown) + 1
        self._shown[index] = count, characters
        if text:
            self._screen.text(stream, "".join(text))
        if index in self.capped:
            self._screen.text(
                "stderr",
                f"{prefix}… more than {count} lines of run {index}: `{self._handle}.output({index})` has all, "
                "`--show-all` shows all\n",
            )

    def _warning(self, message: Mapping[str, Any]) -> None:
        key = ("warning", message["category"], message["text"], message["file"], message["line"])
        if key in self._said:
            return
        self._said.add(key)
        source = f"\n  {message['source']}" if message["source"] else ""
        title = self._title_of(message["file"])
        where = f"{title}:{message['line']}" if title == message["file"] else f"{title}, line {message['line']}"
        self._screen.text("stderr", f"{where}: {message['category']}: {message['text']}{source}\n")
