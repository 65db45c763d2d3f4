"""All that the runs of a cell have printed, kept in the notebook's process, so that not showing it loses nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

KEPT_CHARACTERS = 20_000_000
"""Kept of one cell; what comes later is counted and dropped."""


class RunOutput(str):
    """Printed text that shows itself as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class OutputLog:
    """Text by run; lines that were rewritten by carriage returns are kept in their last form."""

    def __init__(self) -> None:
        self._lines: defaultdict[int, list[str]] = defaultdict(list)
        self._partial: dict[tuple[int, str], str] = {}
        self._kept = 0
        self.dropped = 0

    def add(self, index: int, stream: str, text: str) -> None:
        """Take what a run printed."""
        *lines, rest = (self._partial.get((index, stream), "") + text).split("\n")
        self._partial[index, stream] = rest.rsplit("\r", 1)[-1] if len(rest) > 10_000 else rest
        for line in lines:
            if self._kept > KEPT_CHARACTERS:
                self.dropped += 1
                continue
            last = last_form(line)
            self._lines[index].append(last)
            self._kept += len(last) + 1

    def text(self, index: int | None, nodes: Mapping[int, str]) -> RunOutput:
        """Return one run's text, or that of all with a heading each.

        Raises:
            IndexError: no run of that number has printed or started.
        """
        if index is not None:
            if index not in nodes and index not in self._lines:
                raise IndexError(f"run {index} has not started: runs are counted from 0")
            return RunOutput("\n".join(self._of(index)))
        indices = sorted({*nodes, *self._lines})
        if len(indices) == 1:
            return RunOutput("\n".join(self._of(indices[0])))
        parts = [f"--- run {each} on {nodes.get(each, '?')}\n" + "\n".join(self._of(each)) for each in indices]
        if self.dropped:
            parts.append(f"--- {self.dropped} later lines were not kept")
        return RunOutput("\n".join(parts))

    def _of(self, index: int) -> list[str]:
        rests = [last_form(rest) for (run, _), rest in self._partial.items() if run == index and rest]
        return [*self._lines[index], *rests]


def last_form(line: str) -> str:
    """Return what a terminal would show of a line that carriage returns have rewritten."""
    return line.rstrip("\r").rsplit("\r", 1)[-1]
