"""Runs a whole notebook on a node, for ``papermill --engine mesh``. This module must never import papermill:
papermill loads its engines while it is itself being imported, and a node that came first would break it.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from computemesh.delegation import ask_again, delegated_identity, in_task
from computemesh.errors import Refused
from computemesh.identity import HOME_VARIABLE
from computemesh.output import current

from .forked_kernel import ForkedKernel
from .interrupts import Interruptible, in_own_process
from .node_name import node_name
from .notebook_job import REFUSED, NotebookJob, NotebookOutcome, mark_of
from .renewal import Renewal

logger = logging.getLogger("computemesh.kernel")

LIVE_BYTES = 256_000
"""A finished cell with larger outputs is reported without them; they come with the notebook."""
CHEAP = 0.5
"""Seconds of saving up to which the state is saved after every cell."""
AGAIN_AFTER = 2.0
"""How many times the time that a dearer saving took must pass before the next."""
LEAVE_SECONDS = 30.0
SETTINGS = ("load_ext", "matplotlib", "config", "autoreload", "aimport", "env", "set_env", "precision")
"""Line magics that set something up in the kernel which its state does not hold: run again on resuming."""


class _Reporter(NotebookClient):
    """Executes like nbclient and reports each cell."""

    def __init__(self, job: NotebookJob, folder: Path, environment: dict[str, str], **options: Any) -> None:
        import nbformat

        super().__init__(nbformat.reads(job.notebook, as_version=4), raise_on_iopub_timeout=True, **options)
        self._job = job
        self._emit = current()
        self._environment = environment
        self._states = _States(folder, job.state_limit)
        self.sent = 0

    def report(self, **message: Any) -> None:
        """Send one message to the notebook's owner."""
        self._emit(self._job.topic, {"run": self._job.run, "number": self.sent, **message})
        self.sent += 1

    def run_cells(self, state: bytes | None) -> None:
        """Execute the cells in order, until one fails, as papermill does."""
        self.reset_execution_trackers()
        self._prepare_kernel()
        with self.setup_kernel(env=self._environment):
            if self._job.state_limit:
                self._ask("ready()")
            if state is not None:
                self._restore(state)
            for index, cell in enumerate(self.nb.cells):
                if index < self._job.first:
                    continue
                self.report(kind="cell-start", cell=index)
                error = ""
                try:
                    self.execute_cell(cell, index, execution_count=None)
                except CellExecutionError as failure:
                    error = str(failure)
                self._finished(index, error)
                if error:
                    break
                if cell.cell_type == "code":
                    self._save_state(index)
            info = self.wait_for_reply(self.kc.kernel_info())
            self.nb.metadata["language_info"] = info["content"]["language_info"]
            self.set_widgets_metadata()

    def _prepare_kernel(self) -> None:
        """Start the kernel fast, and reach it through sockets in a folder of its own, where there are such.

        Kernels that start at the same moment on one machine would take each other's ports, and a port is open to
        everybody there.
        """
        self.create_kernel_manager()
        if in_own_process():
            self.km.provisioner = ForkedKernel(
                kernel_id=self.km.kernel_id, kernel_spec=self.km.kernel_spec, parent=self.km
            )
        if os.name == "posix":
            self.km.transport = "ipc"
            self.km.ip = str(self._states.socket_prefix)

    def _finished(self, index: int, error: str) -> None:
        text = json.dumps(self.nb.cells[index])
        large = ""
        if len(text) > LIVE_BYTES and self._job.state_limit:
            # A notebook that goes on elsewhere needs it there.
            large = str(self._states.cell_file(index))
            Path(large).write_text(text, "utf-8")
        content = text if len(text) <= LIVE_BYTES else ""
        self.report(kind="cell-end", cell=index, error=error, content=content, large=large)

    # ------------------------------------------------------------ the kernel's state

    def _save_state(self, index: int) -> None:
        if not self._states.due(time.monotonic()):
            return
        begun = time.monotonic()
        file = self._states.next_file()
        said = self._ask(f"save({str(file)!r}, {self._folder!r}, {self._job.state_limit})")
        self._states.saved(begun, time.monotonic())
        self.report(kind="state", cell=index + 1, file=str(file), **said)
        if said["bytes"]:
            self._states.wait_until_read(file)

    def _restore(self, state: bytes) -> None:
        for cell in self.nb.cells[: self._job.first]:
            for line in _settings_of(cell):
                self.wait_for_reply(self.kc.execute(line, silent=True, store_history=False))
        file = self._states.next_file()
        file.write_bytes(state)
        self._ask(f"restore({str(file)!r}, {self._folder!r})")

    @property
    def _folder(self) -> str:
        return str(self.resources["metadata"]["path"])

    def _ask(self, call: str) -> dict[str, Any]:
        """Call a function of `notebook_state` in the kernel and return what it returns.

        Raises:
            RuntimeError: it raised, or the kernel has no ComputeMesh.
        """
        expression = f"__import__('computemesh.kernel.notebook_state', fromlist=['save']).{call}"
        sent = self.kc.execute("", silent=True, store_history=False, user_expressions={"said": expression})
        said = self.wait_for_reply(sent)["content"].get("user_expressions", {}).get("said", {})
        if said.get("status") != "ok":
            raise RuntimeError(
                f"The kernel's state cannot be kept: {said.get('ename', 'no answer')}: {said.get('evalue', '')}"
            )
        return dict(ast.literal_eval(said["data"]["text/plain"]) or {})

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


