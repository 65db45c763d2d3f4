"""Catches what a cell prints and displays on a node, and sends it to the notebook in small batches."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from .display_hooks import watch_ipython
from .interrupts import in_own_process
from .mime_bundles import mime_of
from .node_descriptors import DescriptorCapture
from .node_warnings import watch_warnings

BATCH_SECONDS = 0.05
BATCH_CHARACTERS = 16_000
"""A live message is at most about this long, since the scheduler keeps the last thousand of a topic."""
LIVE_BYTES = 64_000
"""A larger display travels with the result instead."""

_sink: ContextVar[Sink | None] = ContextVar("computemesh_sink", default=None)
_process_sink: Sink | None = None
_process_descriptors: DescriptorCapture | None = None


class Sink:
    """Where the output of one run goes."""

    def __init__(
        self, emit: Callable[[str, Mapping[str, Any]], None], topic: str, run: str, index: int, node: str
    ) -> None:
        self._emit = emit
        self._node = node
        self.process = os.getpid()
        self._topic = topic
        self._about = {"run": run, "index": index}
        self._lock = threading.RLock()
        self._pending: list[tuple[str, str]] = []
        self._characters = 0
        self._timer: threading.Timer | None = None
        self._sent_at = 0.0
        self._said_start = False
        self._figures_before: frozenset[int] = _open_figures()
        self.sent = 0
        self.late: list[dict[str, Any]] = []

    def start(self) -> None:
        """Say that the run has begun, unless that is known."""
        with self._lock:
            self._say_start()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message now, after what was printed before it."""
        with self._lock:
            self._flush()
            self._put(message)

    def text(self, stream: str, text: str) -> None:
        """Take printed text; it leaves within a twentieth of a second."""
        with self._lock:
            self._pending.append((stream, text))
            self._characters += len(text)
            now = time.monotonic()
            if self._characters >= BATCH_CHARACTERS or (now - self._sent_at >= BATCH_SECONDS and "\n" in text):
                self._flush()
            elif self._timer is None:
                self._timer = threading.Timer(BATCH_SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.name = "computemesh-flush"
                self._timer.start()

    def flush(self) -> None:
        """Send what waits."""
        with self._lock:
            self._flush()

    def display(
        self, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None = None, update: bool = False
    ) -> None:
        """Send a rich display; a large one waits for the result."""
        message: dict[str, Any] = {"kind": "display", "data": data, "metadata": metadata}
        if display_id:
            message |= {"display_id": display_id, "update": update}
        if _size(data) > LIVE_BYTES:
            with self._lock:
                self.late.append(message)
        else:
            self.send(message)

    def clear(self, wait: bool) -> None:
        """Clear the cell's output."""
        self.send({"kind": "clear", "wait": wait})

    def note(self, text: str) -> None:
        """Say something that the notebook shows once, however many runs say it."""
        self.send({"kind": "note", "text": text})

    def figures(self) -> None:
        """Display and close the matplotlib figures that the cell has left open."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        for number in sorted(_open_figures() - self._figures_before):
            figure = pyplot.figure(number)
            self.display(*mime_of(figure))
            pyplot.close(figure)

    def close(self) -> None:
        """Send the rest."""
        self.flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        pending, self._pending, self._characters = self._pending, [], 0
        for stream, text in _merged(pending):
            for start in range(0, len(text), BATCH_CHARACTERS):
                self._put({"kind": "text", "stream": stream, "text": text[start : start + BATCH_CHARACTERS]})
        self._sent_at = time.monotonic()

    def _say_start(self) -> None:
        if not self._said_start:
            self._said_start = True
            self._put({"kind": "start", "node": self._node})

    def _put(self, message: dict[str, Any]) -> None:
        self._say_start()
        self._emit(self._topic, {**self._about, "number": self.sent, **message})
        self.sent += 1


def _merged(pending: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join neighbouring pieces of the same stream."""
    merged: list[tuple[str, list[str]]] = []
    for stream, text in pending:
        if merged and merged[-1][0] == stream:
            merged[-1][1].append(text)
        else:
            merged.append((stream, [text]))
    return [(stream, "".join(pieces)) for stream, pieces in merged]


def _size(data: Mapping[str, Any]) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 1000 for value in data.values())


