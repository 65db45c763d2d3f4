"""``papermill --engine mesh in.ipynb out.ipynb``: the notebook runs on a node, its progress shows here.

What papermill does with a notebook (parameters, progress bar, a save after each cell, the exit code) stays
papermill's own; only the execution happens elsewhere.
"""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any

from papermill.engines import Engine

logger = logging.getLogger("papermill")


class MeshEngine(Engine):
    """papermill's engine ``mesh``."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: Any,
        kernel_name: str,
        log_output: bool = False,
        stdout_file: Any = None,
        stderr_file: Any = None,
        start_timeout: int = 60,
        execution_timeout: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the notebook of `nb_man` on the mesh; called by papermill."""
        import nbformat

        from .connection import current
        from .notebook_run import NotebookJob
        from .output_router import topic_of

        mesh = current()
        job = NotebookJob(
            notebook=nbformat.writes(nb_man.nb),
            run=uuid.uuid4().hex[:12],
            topic=topic_of(mesh.client),
            kernel_name=kernel_name,
            live_text=bool(log_output or stdout_file or stderr_file),
            options={
                "timeout": execution_timeout or kwargs.get("timeout"),
                "startup_timeout": start_timeout,
                **{name: kwargs[name] for name in _PASSED if name in kwargs},
            },
        )
        return _Follower(nb_man, log_output, stdout_file, stderr_file).follow(mesh, job)


_PASSED = ("allow_errors", "interrupt_on_timeout", "iopub_timeout", "record_timing", "store_widget_state")
"""nbclient's options that may be given to papermill and mean the same on a node."""


class _Follower:
    """Replays on papermill's notebook what the node reports."""

    def __init__(self, nb_man: Any, log_output: bool, stdout_file: Any, stderr_file: Any) -> None:
        self._nb_man = nb_man
        self._log_output = log_output
        self._files = {"stdout": stdout_file, "stderr": stderr_file}
        self._node = ""
        self._received = 0

    def follow(self, mesh: Any, job: Any) -> Any:
        """Run `job`, replay its messages, and return the finished notebook."""
        import dask
        from distributed import CancelledError

        from computemesh.errors import Interrupted

        from .futures import scheduler_gone
        from .notebook_run import run_notebook

        client = mesh.client
        with mesh.outputs.listening(client, job.run) as messages:
            with dask.annotate(mesh={"executor": "capsule"}):
                future = client.submit(run_notebook, job, key=f"notebook-{job.run}", pure=False)
            try:
                while not future.done():
                    self._take(messages, 0.2)
                outcome = future.result()
            except KeyboardInterrupt:
                _stop(mesh, job.run, future)
                raise
            except CancelledError as error:
                raise scheduler_gone(error, mesh.lost_at) or Interrupted("The notebook was cancelled") from None
            while self._received < outcome.messages:
                if not self._take(messages, 2.0):
                    break
        if outcome.interrupted:
            raise Interrupted(f"The notebook was interrupted on node {outcome.node}")
        return self._finished(outcome)

    def _take(self, messages: SimpleQueue[dict[str, Any]], seconds: float) -> bool:
        try:
            message = messages.get(timeout=seconds)
        except Empty:
            return False
        self._received += 1
        self._replay(message)
        return True

    def _replay(self, message: Mapping[str, Any]) -> None:
        kind = message["kind"]
        cells = self._nb_man.nb.cells
        if kind == "start":
            if self._node:
                logger.warning("The notebook starts again, on node %s; it was on %s", message["node"], self._node)
            else:
                logger.info("The notebook runs on node %s", message["node"])
            self._node, self._received = message["node"], 1
        elif kind == "cell-start":
            self._nb_man.cell_start(cells[message["cell"]], message["cell"])
        elif kind == "cell-end":
            self._cell_ended(message)
        elif kind == "text":
            self._text(message["stream"], message["text"])

    def _cell_ended(self, message: Mapping[str, Any]) -> None:
        import nbformat

        index = message["cell"]
        cell = self._nb_man.nb.cells[index]
        if message["content"]:
            found = nbformat.from_dict(json.loads(message["content"]))
            _copy_results(found, cell)
        if message["error"]:
            self._nb_man.cell_exception(cell, cell_index=index, exception=message["error"])
        self._nb_man.cell_complete(cell, cell_index=index)

    def _text(self, stream: str, text: str) -> None:
        if self._log_output:
            (logger.warning if stream == "stderr" else logger.info)(text)
        file = self._files.get(stream)
        if file is not None:
            file.write(text)
            file.flush()

    def _finished(self, outcome: Any) -> Any:
        import nbformat

        done = nbformat.reads(outcome.notebook, as_version=4)
        ours = self._nb_man.nb
        for found, cell in zip(done.cells, ours.cells, strict=True):
            _copy_results(found, cell)
        ours.metadata.update(
            {name: done.metadata[name] for name in ("language_info", "widgets") if name in done.metadata}
        )
        ours.metadata.setdefault("computemesh", {})["node"] = outcome.node
        return ours


def _copy_results(found: Any, cell: Any) -> None:
    """Take a cell's results over; papermill's own metadata on it stays."""
    if found.cell_type != "code":
        return
    cell.outputs = found.outputs
    cell.execution_count = found.execution_count
    if "execution" in found.metadata:
        cell.metadata["execution"] = found.metadata["execution"]


def _stop(mesh: Any, run: str, future: Any) -> None:
    from .cell_job import interrupt_runs

    print("Interrupted: stopping the notebook on its node", file=sys.stderr)
    interrupt_runs(mesh, run, [future.key])
    future.cancel()
