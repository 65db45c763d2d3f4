"""Logs in the home's ``logs`` folder, rotated so that they never fill a disk."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path

LARGEST_BYTES = 5_000_000
KEPT = 3
_LINE = "%(asctime)s %(levelname)s %(message)s"


def log_to(folder: Path, on_stderr: bool) -> None:
    """Send this process's log to ``agent.log`` in `folder`, and to stderr as well when `on_stderr`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        logging.handlers.RotatingFileHandler(
            folder / "agent.log", maxBytes=LARGEST_BYTES, backupCount=KEPT, encoding="utf-8"
        )
    ]
    if on_stderr:
        handlers.append(logging.StreamHandler(sys.stderr))
    logging.basicConfig(format=_LINE, level=logging.INFO, handlers=handlers, force=True)


class OutputLog:
    """Keeps what a child process writes, as bytes, in a rotated file."""

    def __init__(self, file: Path, largest: int = LARGEST_BYTES, kept: int = KEPT) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = file
        self._largest = largest
        self._kept = kept
        self._stream = file.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append `data`, beginning a new file when this one is full."""
        if self._stream.tell() > 0 and self._stream.tell() + len(data) > self._largest:
            self._rotate()
        self._stream.write(data)

    def _rotate(self) -> None:
        self._stream.close()
        for number in range(self._kept, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._stream = self._file.open("ab", buffering=0)

    def _numbered(self, number: int) -> Path:
        return self._file if number == 0 else self._file.with_name(f"{self._file.name}.{number}")

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
