"""One agent per home: a lock that the system takes back when its holder ends, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from computemesh.errors import BadConfiguration


def hold_lock(file: Path) -> int:
    """Take the lock, and return the open descriptor that holds it.

    Raises:
        BadConfiguration: another process holds it.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise BadConfiguration(
            f"Another agent runs with the home {file.parent.parent}"
            f"{f' (process {holder})' if holder else ''}: stop it, or give this one its own --home"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor
