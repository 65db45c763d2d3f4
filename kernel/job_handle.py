"""The handle of a cell's runs: what ``--no-wait`` returns, and what ``_mesh`` is after every cell."""

from __future__ import annotations

import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from computemesh.errors import Interrupted

from .cell_job import Cancelled, CellRun
from .cell_run import Outcome
from .jobs import next_number
from .output_log import RunOutput
from .progress_words import Progress, progress_html, progress_text

Settle = Callable[[Sequence["Outcome | BaseException"]], Any]

_jobs: weakref.WeakValueDictionary[int, MeshJob] = weakref.WeakValueDictionary()
_running: dict[int, MeshJob] = {}
"""Nobody else need hold a job that runs."""


class MeshJob:
    """The runs of one cell.

    Attributes:
        number: counts this notebook's jobs, those of `mesh.jobs` too; `%mesh cancel NUMBER` takes it.
        title: the cell's line, or its first line of code.
        names: the names that the cell bound, once `result` has been called.
    """

    def __init__(self, run: CellRun, settle: Settle, title: str) -> None:
        self.number = next_number()
        self.title = title
        self.names: dict[str, Any] = {}
        self._run = run
        self._settle = settle
        self._outcomes: Sequence[Outcome | BaseException] = ()
        self._stopped: BaseException | None = None
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._settled = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._displays: list[str] = []
        self._publish: Callable[[Mapping[str, Any], str], None] | None = None
        _jobs[self.number] = self

    # ------------------------------------------------------------ running

    def run_here(self) -> Any:
        """Start, wait, and return the value: the waiting form of a cell."""
        self._run.start()
        _running[self.number] = self
        try:
            self._outcomes = self._run.outcomes()
        except Cancelled as error:
            self._stopped = error
        except BaseException as error:
            self._stopped = error
            raise
        finally:
            _running.pop(self.number, None)
            self._ended.set()
        return self.result()

    def run_behind(self, publish: Callable[[Mapping[str, Any], str], None] | None) -> None:
        """Start, and wait in a thread; `publish` renews a display of the handle by its id."""
        self._publish = publish
        self._run.start()
        _running[self.number] = self
        threading.Thread(target=self._watch, name=f"computemesh-job-{self.number}", daemon=True).start()

    def _watch(self) -> None:
        try:
            self._outcomes = self._run.outcomes()
        except BaseException as error:  # it is raised where the result is asked for
            self._stopped = error
        finally:
            _running.pop(self.number, None)
            self._ended.set()
            self.renew()

    def renew(self, _progress: Progress | None = None) -> None:
        """Renew the displays of this handle."""
        if self._publish is not None:
            for identity in list(self._displays):
                self._publish(self._bundle(), identity)

    # ------------------------------------------------------------ what the user asks

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the runs, bind their names in the notebook, and return the value as a waiting cell would.

        Raises:
            TimeoutError: they did not end within `timeout` seconds; they go on.
            Interrupted: the job was cancelled.
            Exception: what the cell raised; `MeshError` when several runs did.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(f"Job {self.number} has not ended within {timeout:g} s; it goes on: {self._said()}")
        with self._lock:
            if not self._settled:
                try:
                    if self._stopped is not None:
                        raise self._why_stopped()  # noqa: TRY301 - kept for the next who asks
                    self._value = self._settle(self._outcomes)
                except Exception as error:
                    self._error = error
                # Not when an interrupt has come between: then the next who asks settles it.
                self._settled = True
                self._outcomes = ()
                if self._publish is not None:
                    _renew_here(self)
            if self._error is not None:
                raise self._error
            return self._value

    def cancel(self) -> None:
        """Stop the runs: what waits does not start, what runs is interrupted, and ended if it does not stop."""
        if not self.done():
            self._run.cancel()

    def done(self) -> bool:
        """Return whether all runs have ended."""
        return self._ended.is_set()

    @property
    def status(self) -> str:
        """``waiting``, ``running``, ``finished``, ``failed`` or ``cancelled``."""
        if not self.done():
            return "running" if self._run.output.nodes else "waiting"
        if self._stopped is not None:
            return "cancelled" if isinstance(self._stopped, KeyboardInterrupt | Cancelled) else "failed"
        return "failed" if self._run.progress().failed or self._error is not None else "finished"

    @property
    def nodes(self) -> dict[int, str]:
        """The node of each run that has started, by the run's number."""
        return dict(self._run.output.nodes)

    @property
    def keys(self) -> list[str]:
        """The Dask keys of the runs, as `mesh.why` takes them."""
        return self._run.keys

    @property
    def key(self) -> str:
        """The Dask key of the first run."""
        return self._run.keys[0]

    def output(self, run: int | None = None) -> RunOutput:
        """Return all that a run has printed, or that all have: also what was not shown."""
        return self._run.output.log.text(run, self.nodes)

    def _why_stopped(self) -> BaseException:
        if isinstance(self._stopped, KeyboardInterrupt | Cancelled):
            from .traceback_text import Rendered

            error = Interrupted(f"Job {self.number} was cancelled, and what it had bound is lost")
            error._render_traceback_ = Rendered([f"Interrupted: {error}"])  # type: ignore[attr-defined]
            return error
        assert self._stopped is not None  # noqa: S101 - for the type checker
        return self._stopped

    # ------------------------------------------------------------ how it shows

    def _said(self) -> str:
        progress = self._run.progress()
        if not self.done():
            return progress_text(progress)
        runs = f"{self._run.total} runs" if self._run.total > 1 else "1 run"
        where = ", ".join(sorted(set(self.nodes.values())))
        failed = f", {progress.failed} failed" if progress.failed else ""
        ask = "" if self._settled or self._publish is None else "; .result() binds its names and returns its value"
        return f"{runs}{f' on {where}' if where else ''}{failed}{ask}"

    def __repr__(self) -> str:
        return f"<MeshJob {self.number}: {self.status}, {self._said()}>"

    def _bundle(self) -> dict[str, Any]:
        shown = f"<small>{escape(self._said())}</small>" if self.done() else progress_html(self._run.progress())
        title = escape(f"Job {self.number}: {self.status}")
        return {
            "text/plain": repr(self),
            "text/html": f"<div role='status'><b>{title}</b> · <code>{escape(self.title)}</code><br>{shown}</div>",
        }

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self._bundle()

    def _ipython_display_(self) -> None:
        """Show itself under an id, so that it can be renewed while it runs."""
        if not _in_kernel():
            print(repr(self))
            return
        from IPython.display import publish_display_data

        identity = uuid.uuid4().hex
        publish_display_data(self._bundle(), {}, transient={"display_id": identity})
        self._displays.append(identity)
        if self.done():
            self.renew()


def _renew_here(job: MeshJob) -> None:
    """Renew the displays from the cell that asked for the result: runners such as nbclient listen to that one only."""
    if not _in_kernel():
        return
    from IPython.display import publish_display_data

    for identity in job._displays:
        publish_display_data(job._bundle(), {}, transient={"display_id": identity}, update=True)


def _in_kernel() -> bool:
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")


def jobs() -> list[MeshJob]:
    """Return this notebook's jobs that run or that somebody still holds, oldest first."""
    return [job for _, job in sorted({**dict(_jobs), **_running}.items())]
