"""What the end of a capsule means for its task: one pure decision over how it ended and what was asked of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

from computemesh.errors import ComputeMeshError, Interrupted, TaskDied


class Wish(StrEnum):
    """Why somebody wanted a task to end before its time."""

    NONE = ""
    CANCEL = "cancel"
    """The scheduler no longer wants the key here."""
    INTERRUPT = "interrupt"
    """The user interrupted it."""
    KILL = "kill"
    """The user, or an administrator, ended it at once."""
    TIMEOUT = "timeout"
    """It ran out of its time."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The capsule sent a value."""


@dataclass(frozen=True, slots=True)
class Unwound:
    """A KeyboardInterrupt went through the task's frames."""

    traceback: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """The capsule lives but has no value to send."""

    why: str


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended without a word; `code` as in `subprocess`: negative for a signal, None when unknown."""

    code: int | None


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """It was still waiting for a capsule."""


End = Returned | Unwound | Unusable | Died | NeverStarted


@dataclass(frozen=True, slots=True)
class Deliver:
    """The task finished; hand on what it sent."""


@dataclass(frozen=True, slots=True)
class Reschedule:
    """The scheduler decides anew; nothing is to be blamed."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The task erred with `error`."""

    error: ComputeMeshError


Verdict = Deliver | Reschedule | Fail

LOST = "what it had bound is lost"


def verdict(end: End, wish: Wish, node: str, limit: float | None, grace: float) -> Verdict:
    """Decide what a task's end means.

    `limit` is the task's own time limit in seconds, `grace` how long it was given after an interrupt.
    """
    if wish is Wish.CANCEL:
        return Reschedule()
    if isinstance(end, Returned):
        return Deliver()
    if isinstance(end, NeverStarted):
        return Fail(Interrupted(f"Interrupted on {node} before it had started"))
    if isinstance(end, Unusable):
        return Fail(TaskDied(f"The task on {node} {end.why}"))
    if isinstance(end, Unwound):
        if wish is Wish.TIMEOUT:
            return Fail(Interrupted(f"Ran out of its time on {node}: stopped after {limit:g} s"))
        if wish is Wish.NONE:
            return Fail(Interrupted(f"The task on {node} raised KeyboardInterrupt by itself"))
        return Fail(Interrupted(f"Interrupted on {node}"))
    if wish is Wish.INTERRUPT:
        return Fail(Interrupted(f"Interrupted on {node}; it did not stop within {grace:g} s and was ended: {LOST}"))
    if wish is Wish.KILL:
        return Fail(Interrupted(f"Ended on {node} at once, as asked: {LOST}"))
    if wish is Wish.TIMEOUT:
        text = f"Ran out of its time on {node}: after {limit:g} s it did not stop within {grace:g} s and was ended"
        return Fail(Interrupted(f"{text}: {LOST}"))
    return Fail(TaskDied(f"The task's process on {node} {how_it_died(end.code)}"))


def how_it_died(code: int | None) -> str:
    """Return an exit code in words, such as ``was killed by SIGSEGV (…)``."""
    if code is None:
        return "is gone without a result"
    if code >= 0:
        return f"ended with exit code {code} before it had a result (os._exit, or a library that ends the process)"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = _HINTS.get(name, "")
    return f"was killed by {name}{hint}"


_HINTS = {
    "SIGKILL": ": most often the node was out of memory; else somebody ended it there",
    "SIGSEGV": ": compiled code touched memory that is not its own",
    "SIGBUS": ": compiled code read a file or memory that is no longer there",
    "SIGILL": ": compiled code uses instructions that this node's CPU does not have",
    "SIGABRT": ": compiled code called abort()",
    "SIGFPE": ": compiled code divided by zero",
}
