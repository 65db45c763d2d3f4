"""Runs a whole notebook on a node, for ``papermill --engine mesh``. This module must never import papermill:
papermill loads its engines while it is itself being imported, and a node that came first would break it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from computemesh.output import current

from .interrupts import Interruptible
from .node_name import node_name

LIVE_BYTES = 256_000
"""A finished cell with larger outputs is reported without them; they come with the notebook."""


@dataclass(frozen=True, slots=True)
class NotebookJob:
    """A notebook and how to run it."""

    notebook: str
    """As JSON."""
    run: str
    topic: str
    kernel_name: str
    live_text: bool = False
    """Send what cells print as it comes, for ``--log-output``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """nbclient's own: ``timeout``, ``startup_timeout`` and so on."""


@dataclass(frozen=True, slots=True)
class NotebookOutcome:
    """The notebook with its outputs, as JSON, and whether it was stopped."""

    notebook: str
    node: str
    messages: int
    interrupted: bool = False


class _Reporter(NotebookClient):
    """Executes like nbclient and reports each cell."""

    def __init__(self, job: NotebookJob, **options: Any) -> None:
        import nbformat

        super().__init__(nbformat.reads(job.notebook, as_version=4), raise_on_iopub_timeout=True, **options)
        self._job = job
        self._emit = current()
        self.sent = 0

    def report(self, **message: Any) -> None:
        """Send one message to the notebook's owner."""
        self._emit(self._job.topic, {"run": self._job.run, "number": self.sent, **message})
        self.sent += 1

    def run_cells(self) -> None:
        """Execute the cells in order, until one fails, as papermill does."""
        self.reset_execution_trackers()
        with self.setup_kernel():
            for index, cell in enumerate(self.nb.cells):
                self.report(kind="cell-start", cell=index)
                error = ""
                try:
                    self.execute_cell(cell, index)
                except CellExecutionError as failure:
                    error = str(failure)
                self._finished(index, error)
                if error:
                    break
            info = self.wait_for_reply(self.kc.kernel_info())
            self.nb.metadata["language_info"] = info["content"]["language_info"]
            self.set_widgets_metadata()

    def _finished(self, index: int, error: str) -> None:
        text = json.dumps(self.nb.cells[index])
        self.report(kind="cell-end", cell=index, error=error, content=text if len(text) <= LIVE_BYTES else "")

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        """Take one message of the kernel; pass printed text on when it is wanted live."""
        output = super().process_message(msg, cell, cell_index)
        if output and self._job.live_text:
            if output.output_type == "stream":
                # A later message extends the same output, so the text is the message's own.
                self.report(kind="text", stream=output.name, text=msg["content"]["text"])
            elif "data" in output and "text/plain" in output.data:
                self.report(kind="text", stream="display", text=str(output.data["text/plain"]))
        return output


def run_notebook(job: NotebookJob) -> NotebookOutcome:
    """Run a notebook in a kernel on this node and return it with its outputs.

    A failing cell ends the run and is in the outputs, as with papermill.
    """
    node = node_name()
    running = Interruptible(job.run)
    with tempfile.TemporaryDirectory(prefix="computemesh-notebook-") as folder:
        client = _Reporter(
            job,
            kernel_name=_kernel_here(job.kernel_name),
            resources={"metadata": {"path": folder}},
            # Not asked to save anything: a stopped notebook must leave no kernel behind.
            shutdown_kernel="immediate",
            **job.options,
        )
        client.report(kind="start", node=node, index=0)
        interrupted = False
        try:
            with running.interruptible(None):
                client.run_cells()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            running.finish()
            _end_kernel(client)
    import nbformat

    return NotebookOutcome(nbformat.writes(client.nb), node, client.sent, interrupted)


def _kernel_here(name: str) -> str:
    """Return the kernel of that name, or Python's own where the node has none of that name."""
    from jupyter_client.kernelspec import KernelSpecManager

    return name if name in KernelSpecManager().find_kernel_specs() else "python3"


def _end_kernel(client: Any) -> None:
    if client.km is None:
        return
    provisioner = getattr(client.km, "provisioner", None)
    process = getattr(provisioner, "process", None)
    if process is not None and process.poll() is None:
        process.kill()
        process.wait(timeout=5)
