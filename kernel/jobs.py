"""What a user has running: ``mesh.jobs()``, ``mesh.job(id)``, and jobs kept after the notebook was closed."""

from __future__ import annotations

import getpass
import itertools
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from computemesh import config
from computemesh.errors import BadRequirement, NoSuchJob

from . import kept_jobs
from .kept_jobs import KeptRecord
from .progress_words import duration

REMEMBERED = 500
"""Jobs of this process that `jobs` can list."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STATES = {"memory": "finished", "erred": "failed", "processing": "running"}


@dataclass(frozen=True, slots=True)
class _Record:
    id: str
    kind: str
    title: str
    keys: tuple[Any, ...]
    since: float


_records: OrderedDict[str, _Record] = OrderedDict()
_numbers = itertools.count(1)


class Job:
    """Some work on the mesh: its futures, how far it is, and how to end it. Shows itself as one line.

    Attributes:
        id: what `mesh.job` takes; the name that it is kept under, or a number in this process.
        kind: ``submit``, ``map``, or what registered it.
        title: what runs, for people.
        kept: until when it is kept (seconds since the epoch); None while only this process holds it.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - what users call it
        kind: str,
        title: str,
        keys: Sequence[Any],
        since: float,
        client: Any,
        kept: float | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.title = title
        self.since = since
        self.kept = kept
        self._keys = list(keys)
        self._client = client
        self._futures: list[Any] | None = None

    @property
    def futures(self) -> list[Any]:
        """Its futures, in order."""
        if self._futures is None:
            from .futures import MeshFuture

            self._futures = [MeshFuture(key, self._client) for key in self._keys]
            # Dask tells the scheduler only of futures that come from elsewhere by themselves.
            self._client._send_to_scheduler(
                {"op": "client-desires-keys", "keys": list(self._keys), "client": self._client.id}
            )
        return self._futures

    @property
    def counts(self) -> Mapping[str, int]:
        """How many of its tasks are ``finished``, ``failed``, ``running``, ``waiting`` or ``gone``."""
        return Counter(_states(self._client, self._keys))

    @property
    def status(self) -> str:
        """One word for all: ``running`` and ``waiting`` before ``failed``, that before ``finished``; else ``gone``."""
        return _status(self.counts)

    def result(self, timeout: float | None = None) -> Any:
        """Wait and return the result, of a map the list of results.

        Raises:
            NoSuchJob: its results have been let go.
            TimeoutError: it took longer than `timeout` seconds; it goes on.
            Exception: what the first failed task raised.
        """
        if self.counts.get("gone"):
            raise NoSuchJob(
                f"Job {self.id}: the mesh no longer has {self.counts['gone']} of its {len(self._keys)} results; they "
                "were forgotten, cancelled, or lost with the scheduler. Submit it again"
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        results = [
            future.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for future in self.futures
        ]
        return results[0] if self.kind == "submit" and len(results) == 1 else results

    def cancel(self) -> None:
        """End it: what waits does not start, what runs is ended where it can be; it is kept no longer."""
        futures = self.futures
        self._release()
        self._client.cancel(futures, force=True)

    def forget(self) -> None:
        """Keep it no longer; its results go when nobody holds their futures."""
        self._release()
        self._futures = None
        _records.pop(self.id, None)

    def _release(self) -> None:
        if self.kept is not None:
            mine = [each for each in kept_jobs.records(self._client) if (each.user, each.id) == (_user(), self.id)]
            kept_jobs.delete(self._client, mine)
            self.kept = None

    def __repr__(self) -> str:
        return f"<Job {self.id}: {self.kind} {self.title}, {_said(self.counts)}, {_ago(self.since)}{_kept(self.kept)}>"

    def _repr_html_(self) -> str:
        counts = self.counts
        total, done = sum(counts.values()), counts.get("finished", 0) + counts.get("failed", 0)
        bar = f"<progress max='{total}' value='{done}' style='width:16em'></progress> " if total > 1 else ""
        text = f"Job {self.id}: {self.kind} {self.title}, {_said(counts)}, {_ago(self.since)}{_kept(self.kept)}"
        return f"<div role='status'>{bar}<small>{escape(text)}</small></div>"


class JobList(tuple[Job, ...]):
    """Jobs, newest first; shows itself as a table."""

    __slots__ = ()

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (job.id, f"{job.kind} {job.title}", job.status, _said(job.counts), _ago(job.since), _kept(job.kept, "-"))
            for job in self
        ]

    def __repr__(self) -> str:
        if not self:
            return "No jobs."
        table = [_HEADINGS, *self._rows()]
        widths = [max(len(line[column]) for line in table) for column in range(len(_HEADINGS))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in table
        )

    def _repr_html_(self) -> str:
        if not self:
            return "<p>No jobs.</p>"
        head = "".join(f"<th style='text-align:left'>{title}</th>" for title in _HEADINGS)
        rows = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{escape(text)}</td>" for text in row) + "</tr>"
            for row in self._rows()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(*_HEADINGS)
        for row in self._rows():
            table.add_row(*row)
        return table


_HEADINGS = ("job", "what", "state", "tasks", "since", "kept")


def next_number() -> int:
    """Return a number that no other job of this process has, cells' included."""
    return next(_numbers)


