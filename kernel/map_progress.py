"""``mesh.map(…, progress=True)``: a live bar of a map's tasks, in a notebook, on a terminal or in a log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from .node_name import shown_name
from .progress_words import Progress, duration, progress_text
from .screens import TerminalScreen, screen_here

TICK = 0.3
"""Seconds between two looks at the futures."""
LOG_EVERY = 10.0
"""Seconds between two lines in a log."""


def show_progress(futures: Sequence[Any], title: str) -> None:
    """Show how far `futures` are until all have ended; an interrupt stops the showing and leaves them running."""
    screen: Any = screen_here()
    if isinstance(screen, TerminalScreen) and not sys.stderr.isatty():
        screen = _Log()
    ended: SimpleQueue[int] = SimpleQueue()
    for index, future in enumerate(futures):
        future.add_done_callback(lambda _future, index=index: ended.put(index))
    start = time.monotonic()
    done: set[int] = set()
    shown = 0.0
    while len(done) < len(futures):
        done |= _taken(ended)
        now = time.monotonic()
        if now - shown >= TICK and len(done) < len(futures):
            shown = now
            screen.progress(_progress(futures, done, now - start))
    failed = sum(future.status != "finished" for future in futures)
    screen.finished(finished_words(title, len(futures), failed, time.monotonic() - start, _per_node(futures)))


class _Log:
    """Where lines stay: one every ten seconds, and the last word."""

    def __init__(self) -> None:
        self._said = 0.0

    def progress(self, progress: Progress) -> None:
        """Print how far it is, now and then."""
        if progress.seconds - self._said >= LOG_EVERY:
            self._said = progress.seconds
            print(progress_text(progress), file=sys.stderr, flush=True)

    def finished(self, text: str) -> None:
        """Print the last word."""
        print(text, file=sys.stderr, flush=True)


def finished_words(title: str, total: int, failed: int, seconds: float, per_node: Counter[str]) -> str:
    """Return the last word, such as ``fit: 8 in 4.2 s: desktop 3, server 4; 1 failed``."""
    nodes = ", ".join(f"{node} {count}" for node, count in sorted(per_node.items()))
    text = f"{title}: {total} in {duration(seconds)}" + (f": {nodes}" if nodes else "")
    return f"{text}; {failed} failed" if failed else text


def _taken(ended: SimpleQueue[int]) -> set[int]:
    found: set[int] = set()
    try:
        found.add(ended.get(timeout=TICK))
        while True:
            found.add(ended.get_nowait())
    except Empty:
        return found


def _progress(futures: Sequence[Any], done: set[int], seconds: float) -> Progress:
    client = futures[0].client
    processing = client.processing()
    names, slots = _names(client), client.nthreads()
    running: dict[int, str] = {}
    index_of = {future.key: index for index, future in enumerate(futures)}
    for worker, keys in processing.items():
        # Dask also counts what a worker will run next; no more than its slots run.
        for key in list(keys)[: slots.get(worker, 1)]:
            index = index_of.get(key)
            if index is not None and index not in done:
                running[index] = names.get(worker, str(worker))
    failed = sum(futures[index].status != "finished" for index in done)
    return Progress(len(futures), len(done), failed, running, seconds)


def _per_node(futures: Sequence[Any]) -> Counter[str]:
    client = futures[0].client
    names = _names(client)
    finished = [future.key for future in futures if future.status == "finished"]

    async def asked() -> Any:
        return await client.scheduler.who_has(keys=finished)

    holders = client.sync(asked) if finished else {}
    return Counter(names.get(where[0], str(where[0])) for where in holders.values() if where)


def _names(client: Any) -> dict[str, str]:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {address: shown_name(worker.get("name", address)) for address, worker in workers.items()}
