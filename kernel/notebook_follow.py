"""Follows a notebook that runs on a node: replays what the node reports, keeps the kernel's state, and starts the
notebook again after its last finished cell when its node or its kernel dies.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from computemesh import config

from .node_name import shown_name
from .notebook_job import NotebookJob, NotebookOutcome, answer_leave, read_part, run_notebook
from .notebook_keep import Kept, keep

logger = logging.getLogger("papermill")

PART = 16 * 2**20
"""Bytes of a kernel's state that are fetched at a time."""
ENDING = 8.0
"""Seconds beyond the grace period in which a stopped notebook's kernel ends and what it had shown comes here."""
STARTS = 5
"""How often a notebook goes on from the same state because its node was lost."""
KERNEL_DEATHS = 2
"""How often a notebook goes on after its kernel died in the same cell; a third time is the cell's own doing."""


class StartsAgain(Exception):
    """The node that ran the notebook is gone, and Dask has begun it anew on another."""


class Stopped(BaseException):
    """The notebook is to be stopped."""


class Terminated(Stopped):
    """By SIGTERM."""


@dataclass(slots=True)
class Replayed:
    """papermill's side of a running notebook: its manager, its log and its files."""

    manager: Any
    log_output: bool = False
    files: Mapping[str, Any] = field(default_factory=dict)
    watch: Callable[[Mapping[str, Any]], None] = lambda message: None
    """Called with each message from the node."""

    def replay(self, message: Mapping[str, Any]) -> None:
        """Show one message of the node."""
        kind = message["kind"]
        if kind == "cell-start":
            self.manager.cell_start(self.manager.nb.cells[message["cell"]], message["cell"])
        elif kind == "cell-end":
            self._cell_ended(message)
        elif kind == "text":
            self._text(message["stream"], message["text"])
        self.watch(message)

    def _cell_ended(self, message: Mapping[str, Any]) -> None:
        import nbformat

        index = message["cell"]
        cell = self.manager.nb.cells[index]
        if message["content"]:
            copy_results(nbformat.from_dict(json.loads(message["content"])), cell)
        if message["error"]:
            self.manager.cell_exception(cell, cell_index=index, exception=message["error"])
        self.manager.cell_complete(cell, cell_index=index)

    def _text(self, stream: str, text: str) -> None:
        if self.log_output:
            (logger.warning if stream == "stderr" else logger.info)(text)
        file = self.files.get(stream)
        if file is not None:
            file.write(text)
            file.flush()

    def take_over(self, outcome: NotebookOutcome) -> None:
        """Copy a notebook's results to papermill's."""
        import nbformat

        done = nbformat.reads(outcome.notebook, as_version=4)
        ours = self.manager.nb
        for found, cell in zip(done.cells, ours.cells, strict=True):
            copy_results(found, cell)
        ours.metadata.update(
            {name: done.metadata[name] for name in ("language_info", "widgets") if name in done.metadata}
        )
        ours.metadata.setdefault("computemesh", {})["node"] = outcome.node


def copy_results(found: Any, cell: Any) -> None:
    """Take a cell's results over; papermill's own metadata on it stays."""
    if found.cell_type != "code":
        return
    cell.outputs = found.outputs
    cell.execution_count = found.execution_count
    if "execution" in found.metadata:
        cell.metadata["execution"] = found.metadata["execution"]


