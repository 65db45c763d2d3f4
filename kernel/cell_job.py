"""Sends a cell to the mesh, shows what it says, and waits for it: the notebook's end of `cell_run`."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import dask

from computemesh import config
from computemesh.errors import ComputeMeshError
from computemesh.requirement import Requirement

from .cell_run import Cell, CellFailed, Outcome, run_cell, shared_data
from .connection import Mesh
from .futures import scheduler_gone
from .interrupts import interrupt
from .live_output import LiveOutput, Screen
from .progress_words import Progress, finished_text, lost_text
from .shipping import Packed

INLINE_BYTES = 50_000
"""Shared values above this become a task of their own, so that each node gets them once."""
TICK = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """How a cell is to run."""

    requirement: Requirement = field(default_factory=Requirement)
    retries: int = 0
    timeout: float | None = None
    progress_after: float = 2.0
    """Seconds; negative for never."""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """One run of a cell."""

    packed: Packed | None = None
    """The loop's item; None for a single run."""
    worker: str = ""
    """The worker that it must run on, for ``--each``."""


class CellRun:
    """All runs of one cell, from sending to the last outcome."""

    def __init__(
        self, mesh: Mesh, cell: Cell, shared: Packed, items: Sequence[Item], options: Options, screen: Screen
    ) -> None:
        self._mesh = mesh
        self._client = mesh.client
        self._cell = cell
        self._shared = shared
        self._items = items
        self._options = options
        self._screen = screen
        self._output = LiveOutput(screen, prefixed=len(items) > 1)
        self._futures: list[Any] = []
        self._ended: SimpleQueue[int] = SimpleQueue()
        self._done: dict[int, Outcome | BaseException] = {}
        self._note = ""
        self._next_progress = float("inf")
        self._shown_progress = False
        self._start = time.monotonic()

    @property
    def keys(self) -> list[str]:
        """The Dask keys of the runs."""
        return [future.key for future in self._futures]

    def outcomes(self) -> list[Outcome | BaseException]:
        """Run the cell and return what each run came to, in order of the items.

        Raises:
            KeyboardInterrupt: the user interrupted; the runs have been stopped.
        """
        with self._mesh.outputs.listening(self._client, self._cell.run) as messages:
            try:
                with warnings.catch_warnings():
                    # The size was weighed against notebook.ship-limit; Dask's advice is for other graphs.
                    warnings.filterwarnings("ignore", message="Sending large graph")
                    self._submit()
                self._wait(messages)
            except KeyboardInterrupt:
                try:
                    self._stop(messages)
                except KeyboardInterrupt:
                    self._screen.stopped("Interrupted twice: all runs are cancelled, and what they had bound is lost.")
                raise
            finally:
                self._client.cancel(self._futures) if len(self._done) < len(self._futures) else None
                self._futures.clear()
        if self._shown_progress:
            nodes = Counter(outcome.node for outcome in self._done.values() if isinstance(outcome, Outcome))
            self._screen.finished(finished_text(len(self._items), time.monotonic() - self._start, nodes))
        return [self._done[index] for index in range(len(self._items))]

    # ------------------------------------------------------------ sending

    def _submit(self) -> None:
        if self._options.progress_after >= 0:
            self._next_progress = self._start + self._options.progress_after
        prefix = f"cell_{_short_hash(self._cell.source.text)}"
        shared: Any = self._shared.data
        with dask.annotate(mesh=self._annotation()):
            if len(self._items) > 1 and len(shared) > INLINE_BYTES:
                with dask.annotate(mesh={}):
                    shared = self._client.submit(
                        shared_data, shared, key=f"{prefix}_names-{self._cell.run}", pure=False
                    )
            if len(self._items) > 1 and not any(item.worker for item in self._items):
                self._futures = self._map(prefix, shared)
            else:
                self._futures = [self._one(prefix, shared, index) for index in range(len(self._items))]
        for index, future in enumerate(self._futures):
            future.add_done_callback(lambda _future, index=index: self._ended.put(index))

    def _map(self, prefix: str, shared: Any) -> list[Any]:
        count = len(self._items)
        futures: list[Any] = self._client.map(
            run_cell,
            [self._cell] * count,
            [shared] * count,
            [item.packed.data if item.packed else None for item in self._items],
            range(count),
            # Futures in the packed values are numbered; Dask fills these arguments with their results.
            [list(self._shared.futures)] * count,
            [list(item.packed.futures) if item.packed else [] for item in self._items],
            key=[f"{prefix}-{self._cell.run}-{index}" for index in range(count)],
            retries=self._options.retries,
            priority=self._options.priority,
            pure=False,
        )
        return futures

    def _one(self, prefix: str, shared: Any, index: int) -> Any:
        item = self._items[index]
        return self._client.submit(
            run_cell,
            self._cell,
            shared,
            item.packed.data if item.packed else None,
            index,
            list(self._shared.futures),
            list(item.packed.futures) if item.packed else [],
            key=f"{prefix}-{self._cell.run}-{index}",
            workers=[item.worker] if item.worker else None,
            retries=self._options.retries,
            priority=self._options.priority,
            pure=False,
        )

    def _annotation(self) -> dict[str, Any]:
        asked: dict[str, Any] = {**self._options.requirement.to_spec(), "executor": "capsule"}
        if self._options.timeout is not None:
            # The cell interrupts itself in time and keeps what it has; this limit is for one that does not.
            asked["timeout"] = self._options.timeout + 1.0
        return asked

    # ------------------------------------------------------------ waiting

    def _wait(self, messages: SimpleQueue[dict[str, Any]]) -> None:
        while len(self._done) < len(self._items):
            self._show_waiting(messages)
            try:
                index = self._ended.get(timeout=0.02 if len(self._items) == 1 else 0.05)
            except Empty:
                self._show_progress()
                continue
            self._take(index, messages)
            self._show_progress()

    def _take(self, index: int, messages: SimpleQueue[dict[str, Any]]) -> None:
        """Fetch one ended run's outcome and print the last that it has to say."""
        found = self._fetched(index)
        self._done[index] = found
        if isinstance(found, Outcome):
            self._drain(messages, index, found)
            for message in found.late:
                self._output.display(index, message)
        self._output.finish(index)

    def _fetched(self, index: int) -> Outcome | BaseException:
        future = self._futures[index]
        try:
            outcome: Outcome = future.result()
        except CellFailed as failed:
            return failed.outcome
        except Exception as error:  # whatever ended it is this run's error
            return scheduler_gone(error, self._mesh.lost_at) or error
        return outcome

    def _drain(self, messages: SimpleQueue[dict[str, Any]], index: int, outcome: Outcome) -> None:
        """Wait for the messages that the result has overtaken; a bound, since a node may die between them."""
        deadline = time.monotonic() + 2.0
        while self._output.received(index) < outcome.messages:
            try:
                self._output.show(messages.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                return

    def _show_waiting(self, messages: SimpleQueue[dict[str, Any]]) -> None:
        while True:
            try:
                self._output.show(messages.get_nowait())
            except Empty:
                return

    def _show_progress(self) -> None:
        now = time.monotonic()
        if now < self._next_progress:
            return
        self._next_progress = now + (0.5 if self._shown_progress else TICK)
        self._shown_progress = True
        running = {index: node for index, node in self._output.nodes.items() if index not in self._done}
        if not running and not self._done:
            self._note = self._why_waiting()
            self._next_progress = now + 2.0
        else:
            self._note = ""
        failed = sum(not isinstance(found, Outcome) or found.failure is not None for found in self._done.values())
        seconds = now - self._start
        self._screen.progress(Progress(len(self._items), len(self._done), failed, running, seconds, self._note))

    def _why_waiting(self) -> str:
        """Return why nothing has started, so that a request that cannot be met is not waited for in silence."""
        try:
            answer = self._mesh.ask("mesh_why", key=self._futures[0].key)
        except (OSError, ComputeMeshError, ValueError, KeyError):
            return ""
        return str(answer.get("sentence", "")) if answer else ""

    # ------------------------------------------------------------ stopping

    def _stop(self, messages: SimpleQueue[dict[str, Any]]) -> None:
        """Cancel what waits, interrupt what runs, and end what does not stop within the grace period."""
        open_runs = [index for index in range(len(self._futures)) if index not in self._done]
        started = [index for index in open_runs if index in self._output.nodes]
        waiting = [index for index in open_runs if index not in self._output.nodes]
        if waiting:
            self._client.cancel([self._futures[index] for index in waiting])
        if started:
            self._interrupt_runs([self._futures[index].key for index in started])
        deadline = time.monotonic() + config.seconds("notebook.interrupt-grace") + 1.0
        left = set(started)
        while left and time.monotonic() < deadline:
            self._show_waiting(messages)
            try:
                index = self._ended.get(timeout=0.05)
            except Empty:
                continue
            if index in left:
                left.discard(index)
                self._take(index, messages)
        # A run that stopped by itself has an outcome; one that its node had to end has only an error.
        stopped = [index for index in started if isinstance(self._done.get(index), Outcome)]
        ended = [index for index in started if index not in stopped]
        self._screen.stopped(lost_text(stopped, ended, len(waiting), len(self._items)))

    def _interrupt_runs(self, keys: list[str]) -> None:
        interrupt_runs(self._mesh, self._cell.run, keys)


def interrupt_runs(mesh: Mesh, run: str, keys: list[str]) -> None:
    """Interrupt tasks: the plugin signals their capsules; those in threads get an exception."""
    signalled = mesh.ask("mesh_capsule_signal", keys=keys, how="interrupt") or ()
    if set(keys) - set(signalled):
        mesh.client.run(interrupt, run, on_error="ignore")


def _short_hash(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:6]
