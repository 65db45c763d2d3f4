"""Freezes, thaws and ends everything of the mesh that runs on this machine.

Freezing is SIGSTOP over the whole tree of processes (`psutil.suspend` where there are no signals): it needs no rights
and holds within milliseconds. A stopped process is still killed with its parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator

from .processes import LINUX, tree_of

PASSES = 20
"""Looks at the tree until no process in it is new; a process that forks faster than that is stopped itself before."""


def freeze(roots: Iterable[int], but: frozenset[int] = frozenset()) -> set[int]:
    """Stop the trees below `roots`, but for the processes `but` themselves; return whom it stopped."""
    stopped: set[int] = set()
    asked = list(roots)
    for _ in range(PASSES):
        new = [process for root in asked for process in tree_of(root) if process not in stopped | but]
        if not new:
            break
        for process in new:
            _stop(process)
            stopped.add(process)
    return stopped


def thaw(root: int) -> None:
    """Let the tree below `root` go on, the leaves first: whoever goes on finds its children awake."""
    for process in reversed(list(tree_of(root))):
        _go_on(process)


def frozen(root: int, but: frozenset[int] = frozenset()) -> bool:
    """Return whether every process below `root` stands still; Linux."""
    return all(state_of(process) in "TtZXx" for process in tree_of(root) if process not in but)


def state_of(process: int) -> str:
    """Return the kernel's letter for the state of a process; X when it is gone."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 - asked a thousand times a second
            line = file.read()
    except OSError:
        return "X"
    return chr(line[line.rindex(b")") + 2])


def _stop(process: int) -> None:
    with contextlib.suppress(OSError):
        if LINUX or hasattr(signal, "SIGSTOP"):
            os.kill(process, signal.SIGSTOP)
        else:
            _psutil(process, "suspend")


def _go_on(process: int) -> None:
    with contextlib.suppress(OSError):
        if LINUX or hasattr(signal, "SIGCONT"):
            os.kill(process, signal.SIGCONT)
        else:
            _psutil(process, "resume")


def _psutil(process: int, what: str) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        getattr(psutil.Process(process), what)()


def below(root: int) -> Iterator[int]:
    """Yield what runs below `root`, without it."""
    tree = tree_of(root)
    next(tree, None)
    yield from tree