def register(kind: str, title: str, futures: Sequence[Any]) -> Job:
    """Make work known to `jobs`, under a number. Only its keys are remembered: the futures are the caller's to hold."""
    job = Job(str(next_number()), kind, title, [future.key for future in futures], time.time(), futures[0].client)
    _records[job.id] = _Record(job.id, kind, title, tuple(job._keys), job.since)
    while len(_records) > REMEMBERED:
        _records.popitem(last=False)
    job._futures = list(futures)
    return job


def keep(futures: Any, name: str, *, ttl: float | str | None = None, kind: str = "map", title: str = "") -> Job:
    """Keep futures on the mesh under `name` after this process has ended; `mesh.job(name)` picks them up anywhere.

    Args:
        futures: a future or a list of them.
        name: letters, digits, dots, hyphens; a job of yours that has this name is let go.
        ttl: how long, such as ``"12 hours"`` (``notebook.job-ttl``).
        kind: what `jobs` says that it is.
        title: what `jobs` says that it does; by default its tasks' name.

    Raises:
        BadRequirement: the name or the time cannot be used.
    """
    given = list(futures) if isinstance(futures, Iterable) and not hasattr(futures, "key") else [futures]
    check_name(name)
    if not given:
        raise BadRequirement(f"job={name!r} has no tasks to keep")
    client, now = given[0].client, time.time()
    said = title or str(given[0].key).partition("-")[0]
    record = KeptRecord(name, _user(), kind, said, len(given), now, now + seconds_of(ttl))
    old = [each for each in kept_jobs.records(client) if (each.user, each.id) == (record.user, name)]
    kept_jobs.put(client, record, [future.key for future in given])
    kept_jobs.delete(client, old)
    job = Job(name, kind, said, [future.key for future in given], now, client, record.until)
    job._futures = given
    return job


def jobs() -> JobList:
    """Return this user's jobs: those of this process whose results the mesh still has, and those that are kept."""
    from .connection import current

    client = current().client
    found = [Job(each.id, each.kind, each.title, each.keys, each.since, client) for each in list(_records.values())]
    present = [job for job in found if set(_states(client, job._keys)) != {"gone"}]
    kept = [
        Job(each.id, each.kind, each.title, kept_jobs.keys_of(client, each), each.since, client, each.until)
        for each in _live(client)
    ]
    return JobList(sorted([*present, *kept], key=lambda job: job.since, reverse=True))


def job(id: str | int) -> Job:  # noqa: A002 - what users call it
    """Return a job by its number in this process, or by the name that it is kept under, from any process of its user.

    Raises:
        NoSuchJob: there is none; names those that there are.
    """
    from .connection import current

    client = current().client
    live = _live(client)
    for each in live:
        if each.id == str(id):
            keys = kept_jobs.keys_of(client, each)
            return Job(each.id, each.kind, each.title, keys, each.since, client, each.until)
    record = _records.get(str(id))
    if record is not None:
        return Job(record.id, record.kind, record.title, record.keys, record.since, client)
    names = ", ".join([*(each.id for each in live), *_records]) or "none"
    raise NoSuchJob(
        f"There is no job {id!r} of {_user()}'s on this mesh (there are: {names}): jobs that nobody kept end with "
        "their notebook, kept ones after their ttl"
    )


def check_name(name: Any) -> None:
    """Raise `BadRequirement` unless a job can be called `name`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.isdigit():
        raise BadRequirement(
            f"job={name!r} is not usable: give a name of letters, digits, dots, hyphens, at most 64, such as 'fit-1'"
        )


def seconds_of(ttl: float | str | None) -> float:
    """Return how long a job is kept. Raises `BadRequirement` for what is no time."""
    if ttl is None:
        return config.seconds("notebook.job-ttl")
    from dask.utils import parse_timedelta

    try:
        found = float(parse_timedelta(ttl))
    except (TypeError, ValueError, KeyError):
        found = 0.0
    if not 0 < found < float("inf"):
        raise BadRequirement(f"ttl={ttl!r} is not usable: give a time such as '12 hours'")
    return found


def _live(client: Any) -> list[KeptRecord]:
    """Return this user's kept jobs; those over their time are let go on the way."""
    own = [each for each in kept_jobs.records(client) if each.user == _user()]
    live, expired = kept_jobs.split_expired(own, time.time())
    kept_jobs.delete(client, expired)
    return list(live)


def _user() -> str:
    from .connection import current

    identity = current().identity
    return identity.name if identity is not None else getpass.getuser()


def _states(client: Any, keys: Sequence[Any]) -> list[str]:
    async def asked() -> Any:
        return await client.scheduler.get_task_status(keys=list(keys))

    found = client.sync(asked)
    return ["gone" if found[key] is None else _STATES.get(found[key], "waiting") for key in keys]


def _status(counts: Mapping[str, int]) -> str:
    for state in ("running", "waiting", "failed", "finished"):
        if counts.get(state):
            return state
    return "gone"


def _said(counts: Mapping[str, int]) -> str:
    order = ("finished", "running", "waiting", "failed", "gone")
    return ", ".join(f"{counts[state]} {state}" for state in order if counts.get(state)) or "no tasks"


def _ago(since: float) -> str:
    return f"{duration(max(0.0, time.time() - since))} ago"


def _kept(until: float | None, otherwise: str = "") -> str:
    if until is None:
        return otherwise
    when = time.strftime("%d %b %H:%M", time.localtime(until))
    return f"until {when}" if otherwise else f", kept until {when}"
