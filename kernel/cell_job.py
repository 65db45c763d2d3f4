"""Sends a cell to the mesh, shows what it says, and waits for it: the notebook's end of `cell_run`."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import Any

from distributed import KilledWorker

from computemesh import config
from computemesh.errors import ComputeMeshError, Interrupted, TaskDied

from .cell_run import Cell, CellFailed, Outcome
from .cell_tasks import Item, Options, Tasks, kept_future
from .connection import Mesh
from .futures import scheduler_gone
from .interrupts import interrupt
from .live_output import LiveOutput, Screen
from .progress_words import Progress, finished_text, lost_text
from .shipping import Packed

TICK = 0.2
MANY, TOGETHER = 10, 0.02
"""With more open runs than that, ended ones are collected for so many seconds before they are fetched."""
MOST_TOGETHER = 200
WHY_SECONDS = 2.0
"""Between two questions to the scheduler why nothing has started."""


class Cancelled(Exception):
    """Somebody has cancelled the cell from elsewhere."""


class CellRun:
    """All runs of one cell, from sending to the last outcome.

    `start` sends them; `outcomes` then shows and waits, in whichever thread the cell's output is to be printed from.
    """

    def __init__(
        self,
        mesh: Mesh,
        cell: Cell,
        shared: Packed,
        items: Sequence[Item],
        options: Options,
        screen: Screen,
        title_of: Callable[[str], str] = str,
    ) -> None:
        self._mesh = mesh
        self._client = mesh.client
        self._cell = cell
        self._items = items
        self._options = options
        self._screen = screen
        self.output = LiveOutput(
            screen, len(items) > 1, options.cap_lines, options.cap_characters, title_of, options.handle
        )
        self._tasks = Tasks(self._client, cell, shared, items, options)
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._done: dict[int, Outcome | BaseException] = {}
        self._listening = ExitStack()
        self._messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._cancelled = threading.Event()
        self._note = ""
        self._next_progress = float("inf")
        self._shown_progress = False
        self._start = time.monotonic()
        self._next_why = self._start + TICK
        self.kept: dict[int, dict[str, Any]] = {}
        """For ``--keep``: each run's futures by name."""

    @property
    def keys(self) -> list[str]:
        """The Dask keys of the runs."""
        return list(self._tasks.keys)

    @property
    def total(self) -> int:
        """How many runs there are."""
        return len(self._items)

    def start(self) -> None:
        """Send the runs."""
        self._messages = self._listening.enter_context(self._mesh.outputs.listening(self._client, self._cell.run))
        try:
            with warnings.catch_warnings():
                # The size was weighed against notebook.ship-limit; Dask's advice is for other graphs.
                warnings.filterwarnings("ignore", message="Sending large graph")
                self._watch(self._tasks.send())
        except BaseException:
            self._listening.close()
            raise
        if self._options.progress_after >= 0:
            self._next_progress = self._start + self._options.progress_after

    def _watch(self, futures: Sequence[Any]) -> None:
        for future in futures:
            future.add_done_callback(self._ended.put)

    def cancel(self) -> None:
        """Let the thread in `outcomes` stop all runs; may be called from any other."""
        self._cancelled.set()

    def outcomes(self) -> list[Outcome | BaseException]:
        """Wait for all runs, show what they say, and return what each came to, in order of the items.

        Raises:
            KeyboardInterrupt: the user interrupted; the runs have been stopped.
            Cancelled: `cancel` was called; the runs have been stopped.
        """
        with self._listening:
            try:
                self._wait()
            except (KeyboardInterrupt, Cancelled):
                try:
                    self._stop()
                except KeyboardInterrupt:
                    self._screen.stopped("Interrupted twice: all runs are cancelled, and what they had bound is lost.")
                raise
            finally:
                if len(self._done) < self.total:
                    self._client.cancel([*self._tasks.outcomes, *self._tasks.runs])
                self._tasks.forget()
        if self._shown_progress:
            nodes = Counter(outcome.node for outcome in self._done.values() if isinstance(outcome, Outcome))
            self._screen.finished(finished_text(self.total, time.monotonic() - self._start, nodes))
        return [self._done[index] for index in range(self.total)]

    def progress(self) -> Progress:
        """Return how far the runs are."""
        done = dict(self._done)
        running = {index: node for index, node in dict(self.output.nodes).items() if index not in done}
        failed = sum(not isinstance(found, Outcome) or found.failure is not None for found in done.values())
        seconds = time.monotonic() - self._start
        bars = {index: bar for index, bar in dict(self.output.bars).items() if index in running}
        return Progress(self.total, len(done), failed, running, seconds, self._note, bars)

    # ------------------------------------------------------------ waiting

    def _wait(self) -> None:
        while len(self._done) < self.total:
            self._show_waiting()
            if self._cancelled.is_set():
                raise Cancelled
            for index, found in self._fetched(self._ended_now()):
                self._take(index, found)
            self._show_progress()

    def _ended_now(self) -> list[Any]:
        """Return the futures that have ended since, after a moment: together they cost little more than one."""
        try:
            ended = [self._ended.get(timeout=0.02 if self.total == 1 else 0.05)]
        except Empty:
            return []
        if self.total - len(self._done) > MANY:
            time.sleep(TOGETHER)
        with suppress(Empty):
            while len(ended) < MOST_TOGETHER:
                ended.append(self._ended.get_nowait())
        return ended

    def _take(self, index: int, found: Outcome | BaseException) -> None:
        """Note one ended run's outcome and print the last that it has to say."""
        self._done[index] = found
        if isinstance(found, Outcome):
            self._drain(index, found)
            for message in found.late:
                self.output.display(index, message)
            if found.kept:
                run = self._tasks.runs[index]
                self.kept[index] = {name: kept_future(self._client, run, name) for name in found.kept}
        self.output.finish(index)

    def _fetched(self, futures: Sequence[Any]) -> Iterator[tuple[int, Outcome | BaseException]]:
        """Fetch the outcomes of ended tasks; those that ended well in one go."""
        well = [future for future in futures if future.status == "finished"]
        found: dict[Any, Any] = {}
        if len(well) > 1:
            # What is lost meanwhile is asked for again, one by one, and says why.
            with suppress(Exception):
                results = self._client.gather(well)
                found.update(zip((future.key for future in well), results, strict=True))
        for future in futures:
            yield from self._each(future, found[future.key] if future.key in found else self._fetched_alone(future))

    def _each(self, future: Any, found: Any) -> Iterator[tuple[int, Outcome | BaseException]]:
        """Yield the runs of one task with what they came to, and send anew what it has not run."""
        indices = self._tasks.indices[future.key]
        if isinstance(found, list):
            yield from ((outcome.index, outcome) for outcome in found)
            left = indices[len(found) :]
            if left and found and not found[-1].interrupted:
                self._watch(self._tasks.send_again(left, len(found)))
            else:
                yield from ((index, Interrupted("It had not begun when the cell was stopped")) for index in left)
        elif len(indices) > 1 and isinstance(found, TaskDied | KilledWorker):
            # One of them did it: alone, each answers for itself.
            self._watch(self._tasks.send_again(indices, 1))
        else:
            yield from ((index, found) for index in indices)

    def _fetched_alone(self, future: Any) -> Any:
        try:
            return future.result()
        except CellFailed as failed:
            return failed.outcome
        except Exception as error:  # whatever ended it is this run's error
            return scheduler_gone(error, self._mesh.lost_at) or error

    def _drain(self, index: int, outcome: Outcome) -> None:
        """Wait for the messages that the result has overtaken; a bound, since a node may die between them."""
        deadline = time.monotonic() + 2.0
        while self.output.received(index) < outcome.messages:
            try:
                self.output.show(self._messages.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                return

    def _show_waiting(self) -> None:
        while True:
            try:
                self.output.show(self._messages.get_nowait())
            except Empty:
                return

    def _show_progress(self) -> None:
        now = time.monotonic()
        if now < self._next_progress:
            return
        self._next_progress = now + (0.5 if self._shown_progress else TICK)
        self._shown_progress = True
        if self.output.nodes or self._done:
            self._note = ""
        elif now >= self._next_why:
            self._note = self._why_waiting()
            self._next_why = now + WHY_SECONDS
        self._screen.progress(self.progress())

    def _why_waiting(self) -> str:
        """Return why nothing has started, so that a request that cannot be met is not waited for in silence."""
        try:
            answer = self._mesh.ask("mesh_why", key=self._tasks.keys[0])
        except (OSError, ComputeMeshError, ValueError, KeyError):
            return ""
        return str(answer.get("sentence", "")) if answer else ""

    # ------------------------------------------------------------ stopping

    def _stop(self) -> None:
        """Cancel what waits, interrupt what runs, and end what does not stop within the grace period."""
        open_runs = [index for index in range(self.total) if index not in self._done]
        started = [index for index in open_runs if index in self.output.nodes]
        waiting = [index for index in open_runs if index not in self.output.nodes]
        # A task may hold runs that have begun and others that have not: it is interrupted, not cancelled.
        busy = {self._tasks.keys[index] for index in started}
        idle = [self._tasks.runs[index] for index in waiting if self._tasks.keys[index] not in busy]
        if idle:
            self._client.cancel(idle)
        if busy:
            interrupt_runs(self._mesh, self._cell.run, sorted(busy))
        deadline = time.monotonic() + config.seconds("notebook.interrupt-grace") + 1.0
        left = set(started)
        while left and time.monotonic() < deadline:
            self._show_waiting()
            try:
                future = self._ended.get(timeout=0.05)
            except Empty:
                continue
            found = self._fetched_alone(future)
            for index in self._tasks.indices[future.key]:
                one = _of(found, index)
                # Of several runs in one task not each has said that it began.
                if index in left or (index not in self._done and isinstance(one, Outcome)):
                    left.discard(index)
                    self._take(index, one)
        # A run that stopped by itself has an outcome; one that its node had to end has only an error.
        stopped = [index for index in started if isinstance(self._done.get(index), Outcome)]
        ended = [index for index in started if index not in stopped]
        unbegun = [index for index in waiting if index not in self._done]
        self._screen.stopped(lost_text(stopped, ended, len(unbegun), self.total))


def _of(found: Any, index: int) -> Outcome | BaseException:
    """Return what one run came to, of what its task did."""
    if not isinstance(found, list):
        one: Outcome | BaseException = found
        return one
    return next((outcome for outcome in found if outcome.index == index), Interrupted("It had not begun"))


def interrupt_runs(mesh: Mesh, run: str, keys: list[str]) -> None:
    """Interrupt tasks: the plugin signals their capsules; those in threads get an exception."""
    signalled = mesh.ask("mesh_capsule_signal", keys=keys, how="interrupt") or ()
    if set(keys) - set(signalled):
        mesh.client.run(interrupt, run, on_error="ignore")
