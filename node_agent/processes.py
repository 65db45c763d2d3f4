"""What we ask of the operating system about processes: that they die together, step back, and can be counted."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger("computemesh.node_agent")

LINUX = sys.platform == "linux"
KILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process without asking; Windows knows one way only."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IOPRIO_IDLE = 3 << 13
_IOPRIO_SYSCALL = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273, "s390x": 282}


def die_with_parent(parent: int, number: int = KILL) -> None:
    """Have the kernel send `number` to this process when its parent's starting thread ends (Linux; else pipes do it).

    `parent` is the process that should be it; when that one is already gone, this process ends here.
    """
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends (Linux), so that none escapes it."""
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def step_back(dedicated: bool) -> None:
    """Give this process and its future children low priority against the owner's.

    In a session of its own nice and SCHED_IDLE mean nothing while autogroup is on, so the session's autogroup is
    lowered too. Each step is tried on its own: what the system refuses is left out. A dedicated machine has no owner
    to protect; there the worker only leaves the agent and the system some precedence.
    """
    nice = 5 if dedicated else 19
    if sys.platform == "win32":
        import psutil

        quiet = psutil.BELOW_NORMAL_PRIORITY_CLASS if dedicated else psutil.IDLE_PRIORITY_CLASS
        psutil.Process().nice(quiet)
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
    if not LINUX:
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), "ascii")
    if dedicated:
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    number = _IOPRIO_SYSCALL.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, 1, 0, _IOPRIO_IDLE)


def children_of(process: int) -> list[int]:
    """Return the living and unreaped children of `process`; empty when it is gone."""
    if not LINUX:
        import psutil

        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(process).children()]
        return []
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                found.extend(map(int, (thread / "children").read_bytes().split()))
    except OSError:
        return found  # it ended meanwhile
    return found


def tree_of(root: int) -> Iterator[int]:
    """Yield `root` and all its descendants."""
    waiting = [root]
    while waiting:
        process = waiting.pop()
        yield process
        waiting.extend(children_of(process))


def kill_tree(root: int) -> None:
    """Kill `root` and everything below it, also what was stopped or has left its process group."""
    for process in list(tree_of(root)):
        with contextlib.suppress(OSError):
            os.kill(process, KILL)


def end_children(patience: float) -> None:
    """Kill all children, and what becomes one when its own parent ends, until there is none; POSIX.

    The kernel's list of children may miss some while others end, so only its word that none is left to wait for
    counts. Gives up after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        for process in children_of(os.getpid()):
            kill_tree(process)
        try:
            reaped, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not reaped:
            time.sleep(0.002)
    logger.warning("processes that were killed are still there: %s", children_of(os.getpid()))


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group; one that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """CPU seconds and memory of one process. `cpu` includes what its ended and reaped children used."""

    cpu: float
    memory: int
    group: int


def times_of(process: int) -> ProcessTimes | None:
    """Return what `process` has used so far; None when it is gone."""
    if not LINUX:
        import psutil

        try:
            seen = psutil.Process(process)
            times = seen.cpu_times()
            spent = times.user + times.system
            spent += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            group = os.getpgid(process) if sys.platform != "win32" else process
            return ProcessTimes(spent, seen.memory_info().rss, group)
        except (psutil.Error, OSError):
            return None
    try:
        line = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return None
    # The name may hold blanks and brackets; after its last bracket the fields are plain.
    rest = line[line.rindex(b")") + 2 :].split()
    ticks = sum(map(int, rest[11:15]))
    return ProcessTimes(ticks / _TICKS, int(rest[21]) * _PAGE, int(rest[2]))


_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def forget_peak_memory() -> None:
    """Let this process's peak be counted from now on (Linux; elsewhere it stays that of its whole life)."""
    if LINUX:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", "ascii")


def peak_memory(process: int | str = "self") -> int:
    """Return the largest resident memory of `process` so far in bytes; 0 when it cannot be known.

    Not from `resource.getrusage`: its peak includes that of the process it was forked from.
    """
    if LINUX:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/status").read_bytes().splitlines():
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
        return 0
    import psutil

    with contextlib.suppress(psutil.Error):
        info = psutil.Process(None if process == "self" else int(process)).memory_info()
        return int(getattr(info, "peak_wset", info.rss))
    return 0
