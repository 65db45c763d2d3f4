"""What the notebook says about a running cell, as pure text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

BARS = 12
"""Progress bars shown at once."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the runs of one cell are."""

    total: int
    done: int
    failed: int
    running: Mapping[int, str]
    """Node of each run that has started and not ended, by index."""
    seconds: float
    note: str = ""
    """Why nothing runs yet, if that is so."""
    bars: Mapping[int, str] = field(default_factory=dict)
    """Lines that runs are rewriting now, such as progress bars."""

    @property
    def waiting(self) -> int:
        """How many have not started."""
        return self.total - self.done - len(self.running)


def progress_text(progress: Progress) -> str:
    """Return one line, such as ``3 of 8 done, 2 running (desktop, server 2), 3 waiting, 4 s``."""
    parts = []
    if progress.total > 1:
        parts.append(f"{progress.done} of {progress.total} done")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.running:
        where = ", ".join(
            node if count == 1 else f"{node} ×{count}"
            for node, count in sorted(Counter(progress.running.values()).items())
        )
        parts.append(f"running on {where}" if progress.total == 1 else f"{len(progress.running)} running on {where}")
    if progress.waiting:
        parts.append("waiting for a node" if progress.total == 1 else f"{progress.waiting} waiting")
    text = ", ".join([*parts, duration(progress.seconds)])
    return f"{text}. {progress.note}" if progress.note else text


def progress_html(progress: Progress) -> str:
    """Return the same with a bar; plain HTML, so that a saved notebook still shows it."""
    bar = ""
    if progress.total > 1:
        bar = f"<progress max='{progress.total}' value='{progress.done}' style='width:16em'></progress> "
    lines = bar_lines(progress)
    bars = f"<pre style='margin:0'>{escape(chr(10).join(lines))}</pre>" if lines else ""
    return f"<div role='status'>{bar}<small>{escape(progress_text(progress))}</small>{bars}</div>"


def bar_lines(progress: Progress) -> list[str]:
    """Return one line for each run that shows a bar, and no more than a screen has."""
    shown = sorted(progress.bars.items())
    lines = [f"[{progress.running.get(index, '?')}] {text}" for index, text in shown[:BARS]]
    return [*lines, f"and {len(shown) - BARS} more"] if len(shown) > BARS else lines


def finished_text(total: int, seconds: float, per_node: Mapping[str, int]) -> str:
    """Return what stays when all is done, such as ``8 runs in 4.2 s: desktop 3, server 5``."""
    nodes = ", ".join(f"{node} {count}" for node, count in sorted(per_node.items()))
    if total == 1:
        return f"ran on {next(iter(per_node), 'a node')} in {duration(seconds)}"
    return f"{total} runs in {duration(seconds)}: {nodes}"


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def lost_text(stopped: Sequence[int], ended: Sequence[int], cancelled: int, total: int) -> str:
    """Say what an interrupt cost: runs that stopped by themselves, that had to be ended, and that had not begun."""
    if total == 1:
        if ended:
            return "Interrupted; the run did not stop by itself and was ended: what it had bound is lost."
        if stopped:
            return "Interrupted; what the cell had bound is lost."
        return "Interrupted before it started."
    finished = total - len(stopped) - len(ended) - cancelled
    parts = []
    if stopped or ended:
        parts.append(f"{len(stopped) + len(ended)} running were stopped")
    if cancelled:
        parts.append(f"{cancelled} waiting were cancelled")
    if finished:
        parts.append(f"{finished} had finished")
    return f"Interrupted: {', '.join(parts)}; the results of all {total} runs are lost."