def _open_figures() -> frozenset[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return frozenset(pyplot.get_fignums()) if pyplot is not None else frozenset()


# ---------------------------------------------------------------- streams


class _Stream(io.TextIOBase):
    """Stands for ``sys.stdout`` or ``sys.stderr``: a task's text goes to its sink, all else where it went before."""

    def __init__(self, name: str, stock: Any) -> None:
        self._name = name
        self._rest = ""
        self.stock = stock

    def write(self, text: str) -> int:
        sink = current_sink()
        if sink is None:
            self._write_past(text)
        elif text:
            if _process_descriptors is not None:
                _process_descriptors.drain()
            sink.text(self._name, str(text))
        return len(text)

    def flush(self) -> None:
        if current_sink() is None:
            rest, self._rest = self._rest, ""
            self.stock.write(rest)
            self.stock.flush()

    def _write_past(self, text: str) -> None:
        """Write outside a cell, or in a process that a cell has forked: there whole lines, as others write too."""
        if _process_descriptors is None:
            self.stock.write(text)
            return
        lines, end, rest = (self._rest + text).rpartition("\n")
        self._rest = rest
        if end:
            self.stock.write(lines + end)
            self.stock.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return int(self.stock.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def buffer(self) -> Any:
        return self.stock.buffer


_captures = 0
_captures_lock = threading.Lock()


def current_sink() -> Sink | None:
    """Return the sink of the run that this thread belongs to.

    A process that the cell has forked has none: its copy would write into the middle of the parent's messages. What
    it prints goes to its descriptors, which the parent reads.
    """
    found = _sink.get() or _process_sink
    return found if found is None or found.process == os.getpid() else None


@contextmanager
def one_capture() -> Iterator[None]:
    """Let the runs within the block take the process's descriptors over once, not each for itself."""
    global _process_descriptors  # as in `capturing`
    if not in_own_process():
        yield
        return
    # Before anybody notes the environment, or each run would seem to have changed it.
    _headless_figures(alone=True)
    _process_descriptors = DescriptorCapture(_to_current)
    _process_descriptors.start()
    ended = threading.Event()
    threading.Thread(target=_say_starts, args=(ended,), name="computemesh-starts", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        _process_descriptors.stop()
        _process_descriptors = None


def _say_starts(ended: threading.Event) -> None:
    """Say of the run that is going on that it has begun; most have ended before the notebook would care."""
    while not ended.wait(BATCH_SECONDS):
        sink = _process_sink
        if sink is not None:
            sink.start()


def _to_current(stream: str, text: str) -> None:
    sink = _process_sink
    if sink is not None:
        sink.text(stream, text)


@contextmanager
def capturing(sink: Sink) -> Iterator[None]:
    """Send what is printed and displayed within the block to `sink`.

    In a process of its own, all threads' output counts, and that of C libraries and subprocesses; in a shared one,
    only this thread's.
    """
    global _process_sink, _process_descriptors  # one process, one task: that is what a capsule is
    alone = in_own_process()
    token = _sink.set(sink)
    shared = _process_descriptors
    if alone:
        _process_sink = sink
        if shared is None:
            _process_descriptors = DescriptorCapture(sink.text)
            _process_descriptors.start()
    _replace_streams()
    _headless_figures(alone)
    watch_ipython()
    watch_warnings()
    try:
        yield
    finally:
        if _process_descriptors is not None and alone:
            _flush_stock()
            if shared is None:
                _process_descriptors.stop()
                _process_descriptors = None
            else:
                _process_descriptors.flush()
        _restore_streams()
        if alone:
            _process_sink = None
        _sink.reset(token)


def _flush_stock() -> None:
    """Send what went past us into Python's own streams, such as ``sys.stdout.buffer``."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            (stream.stock if isinstance(stream, _Stream) else stream).flush()


def _replace_streams() -> None:
    global _captures  # counted for the process: the streams are its own
    with _captures_lock:
        _captures += 1
        if _captures == 1:
            sys.stdout = _Stream("stdout", sys.stdout)
            sys.stderr = _Stream("stderr", sys.stderr)


def _restore_streams() -> None:
    global _captures
    with _captures_lock:
        _captures -= 1
        if _captures == 0:
            if isinstance(sys.stdout, _Stream):
                sys.stdout = sys.stdout.stock
            if isinstance(sys.stderr, _Stream):
                sys.stderr = sys.stderr.stock


def _in_a_notebook() -> bool:
    """Return whether this process is a notebook's own, as where there is no mesh; others may have IPython imported."""
    module = sys.modules.get("IPython")
    return module is not None and module.get_ipython() is not None


def _headless_figures(alone: bool) -> None:
    """Let matplotlib draw for the notebook, unless this process has chosen its backend already."""
    if alone or ("matplotlib.pyplot" not in sys.modules and not _in_a_notebook()):
        os.environ["MPLBACKEND"] = "module://computemesh.kernel.figures"
    if "plotly" not in sys.modules:
        # Else `fig.show()` would look for a browser on the node.
        os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
