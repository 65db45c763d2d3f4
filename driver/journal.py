"""The journal: an append-only list of records in SQLite, durable when `append` returns.

The interface is narrow on purpose (append, read since, snapshot), so that other backends can stand behind it. Every
record carries the term of the driver that wrote it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from computemesh.errors import BadConfiguration

from .books import Record

KEPT = 100_000
"""Most records that are kept behind the newest snapshot."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    term INTEGER NOT NULL,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    node TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS records_node ON records (node, sequence);
CREATE TABLE IF NOT EXISTS snapshot (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    sequence INTEGER NOT NULL,
    books TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class Journal:
    """The SQLite backend, for one driver."""

    def __init__(self, file: Path, kept: int = KEPT) -> None:
        self._kept = kept
        self._since_snapshot = 0
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            self._base = sqlite3.connect(file)
            self._base.execute("PRAGMA journal_mode=WAL")
            # FULL: a record that was acknowledged survives a power cut.
            self._base.execute("PRAGMA synchronous=FULL")
            self._base.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise BadConfiguration(
                f"The journal {file} cannot be used ({error}): restore it from a backup, or move it away to start "
                "with empty books"
            ) from None

    def lead(self) -> int:
        """Begin a new term and return it. One driver a home is ensured by the lock on the home."""
        with self._base:
            row = self._base.execute("SELECT value FROM about WHERE name = 'term'").fetchone()
            term = int(row[0]) + 1 if row else 1
            self._base.execute("INSERT OR REPLACE INTO about VALUES ('term', ?)", (str(term),))
        return term

    def append(self, term: int, time: float, kind: str, text: str, node: str, data: dict[str, Any]) -> Record:
        """Write one record; it is on disk when this returns."""
        with self._base:
            cursor = self._base.execute(
                "INSERT INTO records (term, time, kind, text, node, data) VALUES (?, ?, ?, ?, ?, ?)",
                (term, time, kind, text, node, json.dumps(data)),
            )
        self._since_snapshot += 1
        assert cursor.lastrowid is not None  # noqa: S101 - an INSERT has one
        return Record(cursor.lastrowid, time, kind, text, node, data)

    def read(self, since: int = 0, limit: int = -1, node: str = "") -> Iterator[Record]:
        """Yield the records after sequence number `since`, oldest first, at most `limit` (-1: all)."""
        query = "SELECT sequence, time, kind, text, node, data FROM records WHERE sequence > ?"
        rows = (
            self._base.execute(f"{query} AND node = ? ORDER BY sequence LIMIT ?", (since, node, limit))
            if node
            else self._base.execute(f"{query} ORDER BY sequence LIMIT ?", (since, limit))
        )
        for sequence, time, kind, text, named, data in rows:
            yield Record(sequence, time, kind, text, named, json.loads(data))

    def newest(self, count: int, node: str = "") -> list[Record]:
        """Return the newest `count` records, oldest first."""
        where, given = ("WHERE node = ?", (node, count)) if node else ("", (count,))
        rows = self._base.execute(
            f"SELECT sequence, time, kind, text, node, data FROM records {where} "  # noqa: S608 - `where` is ours
            "ORDER BY sequence DESC LIMIT ?",
            given,
        ).fetchall()
        return [
            Record(sequence, time, kind, text, named, json.loads(data))
            for sequence, time, kind, text, named, data in reversed(rows)
        ]

    def load_snapshot(self) -> tuple[int, dict[str, Any]] | None:
        """Return the newest snapshot of the books and the sequence number that it covers."""
        row = self._base.execute("SELECT sequence, books FROM snapshot").fetchone()
        return (row[0], json.loads(row[1])) if row else None

    def snapshot_due(self) -> bool:
        """Return whether enough was written since the last snapshot."""
        return self._since_snapshot >= self._kept // 10

    def save_snapshot(self, sequence: int, books: dict[str, Any]) -> None:
        """Store the books as of `sequence` and drop records that are neither needed nor recent."""
        with self._base:
            self._base.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)", (sequence, json.dumps(books)))
            self._base.execute("DELETE FROM records WHERE sequence <= ?", (sequence - self._kept,))
        self._since_snapshot = 0

    def close(self) -> None:
        """Close the file."""
        self._base.close()
