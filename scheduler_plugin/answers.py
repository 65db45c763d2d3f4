"""What may be asked of the scheduler: why a task is where it is, the nodes, and signals to running capsules."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from typing import Any

from dask.utils import key_split

from computemesh.protocol import CAPSULE_SIGNAL, plain
from computemesh.requirement import NOTHING
from computemesh.scores import Score

from .needs import Need, Needs, Refused
from .placements import Placed, Placements
from .roster import Place, Roster
from .shadows import Shadows
from .why import (
    asked_in_words,
    parts_of,
    reasons_against,
    sentence,
    unschedulable_sentence,
)

SIGNALS = ("interrupt", "kill")


class Answers:
    """Scheduler handlers ``mesh_why``, ``mesh_nodes``, ``mesh_tasks`` and ``mesh_capsule_signal``."""

    def __init__(
        self,
        scheduler: Any,
        roster: Roster,
        needs: Needs,
        placements: Placements,
    ) -> None:
        self._scheduler, self._roster, self._needs, self._placements = (
            scheduler,
            roster,
            needs,
            placements,
        )

    def install(self, shadows: Shadows) -> None:
        """Add the handlers."""
        for name, method in (
            ("mesh_why", self.why),
            ("mesh_nodes", self.nodes),
            ("mesh_tasks", self.tasks),
            ("mesh_capsule_signal", self.capsule_signal),
        ):
            shadows.entry(self._scheduler.handlers, name, method)

    def placements(self, count: int) -> list[dict[str, Any]]:
        """Return the newest `count` placements that are remembered, oldest first."""
        found = [
            {"key": str(key), "prefix": key_split(key), "node": node, "when": when}
            for key, (node, _, _, when, _) in self._placements.newest(count)
        ]
        return found[::-1]

    def why(self, key: Any) -> dict[str, Any]:
        """Explain one task's placement; see `sentence` in the answer first."""
        key = self._known(key)
        ts = self._scheduler.tasks.get(key)
        placed = self._placements.get(key)
        state = ts.state if ts is not None else ("forgotten" if placed is not None else "unknown")
        need = self._needs.of.get(key)
        if isinstance(need, Refused):
            text = f"{key} was refused: {need.error}"
            return {"key": str(key), "state": state, "requirement": {}, "chosen": None, "eligible": [],
                    "excluded": [], "sentence": text}  # fmt: skip
        requirement = need.spec.requirement if need is not None else None
        eligible, excluded, possible = self._candidates(need)
        return {
            "key": str(key),
            "state": state,
            "requirement": need.spec.to_spec() if need is not None else {},
            "chosen": None if placed is None else _chosen(placed),
            "eligible": eligible,
            "excluded": excluded,
            "sentence": sentence(
                str(key),
                state,
                requirement or NOTHING,
                placed[0] if placed is not None and state not in ("no-worker", "queued", "waiting") else "",
                len(eligible),
                len(excluded),
                possible,
                self._roster.nodes.values(),
            ),
        }

    def _known(self, key: Any) -> Any:
        """A person types a key as text; Dask's may be a tuple."""
        if isinstance(key, list):
            key = tuple(key)
        if key in self._scheduler.tasks or not (isinstance(key, str) and key.startswith("(")):
            return key
        try:
            read = ast.literal_eval(key)
            hash(read)
        except (ValueError, SyntaxError, TypeError):
            return key
        return read

    def _candidates(self, need: Need | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
        requirement = need.spec.requirement if need is not None else NOTHING
        eligible: list[tuple[float, dict[str, Any]]] = []
        excluded: list[dict[str, Any]] = []
        possible = False
        for place in self._roster.places.values():
            reasons, could = reasons_against(requirement, place.node, place.gates, place.free)
            if need is not None and place.worker not in self._needs.eligible(need) and could:
                reasons.append("has no capsules")
                could = False
            possible = possible or could
            if not reasons and place.worker.status.name != "running":
                reasons.append(f"its worker is {place.worker.status.name}")
            if reasons:
                excluded.append({"node": place.name, "reasons": reasons})
            else:
                order = place.score.order if place.score is not None else 1.0
                about = {
                    "node": place.name,
                    "order": round(order, 4),
                    "parts": parts_of(place.score),
                }
                eligible.append((-order, {**about, "penalty": round(place.penalty, 4)}))
        standing = {place.name for place in self._roster.places.values()}
        excluded.extend(
            {"node": name, "reasons": ["has no worker"]} for name in self._roster.nodes if name not in standing
        )
        possible = possible or (need is not None and self._needs.possible(need))
        return (
            [entry for _, entry in sorted(eligible, key=lambda pair: pair[0])],
            excluded,
            possible,
        )

    def nodes(self) -> list[dict[str, Any]]:
        """Return every worker with what is known of its node."""
        return [self._about(place) for place in self._roster.places.values()]

    def _about(self, place: Place) -> dict[str, Any]:
        ws = place.worker
        return {
            "node": place.name,
            "address": place.address,
            "status": ws.status.name,
            "known": place.node is not None,
            "gates": list(place.gates),
            "score": parts_of(place.score),
            "penalty": round(place.penalty, 4),
            "slowness": round(place.slowness, 4),
            "threads": ws.nthreads,
            "processing": len(ws.processing),
            "executors": list(place.executors),
            "free": plain(place.free),
            "holds": {str(key): hold.requirement.to_spec() for key, hold in place.holds.items()},
        }

    def tasks(self) -> dict[str, Any]:
        """Return how many tasks are in each state, and what can run nowhere."""
        states: Counter[str] = Counter()
        for group in self._scheduler.task_groups.values():
            states.update(group.states)
        unschedulable = [
            {
                "requirement": need.spec.to_spec(),
                "asks": asked_in_words(need.spec.requirement),
                "tasks": need.tasks,
                "sentence": unschedulable_sentence(need.spec.requirement, self._roster.nodes.values()),
            }
            for need in self._needs.kinds()
            if need.told
        ]
        return {
            "states": {name: count for name, count in states.items() if count},
            "unschedulable": unschedulable,
        }

    def running(self) -> dict[str, Any]:
        """Return how many tasks run, by node, and how many wait for a free or fitting node.

        Cheap on purpose: screens have it asked once a second. What runs is known from the workers' heartbeats.
        """
        running: Counter[str] = Counter()
        for place in self._roster.places.values():
            # A heartbeat is up to seconds old: what has ended since is not in `processing` any more.
            running[place.name] += min(len(place.worker.executing), len(place.worker.processing))
        waiting = len(self._scheduler.queued) + len(self._scheduler.unrunnable)
        return {"running": {name: count for name, count in running.items() if count}, "waiting": waiting}

    def capsule_signal(self, keys: Iterable[Any], how: str) -> list[Any]:
        """Pass a signal on to the capsules that run `keys`; return the keys that it was sent for.

        Only workers that advertise capsules are sent anything: an unknown operation ends a Dask worker.
        """
        if how not in SIGNALS:
            raise ValueError(f"how={how!r} is not usable: give {' or '.join(SIGNALS)}")
        sent = []
        for key in keys:
            ts = self._scheduler.tasks.get(key)
            ws = ts.processing_on if ts is not None else None
            place = self._roster.places.get(ws.address) if ws is not None else None
            if place is not None and "capsule" in place.executors:
                self._scheduler.worker_send(place.address, {"op": CAPSULE_SIGNAL, "key": key, "how": how})
                sent.append(key)
        return sent


def _chosen(placed: Placed) -> dict[str, Any]:
    node, parts, penalty, when, compared = placed
    return {
        "node": node,
        "parts": parts_of(Score(*parts) if parts else None),
        "penalty": round(penalty, 4),
        "when": when,
        "compared": compared,
    }
