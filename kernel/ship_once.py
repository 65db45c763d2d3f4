"""Sends large contents to the mesh once: by their hash, kept as Dask futures for as long as they are of use.

The hash is taken anew each time, so that an array changed in place is another content. A content belongs to the
variables that last held it: when a variable has changed, what it held before is let go, and what no variable names
(items of a loop, arguments) goes when the cache is full. Dask keeps what running tasks need in any case.
"""

from __future__ import annotations

import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import dask

from computemesh import config

from .blobs import LARGE, Blob, as_is, digest_of
from .shipping import Packed, Part

KNOWN_ITEMS = 10_000
"""Buffers that one `Shipment` remembers."""


@dataclass
class _Kept:
    future: Any
    size: int


class ShipCache:
    """What one connection has sent, by content."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock = threading.RLock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._of_name: dict[str, frozenset[str]] = {}
        # Keys must not be guessable: whoever knew one could put another content in its place.
        self._salt = secrets.token_hex(6)
        self._made = 0
        self.sent = 0
        """Bytes sent so far."""

    @property
    def size(self) -> int:
        """Bytes that it keeps on the mesh."""
        with self._lock:
            return sum(each.size for each in self._kept.values())

    def future(self, client: Any, content: Any, writable: bool, digest: str) -> Any:
        """Return the future of a content, sent now if the mesh does not have it."""
        name = f"{digest}{'w' * writable}"
        with self._lock:
            known = self._kept.get(name)
            if known is not None and known.future.client is client and known.future.status in _USABLE:
                self._kept.move_to_end(name)
                return known.future
            size = memoryview(content).nbytes
            # A copy: Dask sends later, and the notebook may go on to change the original.
            blob = Blob(bytes(content), writable)
            with dask.annotate(mesh={}), warnings.catch_warnings():
                # The size was weighed against notebook.ship-limit; Dask's advice is for other graphs.
                warnings.filterwarnings("ignore", message="Sending large graph")
                # A new key each time: news of a former one's end may still be under way.
                self._made += 1
                key = f"mesh_blob-{self._salt}-{name}-{self._made}"
                future = client.submit(as_is, blob, key=key, pure=False, priority=1)
            self._kept[name] = _Kept(future, size)
            self.sent += size
            self._shrink(keep=name)
            return future

    def renew(self, name: str, digests: Iterable[str]) -> None:
        """Let go what the variable `name` held before, unless it or another variable still holds it."""
        with self._lock:
            before, now = self._of_name.get(name, frozenset()), frozenset(digests)
            if now:
                self._of_name[name] = now
            else:
                self._of_name.pop(name, None)
            held = frozenset().union(*self._of_name.values())
            for each in before - held:
                self._drop(each)
                self._drop(f"{each}w")

    def clear(self) -> None:
        """Let everything go."""
        with self._lock:
            self._kept.clear()
            self._of_name.clear()

    def _shrink(self, keep: str) -> None:
        limit = config.size("notebook.ship-cache") if self._limit is None else self._limit
        while self.size > limit and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            if oldest == keep:
                break
            self._drop(oldest)

    def _drop(self, name: str) -> None:
        # The future's end releases it at the scheduler.
        self._kept.pop(name, None)


_USABLE = frozenset({"pending", "finished"})


class Shipment:
    """Everything that is sent for one cell, `map` or submission: each object in it is hashed once."""

    def __init__(self, mesh: Any) -> None:
        self._client = mesh.client
        self._cache: ShipCache = mesh.shipped
        self._digests: dict[tuple[int, int, bool], tuple[str, Any]] = {}

    def shipped(self, packed: Packed) -> Packed:
        """Return `packed` with futures in place of what is large."""
        if packed.size < LARGE and not packed.variables:
            return self._with_modules(packed)
        futures = list(packed.futures)
        places: dict[str, int] = {}
        parts = []
        for part in packed.parts:
            part, digests = self._part(part, futures, places)
            parts.append(part)
            if packed.variables:
                self._cache.renew(part.name, digests)
        return self._with_modules(replace(packed, parts=tuple(parts), futures=tuple(futures)))

    def _part(self, part: Part, futures: list[Any], places: dict[str, int]) -> tuple[Part, list[str]]:
        digests: list[str] = []

        def place(content: Any, writable: bool) -> int:
            digest = self._digest(content, writable)
            digests.append(digest)
            name = f"{digest}{writable}"
            if name not in places:
                places[name] = len(futures)
                futures.append(self._cache.future(self._client, content, writable, digest))
            return places[name]

        stream: bytes | int = part.stream
        if isinstance(stream, bytes) and len(stream) >= LARGE:
            stream = place(stream, False)
        buffers = []
        for each in part.buffers:
            raw = None if isinstance(each, int) else each.raw()
            buffers.append(each if raw is None else place(raw, not raw.readonly))
        return replace(part, stream=stream, buffers=tuple(buffers)), digests

    def _digest(self, content: Any, writable: bool) -> str:
        view = memoryview(content)
        # Where it lies in memory tells it from others while the shipment holds on to it.
        identity = (_address(view), view.nbytes, writable)
        known = self._digests.get(identity)
        if known is None:
            known = (digest_of(view), content)
            if len(self._digests) < KNOWN_ITEMS:
                self._digests[identity] = known
        return known[0]

    def _with_modules(self, packed: Packed) -> Packed:
        if packed.modules is not None or not packed.imports:
            return packed
        from .module_sources import bundle_of

        bundle = bundle_of(packed.imports)
        if bundle is None:
            return packed
        data = bundle.data
        if len(data) < LARGE:
            return replace(packed, modules=data)
        futures = (*packed.futures, self._cache.future(self._client, data, False, digest_of(data)))
        return replace(packed, modules=len(futures) - 1, futures=futures)


def _address(view: memoryview) -> int:
    import ctypes

    if view.readonly:
        # ctypes reads no read-only memory's address; the object's own identity serves, as it is held.
        return id(view.obj)
    return ctypes.addressof(ctypes.c_char.from_buffer(view.cast("B"))) if view.nbytes else 0


def shipped(mesh: Any, packed: Packed) -> Packed:
    """Return `packed` with what is large behind futures, sent to each node once across cells; see `Shipment`."""
    return Shipment(mesh).shipped(packed)
