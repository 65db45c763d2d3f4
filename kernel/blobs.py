"""Large contents that travel once: what a node holds of them, and how a run gets its own copy."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

LARGE = 1 << 20
"""Bytes from which a buffer is sent by content, once, rather than inside what uses it."""
SHARED_BYTES = 50_000
"""What many tasks share is sent to each node once from about here on, rather than with each of them."""


class Blob:
    """A content as the mesh holds it: a Dask task's result, sent to each node at most once.

    It pickles without being copied (protocol 5, out of band).
    """

    __slots__ = ("content", "writable")

    def __init__(self, content: Any, writable: bool) -> None:
        self.content = content
        self.writable = writable

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        content = pickle.PickleBuffer(self.content) if int(protocol) >= 5 else bytes(self.content)
        return Blob, (content, self.writable)

    def __sizeof__(self) -> int:
        # Dask weighs a worker's memory by this.
        return 100 + memoryview(self.content).nbytes

    def __repr__(self) -> str:
        return f"<Blob: {memoryview(self.content).nbytes} bytes>"

    def own_copy(self) -> Any:
        """Return the content for one run: what it changes in place, no other run may see."""
        return bytearray(self.content) if self.writable else memoryview(self.content).toreadonly()


def as_is(content: Any) -> Any:
    """Return `content`: as a task of its own it is sent to each node once, and made anew when its node dies."""
    return content


def once_a_node(client: Any, data: bytes, key: str) -> Any:
    """Return the future of `data`, for tasks that share it."""
    import dask

    with dask.annotate(mesh={}):
        return client.submit(as_is, data, key=key, pure=False)


def digest_of(content: Any) -> str:
    """Return the name of a content: its SHA-256, which OpenSSL computes faster than memory is copied twice."""
    return hashlib.sha256(content).hexdigest()
