"""``mesh batch *.ipynb --out DIR``: runs many notebooks on the mesh, each by papermill, and says how each went."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from computemesh.errors import BadConfiguration

SUMMARY = "summary.json"
PAGE = "index.html"
MOST_AT_ONCE = 64
"""Notebooks that are handed to the mesh at a time unless said otherwise; the mesh queues what it has no room for."""
TICK = 0.25
"""Seconds between looks at what has changed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One notebook to run."""

    source: Path
    target: Path
    digest: str
    """Of its text and its parameters: by this a resumed batch knows that it is the same."""

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return self.source.name


@dataclass(frozen=True, slots=True)
class Wishes:
    """How all of them are run."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    kernel: str | None = None
    timeout: int | None = None
    """Seconds for each cell."""
    at_once: int = MOST_AT_ONCE
    retries: int = 0
    checkpoint: bool = False


@dataclass(slots=True)
class Row:
    """How one notebook goes; `state` is waiting, running, done, failed or stopped."""

    name: str
    output: str
    state: str = "waiting"
    cell: int = 0
    cells: int = 0
    nodes: list[str] = field(default_factory=list)
    """Where it ran, in order."""
    started: float = 0.0
    """Monotonic seconds."""
    seconds: float = 0.0
    attempts: int = 0
    error: str = ""
    earlier: bool = False
    """It was done by an earlier batch."""
    digest: str = ""


def plans_of(notebooks: Sequence[Path], out: Path, parameters: Mapping[str, Any]) -> list[Plan]:
    """Return what is to be run.

    Raises:
        BadConfiguration: a notebook cannot be read, two would write the same output, or one would overwrite itself.
    """
    plans: dict[Path, Plan] = {}
    for source in notebooks:
        target = out / source.name
        if target in plans:
            raise BadConfiguration(
                f"{plans[target].source} and {source} would both be written to {target}: run them with different --out"
            )
        if target.resolve() == source.resolve():
            raise BadConfiguration(f"{source} would be overwritten by its own output: choose another --out")
        try:
            text = source.read_bytes()
            json.loads(text)["cells"]
        except OSError as error:
            raise BadConfiguration(f"{source} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise BadConfiguration(f"{source} is no notebook") from None
        asked = json.dumps(parameters, sort_keys=True, default=str).encode()
        plans[target] = Plan(source, target, hashlib.sha256(text + asked).hexdigest()[:32])
    return list(plans.values())


def done_before(out: Path, plans: Sequence[Plan]) -> dict[Path, Row]:
    """Return by output what an earlier batch in `out` has done of the same notebooks with the same parameters."""
    try:
        rows = [Row(**entry) for entry in json.loads((out / SUMMARY).read_text("utf-8"))["notebooks"]]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    by_digest = {(row.output, row.digest): row for row in rows if row.state == "done"}
    found = {plan.target: by_digest.get((plan.target.name, plan.digest)) for plan in plans if plan.target.exists()}
    return {target: row for target, row in found.items() if row is not None}


class Batch:
    """Runs plans; `watch` is called with all rows whenever something has changed, in the thread of `run`."""

    def __init__(
        self, plans: Sequence[Plan], wishes: Wishes, out: Path, earlier: Mapping[Path, Row], watch: Callable[[], None]
    ) -> None:
        self._plans, self._wishes, self._out, self._watch = plans, wishes, out, watch
        self.rows = [earlier.get(plan.target) or _waiting(plan) for plan in plans]
        for row in self.rows:
            row.earlier = row.state == "done"
        self.stop = threading.Event()

    def run(self) -> None:
        """Run all that is not done. Rows, outputs and the summary are whole at any moment.

        Raises:
            KeyboardInterrupt: all notebooks were stopped and saved.
        """
        self._out.mkdir(parents=True, exist_ok=True)
        logging.getLogger("papermill").setLevel(logging.ERROR)
        todo = [(plan, row) for plan, row in zip(self._plans, self.rows, strict=True) if not row.earlier]
        with ThreadPoolExecutor(max(1, min(self._wishes.at_once, len(todo))), "notebook") as pool:
            running = [pool.submit(self._one, plan, row) for plan, row in todo]
            try:
                self._wait(running)
            except BaseException:
                self.stop.set()
                for future in running:
                    future.cancel()
                wait(running)
                raise
            finally:
                self._save()
                self._watch()
        for future in running:
            future.result()

    def _wait(self, running: Sequence[Any]) -> None:
        left = set(running)
        while left:
            ended, left = wait(left, timeout=TICK)
            if ended:
                self._save()
            self._watch()

    def _one(self, plan: Plan, row: Row) -> None:
        from .notebook_follow import Stopped

        row.started = time.monotonic()
        for attempt in range(1, self._wishes.retries + 2):
            row.attempts, row.cell, row.error = attempt, 0, ""
            try:
                self._papermill(plan, row)
            except Stopped:
                row.state = "stopped"
            except Exception as error:  # whatever it was, it is this notebook's
                row.state, row.error = "failed", error_text(error)
            else:
                row.state = "done"
            row.seconds = time.monotonic() - row.started
            if row.state != "failed" or self.stop.is_set():
                return

    def _papermill(self, plan: Plan, row: Row) -> None:
        import papermill

        def watch(message: Mapping[str, Any]) -> None:
            if message["kind"] == "start":
                row.state = "running"
                row.nodes.append(message["node"])
            elif message["kind"] in ("cell-start", "cell-end"):
                row.cell = message["cell"] + (message["kind"] == "cell-end")

        row.cells = len(json.loads(plan.source.read_text("utf-8"))["cells"]) + bool(self._wishes.parameters)
        papermill.execute_notebook(
            plan.source,
            plan.target,
            dict(self._wishes.parameters),
            engine_name="mesh",
            kernel_name=self._wishes.kernel,
            progress_bar=False,
            execution_timeout=self._wishes.timeout,
            checkpoint=self._wishes.checkpoint,
            watch=watch,
            stop=self.stop,
        )

    def _save(self) -> None:
        from .batch_page import page, plain_rows

        for name, text in (
            (SUMMARY, json.dumps({"notebooks": plain_rows(self.rows)}, indent=1)),
            (PAGE, page(self.rows)),
        ):
            unfinished = self._out / f".{name}.part"
            unfinished.write_text(text, "utf-8")
            unfinished.replace(self._out / name)


def error_text(error: BaseException) -> str:
    """Return one line for the table: what the notebook's own code raised, or what stopped it."""
    name = getattr(error, "ename", "")
    if name:
        return f"cell {getattr(error, 'exec_count', '?')}: {name}: {getattr(error, 'evalue', '')}".splitlines()[0]
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


def _waiting(plan: Plan) -> Row:
    return Row(plan.name, plan.target.name, digest=plan.digest)
