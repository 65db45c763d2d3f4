"""What `mesh join` shows while it runs: one quiet line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from computemesh.node import Harvest


@dataclass(frozen=True, slots=True)
class View:
    """What there is to show of an agent now."""

    name: str
    driver: str
    connected: bool
    ready: bool
    """Its worker is registered."""
    harvest: Harvest
    tasks: int
    cpu_ours: float
    round_trip: float
    """Seconds."""
    gates: tuple[str, ...] = ()
    """Why the driver gives it no tasks."""


_WORDS = {
    Harvest.OWNER: "in use by its owner, known to",
    Harvest.IDLE: "idle, known to",
    Harvest.LENDING: "lending to",
    Harvest.SUSPENDED: "suspended for its owner, known to",
    Harvest.EVICTING: "being given back, known to",
}


def state_words(view: View) -> str:
    """Return the part of the line that changes rarely."""
    if not view.connected:
        return f"{view.name} · looking for the driver at {view.driver}"
    doing = _WORDS[view.harvest]
    if view.harvest is Harvest.LENDING and not view.ready:
        doing = "starting its worker for"
    elif view.harvest is Harvest.LENDING and view.gates:
        doing = f"gets no tasks ({', '.join(view.gates)}), known to"
    return f"{view.name} · {doing} {view.driver}"


def line(view: View) -> str:
    """Return the whole line."""
    if not view.connected:
        return state_words(view)
    tasks = "1 task" if view.tasks == 1 else f"{view.tasks} tasks"
    trip = f"{view.round_trip * 1000:.0f} ms" if view.round_trip >= 0.001 else "<1 ms"
    return f"{state_words(view)} · {tasks} · ours {view.cpu_ours:.0f} % · rtt {trip if view.round_trip else '–'}"


class StatusLine:
    """Shows the line: rewritten in place at a terminal, else printed when its state changes."""

    def __init__(self) -> None:
        self._live: Any = None
        self._shown = ""

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live("", auto_refresh=False)
            self._live.start()
        return self

    def show(self, view: View) -> None:
        """Show `view`."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(line(view), no_wrap=True, overflow="ellipsis"), refresh=True)
            return
        words = state_words(view)
        if words != self._shown:
            self._shown = words
            print(words, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
