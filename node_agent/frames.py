"""The one protocol between a worker and a capsule: frames of binary parts over a Unix stream socket.

A frame is its kind, the number of its parts, the length of each, and the parts themselves. Nothing limits a part's
size, so a result of many gigabytes is one frame. Values travel as pickle protocol 5 with the buffers of arrays beside
it, so that they are neither copied into the pickle nor read twice. Later forms of capsules (replicated, frozen, moved
to another machine) keep this seam: function and arguments go in as one `RUN`, exactly one final frame comes out.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

Buffer = bytes | bytearray | memoryview

_HEAD = struct.Struct("!BI")
_MOST_PARTS = 1_000_000


class Kind(IntEnum):
    """What a frame is."""

    READY = 1
    """Capsule → worker, once: it waits for work. One part: its process id in digits."""
    RUN = 2
    """Worker → capsule: in JSON the module search `path` and whether another may follow (`again`), then a function and
    its arguments as `pack` makes it. Once, or again after a final frame in which the capsule said that it can."""
    EMIT = 3
    """Capsule → worker, any number: a (topic, message) for the notebook, in msgpack."""
    RESULT = 4
    """Capsule → worker, final: what it used in JSON and whether it can take another task (`again`), then what the
    function returned, as `pack` makes it."""
    INTERRUPTED = 5
    """Capsule → worker, final: a KeyboardInterrupt ended the function. What it used, then the traceback as text."""
    FAILED = 6
    """Capsule → worker, final: the function could not be read or run, or its value not sent. What it used, then why."""

    ASK = 7
    """Capsule → worker, any number, one at a time: a signing request in PEM, for the right to use the mesh."""
    ANSWER = 8
    """Worker → capsule, one for each `ASK`: what was granted, or ``error``, in JSON."""


FINAL = frozenset({Kind.RESULT, Kind.INTERRUPTED, Kind.FAILED})


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as it was read."""

    kind: Kind
    parts: tuple[Buffer, ...]


def write_frame(channel: socket.socket, kind: Kind, parts: Sequence[Buffer]) -> None:
    """Send one frame; blocks until the other end has taken all of it.

    Raises:
        OSError: the other end is gone.
    """
    views = [memoryview(part).cast("B") for part in parts]
    lengths = struct.pack(f"!{len(views)}Q", *(view.nbytes for view in views))
    channel.sendall(_HEAD.pack(kind, len(views)) + lengths)
    for view in views:
        channel.sendall(view)


def read_frame(channel: socket.socket) -> Frame:
    """Wait for one whole frame.

    Raises:
        EOFError: the other end is gone, or went in the middle of a frame.
        ValueError: what was read is no frame.
    """
    kind, count = _HEAD.unpack(_read(channel, _HEAD.size))
    if count > _MOST_PARTS:
        raise ValueError(f"a frame of {count} parts")
    lengths = struct.unpack(f"!{count}Q", _read(channel, 8 * count))
    return Frame(Kind(kind), tuple(_read(channel, length) for length in lengths))


def _read(channel: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        try:
            taken = channel.recv_into(view)
        except ConnectionError:
            taken = 0
        if not taken:
            raise EOFError("the other end of the capsule's channel is gone")
        view = view[taken:]
    return data


def pack(value: Any) -> list[Buffer]:
    """Return `value` as parts: the pickle, then the buffers it refers to.

    Raises:
        Exception: whatever the value's own pickling raises.
    """
    from distributed.protocol.pickle import dumps

    buffers: list[pickle.PickleBuffer] = []
    head: bytes = dumps(value, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def unpack(parts: Sequence[Buffer]) -> Any:
    """Return the value that `pack` was given; its arrays use the parts as their memory."""
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - both ends are ours
