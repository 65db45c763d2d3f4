"""The ledger: what each machine lent and what of it was used, hour by hour, on disk within a second.

Each sample of an agent says how many seconds it covers and whether the machine was lent in them; so the amounts are the
agent's own monotonic seconds, and the wall clock only says in which hour they are noted. An agent keeps its samples
until the driver says that they are on disk, and sends them again to a driver that died before it did; a sample that
comes twice is known by its number and counts once.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from computemesh.errors import BadConfiguration
from computemesh.node import NodeFacts, Sample

HOUR = 3600
LATE = 900.0
"""Seconds by which a sample's own wall clock may lie behind the driver's and still name its hour."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    hour INTEGER NOT NULL,
    node TEXT NOT NULL,
    site TEXT NOT NULL,
    pools TEXT NOT NULL,
    gpu TEXT NOT NULL,
    lent REAL NOT NULL,
    cores_lent REAL NOT NULL,
    cores_used REAL NOT NULL,
    gpus_lent REAL NOT NULL,
    gpus_used REAL NOT NULL,
    PRIMARY KEY (hour, node, site, pools, gpu)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (
    node TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    number INTEGER NOT NULL
) WITHOUT ROWID;
"""


_SUMS = "SUM(lent), SUM(cores_lent), SUM(cores_used), SUM(gpus_lent), SUM(gpus_used)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an amount is noted."""

    hour: int
    """Seconds since the epoch at its beginning."""
    node: str
    site: str
    pools: str
    """Joined by commas."""
    gpu: str
    """Name of the node's GPUs; empty without."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts in seconds: of the machine lent, of cores and GPUs lent, and of those used."""

    lent: float = 0.0
    cores_lent: float = 0.0
    cores_used: float = 0.0
    gpus_lent: float = 0.0
    gpus_used: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))


def usage_of(sample: Sample, facts: NodeFacts) -> Usage:
    """Return what one sample says was lent and used."""
    if not sample.lent or sample.seconds <= 0:
        return Usage()
    seconds, cpus = sample.seconds, facts.cpus or facts.cores
    gpus = len(facts.gpus)
    return Usage(
        lent=seconds,
        cores_lent=facts.cores * seconds,
        cores_used=min(facts.cores, sample.cpu_ours / 100 * cpus) * seconds,
        gpus_lent=gpus * seconds,
        gpus_used=sum(min(100.0, gpu.load) / 100 for gpu in sample.gpus[:gpus]) * seconds,
    )


def place_of(sample: Sample, facts: NodeFacts, now: float) -> Place:
    """Return where a sample is noted; a machine whose clock is wrong cannot move it out of the driver's hours."""
    moment = sample.time if now - LATE <= sample.time <= now else now
    gpu = facts.gpus[0].name if facts.gpus else ""
    return Place(int(moment // HOUR) * HOUR, facts.name, facts.site, ",".join(facts.pools), gpu)


class Ledger:
    """Takes samples in and keeps them in a file."""

    def __init__(self, file: Path) -> None:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            self._base = sqlite3.connect(file)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=FULL")
            self._base.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise BadConfiguration(
                f"The ledger {file} cannot be used ({error}): restore it from a backup, or move it away to begin anew"
            ) from None
        self._heads: dict[str, tuple[int, int]] = {
            node: (incarnation, number)
            for node, incarnation, number in self._base.execute("SELECT node, incarnation, number FROM heads")
        }
        sums = self._base.execute(f"SELECT {_SUMS} FROM usage").fetchone()  # noqa: S608 - ours
        self.total = Usage(*(amount or 0.0 for amount in sums))
        """All that is noted."""
        self._pending: dict[Place, Usage] = defaultdict(Usage)
        self._changed: set[str] = set()
        self._taken: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def connected(self, node: str) -> None:
        """A node's agent has said hello: it counts its beats anew."""
        self._taken.pop(node, None)
        self._kept.pop(node, None)

    def take(self, facts: NodeFacts, incarnation: int, sequence: int, samples: Iterable[Sample], now: float) -> None:
        """Take the samples of one beat in; those that were counted already count no more."""
        head = self._heads.get(facts.name, (0, 0))
        for sample in samples:
            if sample.number and (incarnation, sample.number) <= head:
                continue
            head = max(head, (incarnation, sample.number))
            amount = usage_of(sample, facts)
            if amount.lent:
                place = place_of(sample, facts, now)
                self._pending[place] = self._pending[place] + amount
                self.total = self.total + amount
        self._heads[facts.name] = head
        self._changed.add(facts.name)
        self._taken[facts.name] = sequence

    def flush(self) -> None:
        """Write what was taken in, all of it or nothing."""
        if not self._changed:
            return
        with self._base:
            self._base.executemany(
                "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "lent = lent + excluded.lent, cores_lent = cores_lent + excluded.cores_lent, "
                "cores_used = cores_used + excluded.cores_used, gpus_lent = gpus_lent + excluded.gpus_lent, "
                "gpus_used = gpus_used + excluded.gpus_used",
                [(*astuple(place), *astuple(amount)) for place, amount in self._pending.items()],
            )
            self._base.executemany(
                "INSERT OR REPLACE INTO heads VALUES (?, ?, ?)",
                [(node, *self._heads[node]) for node in self._changed],
            )
        self._pending.clear()
        self._changed.clear()
        self._kept = dict(self._taken)

    def kept(self, node: str) -> int:
        """Return up to which of its beats a node's samples are on disk."""
        return self._kept.get(node, 0)

    def rows(self, since: float = 0.0, hourly: bool = True) -> list[tuple[Place, Usage]]:
        """Return what was noted in the hours that began at `since` or later, with what is not on disk yet.

        Not `hourly`: all hours of a node, site, pools and GPU together, as of hour 0; much less of a large mesh.
        """
        found: dict[Place, Usage] = defaultdict(Usage)
        hour = "hour" if hourly else "0"
        query = (
            f"SELECT {hour}, node, site, pools, gpu, {_SUMS} FROM usage WHERE hour >= ? "  # noqa: S608 - ours
            "GROUP BY 1, 2, 3, 4, 5"
        )
        for row in self._base.execute(query, (since,)):
            found[Place(*row[:5])] += Usage(*row[5:])
        for place, amount in self._pending.items():
            if place.hour >= since:
                found[place if hourly else replace(place, hour=0)] += amount
        return list(found.items())

    def forget(self, before: float) -> None:
        """Drop the hours that began before `before`."""
        with self._base:
            self._base.execute("DELETE FROM usage WHERE hour < ?", (before,))

    def close(self) -> None:
        """Write the rest and close the file."""
        self.flush()
        self._base.close()
