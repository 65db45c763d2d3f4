"""Readers of one stream of snapshots and deltas, of which none can make the sender wait or grow a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Reader:
    """One reader: what it is sent while it still takes in the last message is dropped, and a snapshot makes up for it.

    `send` returns once the reader has taken a message; `snapshot` returns the message that says all there is.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]], snapshot: Callable[[], bytes]) -> None:
        self._send, self._snapshot = send, snapshot
        self._writing: asyncio.Task[None] | None = None
        self._behind = False

    def tell(self, message: bytes) -> None:
        """Send `message`, or remember that this reader needs a snapshot."""
        if self._writing is not None:
            self._behind = True
            return
        self._writing = asyncio.create_task(self._write(message))

    async def _write(self, message: bytes) -> None:
        try:
            await self._send(message)
            while self._behind:
                self._behind = False
                await self._send(self._snapshot())
        finally:
            self._writing = None

    def leave(self) -> None:
        """Stop what is being sent."""
        if self._writing is not None:
            self._writing.cancel()


class Audience:
    """All readers of one stream. `snapshot` returns the message that says all there is."""

    def __init__(self, snapshot: Callable[[], bytes]) -> None:
        self._snapshot = snapshot
        self._readers: set[Reader] = set()

    def __len__(self) -> int:
        return len(self._readers)

    def join(self, send: Callable[[bytes], Awaitable[None]]) -> Reader:
        """Add a reader and send it a snapshot. `send` must not raise when the reader has gone."""
        reader = Reader(send, self._snapshot)
        self._readers.add(reader)
        reader.tell(self._snapshot())
        return reader

    def leave(self, reader: Reader) -> None:
        """Take a reader out; one that is not there is ignored."""
        self._readers.discard(reader)
        reader.leave()

    def tell(self, message: bytes) -> None:
        """Send `message` to everybody who keeps up."""
        for reader in tuple(self._readers):
            reader.tell(message)
