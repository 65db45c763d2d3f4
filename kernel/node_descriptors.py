"""Catches what a capsule's process writes past Python: C libraries and subprocesses, on descriptors 1 and 2.

Only for a process that has one task: the descriptors belong to the whole process.
"""

from __future__ import annotations

import codecs
import ctypes
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_CHUNK = 65_536
_LINE_BUFFERED = 1


class DescriptorCapture:
    """Passes what is written to descriptors 1 and 2 to `text`, as (``stdout`` or ``stderr``, text)."""

    def __init__(self, text: Callable[[str, str], None]) -> None:
        self._text = text
        self._lock = threading.RLock()
        self._saved: dict[int, int] = {}
        self._pipes: dict[int, str] = {}
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._wake = os.pipe()
        self._reader = threading.Thread(target=self._read, name="cell-descriptors", daemon=True)

    def start(self) -> None:
        """Take both descriptors over."""
        for descriptor, stream in ((1, "stdout"), (2, "stderr")):
            self._saved[descriptor] = os.dup(descriptor)
            read, write = os.pipe()
            os.set_blocking(read, False)
            os.dup2(write, descriptor)
            os.close(write)
            self._pipes[read] = stream
            self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        _line_buffer_c()
        self._reader.start()

    def drain(self) -> None:
        """Pass on what has been written so far; called before Python's own text, so that the order stays."""
        with self._lock:
            for pipe, stream in self._pipes.items():
                while data := _available(pipe):
                    self._text(stream, self._decoders[stream].decode(data))

    def flush(self) -> None:
        """Pass on all that has been written, C's own buffers too."""
        _flush_c()
        self.drain()

    def stop(self) -> None:
        """Give the descriptors back and pass on the rest."""
        _flush_c()
        for descriptor, saved in self._saved.items():
            os.dup2(saved, descriptor)
            os.close(saved)
        os.write(self._wake[1], b".")
        self._reader.join(5.0)
        self.drain()
        # A process that the cell has left running may still hold the other ends; it ends with the capsule.
        for pipe in (*self._pipes, *self._wake):
            os.close(pipe)
        self._pipes = {}

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([*self._pipes, self._wake[0]], [], [])
            if self._wake[0] in ready:
                return
            self.drain()


def _available(pipe: int) -> bytes:
    try:
        return os.read(pipe, _CHUNK)
    except BlockingIOError:
        return b""


def _line_buffer_c() -> None:
    """Let C's printf arrive line by line, as on a terminal; into a pipe it would wait for 4 KB."""
    with suppress(OSError, AttributeError, ValueError):
        _libc().setvbuf(ctypes.c_void_p.in_dll(_libc(), "stdout"), None, _LINE_BUFFERED, 1024)


def _flush_c() -> None:
    with suppress(OSError, AttributeError):
        _libc().fflush(None)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
