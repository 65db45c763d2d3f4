"""What happens to tasks that ask for something: read when their graph comes, started when there is room, refused at
once when what they ask makes no sense, and spoken of when no node can ever run them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from distributed.protocol import pickle as dask_pickle

from computemesh.errors import BadRequirement
from computemesh.task_spec import TaskSpec

from .needs import Need, Needs, Refused
from .reading import Reader
from .roster import Roster
from .why import unschedulable_sentence

logger = logging.getLogger("computemesh.scheduler_plugin")

Report = Callable[[str, str, str, dict[str, Any]], None]
"""Called with kind, text, node and data of what belongs into the journal."""

_UNPLACED = frozenset({"released", "waiting", "no-worker"})


class Constrained:
    """Constrained tasks on one scheduler. `soon` asks for a turn of ``waiting`` or ``refused`` in the loop's next."""

    def __init__(
        self,
        scheduler: Any,
        roster: Roster,
        needs: Needs,
        report: Report,
        soon: Callable[[str], None],
    ) -> None:
        self._scheduler, self._roster, self._needs = scheduler, roster, needs
        self._report, self._soon = report, soon
        self._reader = Reader()
        self._stock_bulk = scheduler.bulk_schedule_unrunnable_after_adding_worker

    # ------------------------------------------------------------ a graph comes

    def read(self, keys: Iterable[Any]) -> None:
        """Read what tasks that are not placed yet ask for."""
        known = self._scheduler.tasks
        spec_of = self._reader.spec_of
        for key in keys:
            ts = known[key]
            if ts.run_spec is None or ts.state not in _UNPLACED:
                continue
            try:
                spec = spec_of(ts.run_spec, ts.annotations)
            except BadRequirement as error:
                self._needs.refuse(key, error)
                self._soon("refused")
                continue
            if spec:
                self._take(ts, spec)

    def _take(self, ts: Any, spec: TaskSpec) -> None:
        if spec.retries and not ts.retries:
            ts.retries = spec.retries
        if spec.timeout:
            # The capsule executor reads it there.
            annotations = ts.annotations or {}
            ts.annotations = {
                **annotations,
                "mesh": {**annotations.get("mesh", {}), "timeout": spec.timeout},
            }
        if spec.requirement or spec.executor == "capsule":
            self._say_if_unschedulable(self._needs.enter(ts.key, spec, slotted=not ts.dependencies))
            if ts.state == "no-worker":
                # A later graph names it and asks for something else: its old place in a queue is gone.
                self._needs.wait(ts.key, ts.priority)
                self._soon("waiting")

    def look_again(self) -> None:
        """Nodes have changed: say what can run nowhere now."""
        for need in self._needs.kinds():
            self._say_if_unschedulable(need)

    def _say_if_unschedulable(self, need: Need) -> None:
        if not need.spec.requirement or self._needs.possible(need):
            need.told = False
        elif not need.told:
            need.told = True
            text = f"A task {unschedulable_sentence(need.spec.requirement, self._roster.nodes.values())}"
            logger.warning("%s; it waits until such a node joins", text)
            self._report("unschedulable", text, "", {"requirement": need.spec.to_spec()})

    # ------------------------------------------------------------ a task takes a step

    def step(self, key: Any, start: str, finish: str) -> None:
        """A constrained task went from `start` to `finish`."""
        ts = self._scheduler.tasks[key]
        # An actor lives on where it was made, and so does what it holds.
        if finish not in ("processing", "memory") or (start == "processing" and not ts.actor):
            for place in self._needs.release(key):
                self._scheduler.check_idle_saturated(place.worker)
        if start == "no-worker":
            self._needs.go(key)
        if finish == "no-worker":
            if isinstance(self._needs.of[key], Refused):
                self._soon("refused")
            else:
                self._needs.wait(key, ts.priority)
        elif finish == "forgotten":
            self._needs.leave(key)

    def start_waiting(self) -> None:
        """Start what waits and has room now, by priority."""
        s = self._scheduler
        stimulus = f"mesh-room-{time.time()}"

        def startable(key: Any) -> bool:
            ts = s.tasks.get(key)
            return ts is not None and ts.state == "no-worker"

        if self._needs.waiting:
            for key in self._needs.heads(startable):
                s.transitions({key: "processing"}, stimulus)

    def fail_refused(self) -> None:
        """Let tasks fail whose spec makes no sense; in the hook that read it Dask does not allow that yet."""
        s = self._scheduler
        for key, refused in list(self._needs.of.items()):
            ts = s.tasks.get(key)
            if not isinstance(refused, Refused) or ts is None or ts.state not in ("no-worker", "waiting"):
                continue
            exception, text = dask_pickle.dumps(refused.error), str(refused.error)
            stimulus = f"mesh-refused-{time.time()}"
            if ts.state == "no-worker":
                s.transition(
                    key,
                    "erred",
                    cause=key,
                    exception=exception,
                    exception_text=text,
                    stimulus_id=stimulus,
                )
            else:
                ts.exception, ts.exception_text, ts.exception_blame = (
                    exception,
                    text,
                    ts,
                )
                s.transitions({key: "erred"}, stimulus)

    def bulk_schedule(self, ws: Any) -> dict[Any, str]:
        """Shadow of Dask's: which waiting tasks a new worker may take; constrained ones start from their own heaps."""
        if not self._needs.waiting:
            found: dict[Any, str] = self._stock_bulk(ws)
            return found
        self._soon("waiting")
        s = self._scheduler
        if len(self._needs.waiting) == len(s.unrunnable):
            return {}
        runnable = [ts for ts in s.unrunnable if ts.key not in self._needs.of]
        runnable = [ts for ts in runnable if (valid := s.valid_workers(ts)) is None or ws in valid]
        runnable.sort(key=lambda ts: ts.priority, reverse=True)
        return {ts.key: "processing" for ts in runnable}