class Follower:
    """Runs one notebook on the mesh and sees it through.

    Args:
        mesh: the mesh.
        replayed: papermill's side.
        state_file: where the kernel's state is kept; None: it is not.
        kept: a state to start from.
        stop: set by whoever wants the notebook stopped.
    """

    def __init__(
        self,
        mesh: Any,
        replayed: Replayed,
        state_file: Path | None = None,
        kept: Kept | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._mesh, self._replayed = mesh, replayed
        self._state_file, self._kept = state_file, kept
        self._stop = stop or threading.Event()
        self._node = ""
        self._received = 0
        self._told: set[str] = set()

    def follow(self, job: NotebookJob) -> NotebookOutcome:
        """Run `job`, replay its messages, and return how it ended.

        Raises:
            Interrupted: it was cancelled, or its scheduler is gone.
            Stopped, KeyboardInterrupt: it was stopped here; what its last cell had printed is in papermill's notebook.
            DeadKernelError: its kernel died, and there is no state to go on from.
        """
        from nbclient.exceptions import DeadKernelError

        from computemesh.errors import Interrupted

        if self._state_file is not None:
            job = replace(job, state_limit=config.size("notebook.checkpoint-limit"))
        deaths: dict[int, int] = {}
        starts: dict[int, int] = {}
        with _terminable():
            while True:
                job = self._prepared(job)
                try:
                    return self._once(job)
                except StartsAgain:
                    cell = self._kept.cell if self._kept else 0
                    starts[cell] = starts.get(cell, 0) + 1
                    if starts[cell] > STARTS:
                        raise Interrupted(f"The notebook lost its node {STARTS} times after cell {cell}") from None
                    logger.warning("The notebook goes on after cell %d", cell)
                except DeadKernelError as death:
                    cell = self._kept.cell if self._kept else -1
                    deaths[cell] = deaths.get(cell, 0) + 1
                    if self._kept is None or deaths[cell] > KERNEL_DEATHS:
                        raise
                    logger.warning("The kernel died (%s); the notebook goes on after cell %d", death, cell)

    def _prepared(self, job: NotebookJob) -> NotebookJob:
        """Return `job` as it is to start: after the last finished cell whose state is kept."""
        import nbformat

        self._node, self._received = "", 0
        if self._kept is None:
            return job
        ours = self._replayed.manager.nb
        for found, cell in zip(self._kept.notebook().cells, ours.cells, strict=True):
            copy_results(found, cell)
        for cell in ours.cells[: self._kept.cell]:
            cell.metadata.papermill["status"] = "completed"
        return replace(job, run=uuid.uuid4().hex[:12], first=self._kept.cell, notebook=nbformat.writes(ours))

    def _once(self, job: NotebookJob) -> NotebookOutcome:
        import dask
        from distributed import CancelledError

        from computemesh.errors import Interrupted

        from .futures import scheduler_gone

        client = self._mesh.client
        state = client.scatter(self._kept.state, hash=False) if self._kept is not None else None
        with self._mesh.outputs.listening(client, job.run) as messages:
            with dask.annotate(mesh={"executor": "capsule"}):
                future = client.submit(run_notebook, job, state, key=f"notebook-{job.run}", pure=False)
            try:
                while not future.done():
                    self._take(messages, 0.2)
                    self._check_stop()
                outcome: NotebookOutcome = future.result()
            except (KeyboardInterrupt, Stopped):
                self._stopped(job, future, messages)
                raise
            except StartsAgain:
                future.cancel()
                raise
            except CancelledError as error:
                gone = scheduler_gone(error, self._mesh.lost_at)
                if gone is None and self._kept is not None:
                    # The node that held the state has died with the one copy that Dask had of it; here is another.
                    raise StartsAgain from None
                raise gone or Interrupted("The notebook was cancelled") from None
            while self._received < outcome.messages:
                if not self._take(messages, 2.0):
                    break
        if outcome.interrupted:
            raise Interrupted(f"The notebook was interrupted on node {outcome.node}")
        self._replayed.take_over(outcome)
        return outcome

    # ------------------------------------------------------------ what the node reports

    def _take(self, messages: SimpleQueue[dict[str, Any]], seconds: float) -> bool:
        try:
            message = messages.get(timeout=seconds)
        except Empty:
            return False
        self._received += 1
        if message["kind"] == "start":
            self._started(message["node"], message.get("leave", ""))
        elif message["kind"] == "state":
            self._keep(message)
        elif message.get("large"):
            message = {**message, "content": self._large(message["large"])}
        self._replayed.replay(message)
        return True

    def _started(self, node: str, leave: str) -> None:
        if self._node:
            logger.warning("The notebook starts again, on node %s; it was on %s", node, self._node)
        else:
            logger.info("The notebook runs on node %s", node)
        again = bool(self._node) and self._kept is not None
        self._node, self._received = node, 1
        if leave:
            self._mesh.client.run(answer_leave, leave, not again, workers=[self._address()], on_error="ignore")
        if again:
            raise StartsAgain

    def _keep(self, message: Mapping[str, Any]) -> None:
        """Fetch the state that the node has saved; when that fails, the one before it stays."""
        for name, why in message["unsaved"].items():
            if name not in self._told:
                self._told.add(name)
                logger.warning("The notebook's state is not kept while it has `%s`: %s", name, why)
        if not message["bytes"] or self._state_file is None:
            return
        try:
            state = self._fetched(message["file"])
            if len(state) != message["bytes"]:
                raise OSError(f"{len(state)} of {message['bytes']} bytes came")  # noqa: TRY301 - as any other failure
        except Exception as error:  # whatever it was, the notebook goes on without this state
            logger.info("The state after cell %d could not be fetched: %s", message["cell"], error)
            return
        self._kept = Kept.of(self._replayed.manager.nb, message["cell"], state)
        keep(self._kept, self._state_file)

    def _large(self, file: str) -> str:
        """Fetch a finished cell that was too large for a message; without it no state from here on is whole."""
        try:
            return self._fetched(file).decode()
        except Exception as error:  # the node may be gone, or the file
            logger.info("A large output could not be fetched, so the notebook's state is not kept further: %s", error)
            self._state_file = None
            return ""

    def _fetched(self, file: str) -> bytes:
        """Return a file of the node's, part by part; a part that is not full is the last."""
        address, parts = self._address(), list[bytes]()
        while not parts or len(parts[-1]) == PART:
            start = PART * len(parts)
            parts.append(self._mesh.client.run(read_part, file, start, PART, workers=[address])[address])
        return b"".join(parts)

    def _address(self) -> str:
        """Return the address of the node's worker."""
        workers = self._mesh.client.scheduler_info(n_workers=-1)["workers"]
        return next((address for address, about in workers.items() if shown_name(about["name"]) == self._node), "")

    # ------------------------------------------------------------ stopping

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _stopped(self, job: NotebookJob, future: Any, messages: SimpleQueue[dict[str, Any]]) -> None:
        """Interrupt the running cell and take over what it had shown, within the grace period."""
        from .cell_job import interrupt_runs

        if threading.current_thread() is threading.main_thread():
            print("Interrupted: stopping the notebook on its node", file=sys.stderr)
        deadline = time.monotonic() + config.seconds("notebook.interrupt-grace") + ENDING
        with contextlib.suppress(Exception):  # the mesh may be gone, which stops nobody from stopping
            interrupt_runs(self._mesh, job.run, [future.key])
            while not future.done() and time.monotonic() < deadline:
                self._take(messages, 0.1)
            if future.done() and future.status == "finished":
                self._replayed.take_over(future.result())
            future.cancel()


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM stop the notebook as Ctrl-C does, where signals come to this thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except Terminated:
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)
