"""Locks between processes that the system takes back when their holder ends, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class HeldElsewhere(Exception):
    """Another process holds the lock.

    Attributes:
        holder: its process id as text, empty when unknown.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by process {holder or '?'}")
        self.holder = holder


@contextmanager
def held(file: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock `file` within the block; with `wait`, until others have released it.

    Raises:
        HeldElsewhere: another process holds it, and `wait` is not set.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            _lock(descriptor, wait)
        except OSError:
            raise HeldElsewhere(os.read(descriptor, 32).decode("ascii", "replace").strip()) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> None:
    if sys.platform == "win32":
        import msvcrt

        # LK_LOCK tries for ten seconds, which is longer than anybody here holds a lock that others wait for.
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
