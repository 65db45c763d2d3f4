"""Everything a task may say about how it wants to run: its requirement, and the few keys that ask nothing of a node.

This is what travels as ``__mesh__`` on a decorated function and as ``dask.annotate(mesh={…})``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import BadRequirement
from .requirement import FIELDS, NOTHING, Requirement, most_demanding, requirement_from

EXECUTORS = ("thread", "capsule")
OPTIONS = ("executor", "timeout", "retries")
"""The keys that are no requirement."""

_DURATION = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(s|min|h)?\s*$")
_SECONDS = {None: 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task's wishes, checked; a zero or empty field asks nothing."""

    requirement: Requirement = NOTHING
    executor: str = ""
    """``thread`` or ``capsule``; empty leaves it to the mesh."""
    timeout: float = 0.0
    """Seconds after which a capsule is ended."""
    retries: int = 0

    def __bool__(self) -> bool:
        return self != PLAIN

    def to_spec(self) -> dict[str, Any]:
        """Return what asks something as plain data, which `task_spec_from` reads back."""
        options = {name: getattr(self, name) for name in OPTIONS if getattr(self, name)}
        return {**self.requirement.to_spec(), **options}


PLAIN = TaskSpec()


def task_spec_from(spec: Mapping[str, Any]) -> TaskSpec:
    """Read what a person wrote, such as ``{"cpu": 4, "executor": "capsule", "timeout": "10 min"}``.

    Raises:
        BadRequirement: an unknown key or a value that makes no sense, named in the message.
    """
    if not isinstance(spec, Mapping):
        raise BadRequirement(f"mesh={spec!r} is not usable: give a dict, such as {{'cpu': 4, 'ram': '8GB'}}")
    unknown = sorted(str(name) for name in spec if name not in FIELDS and name not in OPTIONS)
    if unknown:
        raise BadRequirement(f"Unknown requirement {unknown[0]!r}: a task can ask for {', '.join((*FIELDS, *OPTIONS))}")
    requirement = requirement_from({name: value for name, value in spec.items() if name in FIELDS})
    return TaskSpec(
        requirement,
        _executor(spec.get("executor")),
        _timeout(spec.get("timeout")),
        _retries(spec.get("retries")),
    )


def fused(first: TaskSpec, second: TaskSpec) -> TaskSpec:
    """Merge the specs of two tasks that Dask fused into one: the most demanding wins.

    Raises:
        BadRequirement: the two name different pools.
    """
    times = (first.timeout, second.timeout)
    return TaskSpec(
        most_demanding(first.requirement, second.requirement),
        "capsule" if "capsule" in (first.executor, second.executor) else first.executor or second.executor,
        # Both run one after the other, so both their times may pass.
        sum(times) if all(times) else 0.0,
        max(first.retries, second.retries),
    )


def _executor(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or value not in EXECUTORS:
        raise BadRequirement(f"executor={value!r} is not usable: give {' or '.join(map(repr, EXECUTORS))}")
    return value


def _timeout(value: object) -> float:
    if value is None:
        return 0.0
    if isinstance(value, str) and (match := _DURATION.match(value)):
        value = float(match[1]) * _SECONDS[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise BadRequirement(f"timeout={value!r} is not usable: give seconds above 0, such as 30 or '10 min'")
    return float(value)


def _retries(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadRequirement(f"retries={value!r} is not usable: give a whole number, 0 or more")
    return value
