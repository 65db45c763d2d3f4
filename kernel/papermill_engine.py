"""``papermill --engine mesh in.ipynb out.ipynb``: the notebook runs on a node, its progress shows here.

What papermill does with a notebook (parameters, progress bar, a save after each cell, the exit code) stays
papermill's own; only the execution happens elsewhere.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from papermill.engines import Engine

logger = logging.getLogger("papermill")

STATE_SUFFIX = ".mesh-state"
"""Added to the output's path: where the kernel's state is kept."""


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
        checkpoint: bool | None = None,
        watch: Callable[[Mapping[str, Any]], None] | None = None,
        stop: threading.Event | None = None,
        **kwargs: Any,
    ) -> None:
        """Run the notebook of `nb_man` on the mesh; called by papermill.

        Args:
            nb_man: papermill's manager of the notebook.
            kernel_name: the kernel to run it with.
            log_output: write what cells print into papermill's log.
            stdout_file: where to write it as well.
            stderr_file: the same for errors.
            start_timeout: seconds for the kernel to start.
            execution_timeout: seconds for each cell.
            checkpoint: keep the kernel's state after cells, so that the notebook goes on where it was when its node
                or its kernel dies, or this process; as configured (``computemesh.notebook.checkpoint``) when None.
            watch: called with each message from the node.
            stop: stops the notebook once it is set.
            kwargs: options of nbclient, as with papermill's own engine.
        """
        import nbformat

        from computemesh import config

        from .connection import current
        from .notebook_follow import Follower, Replayed
        from .notebook_job import NotebookJob
        from .output_router import topic_of

        mesh = current()
        keeps = bool(config.value("notebook.checkpoint")) if checkpoint is None else checkpoint
        state_file = _state_file(nb_man.output_path) if keeps else None
        replayed = Replayed(nb_man, log_output, {"stdout": stdout_file, "stderr": stderr_file})
        if watch is not None:
            replayed.watch = watch
        follower = Follower(mesh, replayed, state_file, _kept(state_file, nb_man.nb), stop)
        follower.follow(
            NotebookJob(
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
        )
        if state_file is not None:
            state_file.unlink(missing_ok=True)


_PASSED = ("allow_errors", "interrupt_on_timeout", "iopub_timeout", "record_timing", "store_widget_state")
"""nbclient's options that may be given to papermill and mean the same on a node."""


def _state_file(output: Any) -> Path | None:
    """Return where the state is kept: beside the output, which must be a file here for that."""
    if not output or "://" in str(output) or str(output) == "-":
        logger.warning("The notebook's state is kept beside its output, which is no file here: it is not kept")
        return None
    return Path(f"{output}{STATE_SUFFIX}")


def _kept(state_file: Path | None, notebook: Any) -> Any:
    from .notebook_keep import read_kept

    kept = read_kept(state_file, notebook) if state_file is not None else None
    if kept is not None:
        logger.warning("The notebook goes on after cell %d, from the state in %s", kept.cell, state_file)
    return kept