class _States:
    """The files of saved states, of which the newest two are kept, and when it is time for another."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._count = 0
        self._next = 0.0

    def due(self, now: float) -> bool:
        return self._limit > 0 and now >= self._next

    def saved(self, begun: float, ended: float) -> None:
        took = ended - begun
        self._next = ended + AGAIN_AFTER * took if took > CHEAP else ended

    def wait_until_read(self, file: Path) -> None:
        """Wait for the owner to have the state, so that not even the next cell's crash loses it; a large one is not
        waited for."""
        deadline = time.monotonic() + CHEAP
        while not mark_of(file).exists() and time.monotonic() < deadline:
            time.sleep(0.005)

    @property
    def socket_prefix(self) -> Path:
        return self._folder / "k"

    def cell_file(self, index: int) -> Path:
        return self._folder / f"cell-{index}"

    def next_file(self) -> Path:
        self._count += 1
        # The newest may just be read from elsewhere.
        (self._folder / f"state-{self._count - 2}").unlink(missing_ok=True)
        return self._folder / f"state-{self._count}"


def _settings_of(cell: Any) -> list[str]:
    if cell.cell_type != "code":
        return []
    lines = (line.strip() for line in cell.source.splitlines())
    return [line for line in lines if line.startswith("%") and line[1:].split(" ", 1)[0] in SETTINGS]


def execute(job: NotebookJob, state: bytes | None) -> NotebookOutcome:
    """Do what `notebook_job.run_notebook` says."""
    node = node_name()
    running = Interruptible(job.run)
    with (
        tempfile.TemporaryDirectory(prefix="computemesh-notebook-") as folder,
        tempfile.TemporaryDirectory(prefix="computemesh-states-") as states,
    ):
        client = _Reporter(
            job,
            Path(states),
            _environment(Path(states)),
            kernel_name=_kernel_here(job.kernel_name),
            resources={"metadata": {"path": folder}},
            # Not asked to save anything: a stopped notebook must leave no kernel behind.
            shutdown_kernel="immediate",
            **job.options,
        )
        leave = Path(states, "leave")
        client.report(kind="start", node=node, index=0, leave=str(leave) if job.state_limit else "")
        interrupted = False
        try:
            with running.interruptible(None):
                if job.state_limit:
                    _await(leave)
                client.run_cells(state)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            running.finish()
            _end_kernel(client)
    import nbformat

    return NotebookOutcome(nbformat.writes(client.nb), node, client.sent, interrupted)


def _environment(folder: Path) -> dict[str, str]:
    """Return the kernel's environment, in which it uses the mesh as the user that it runs for.

    Where that is refused it finds no mesh at all, never the identity of this machine's owner.
    """
    if not in_task():
        return dict(os.environ)
    home = folder
    try:
        identity = delegated_identity()
    except Refused as refusal:
        logger.warning("The notebook cannot use the mesh itself: %s", refusal)
    else:
        home = identity.folder.parent
        Renewal(identity, ask_again).start()
    return {**os.environ, HOME_VARIABLE: str(home)}


def _await(leave: Path) -> None:
    """Wait until the notebook's owner lets it begin.

    When a node dies Dask runs the task again from its top, where the owner may have a state to go on from: then it
    cancels this run and starts another. Nothing must have run by then.
    """
    deadline = time.monotonic() + LEAVE_SECONDS
    while not leave.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Whoever started this notebook did not answer within {LEAVE_SECONDS:g} s")
        time.sleep(0.01)
    if leave.read_text() == REFUSED:
        raise RuntimeError("The notebook goes on in another run")


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
