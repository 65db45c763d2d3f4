"""When a machine is lent, or a pool has members: windows of the week and single dates, in the words people use.

    weekdays 18:00-08:00        every working day, until the next morning
    sat,sun                     all day
    mon-thu 20:00-23:00
    daily 22:00-06:00
    holidays                    the dates that the owner lists as such, all day
    2026-12-24..2027-01-01      these dates
    always, never

A holiday is no weekday and counts as a weekend. Times are the wall clock's of the calendar's zone. Where a clock change
makes a time come twice or not at all, a window begins at the later reading and ends at the earlier: owner first.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from .errors import BadConfiguration

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WEEKDAYS, WEEKENDS, DAILY, HOLIDAYS = "weekdays", "weekends", "daily", "holidays"
ALWAYS, NEVER = "always", "never"
AHEAD = 400
"""Days in which the next change is looked for."""
MINUTES = 24 * 60
EXAMPLE = "write it as 'weekdays 18:00-08:00', 'sat,sun', 'daily 22:00-06:00', '2026-12-24..2027-01-01' or 'always'"

_TIMES = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DATES = re.compile(r"(\d{4}-\d{2}-\d{2})(?:\.\.(\d{4}-\d{2}-\d{2}))?")


@dataclass(frozen=True, slots=True)
class Window:
    """One line of a calendar: on which days, from and until which minute of the day."""

    text: str
    """As it was written."""
    days: frozenset[int] = frozenset()
    """0 is Monday; these days of each week."""
    holidays: bool = False
    """Holidays too, whatever day of the week they are."""
    working: bool = False
    """Not on holidays."""
    first: dt.date | None = None
    last: dt.date | None = None
    """Instead of days of the week: these dates."""
    start: int = 0
    end: int = MINUTES
    """Not after `start`: until that time of the next day."""

    def covers(self, day: dt.date, holiday: bool) -> bool:
        """Return whether the window begins on `day`."""
        if self.first is not None and self.last is not None:
            return self.first <= day <= self.last
        if holiday and self.working:
            return False
        return (holiday and self.holidays) or day.weekday() in self.days


@dataclass(frozen=True, slots=True)
class Calendar:
    """Windows of which any may be open. Without one it is open always."""

    windows: tuple[Window, ...] = ()
    holidays: frozenset[dt.date] = frozenset()
    zone: str = ""
    """Name such as ``Europe/Berlin``; empty: the machine's own."""
    closed: bool = False
    """Never open."""
    also: tuple[Calendar, ...] = field(default=())
    """Others that must be open too."""

    @property
    def always(self) -> bool:
        """Whether it is open at any time."""
        return not self.windows and not self.closed and all(other.always for other in self.also)

    def is_open(self, now: dt.datetime) -> bool:
        """Return whether it is open at `now`, which must know its zone."""
        return self._open(now) and all(other.is_open(now) for other in self.also)

    def next_change(self, now: dt.datetime) -> dt.datetime | None:
        """Return when that is next otherwise; None when not within `AHEAD` days."""
        state, moment = self.is_open(now), now
        horizon = now + dt.timedelta(days=AHEAD)
        while True:
            steps = [step for each in (self, *self.also) if (step := each._own_change(moment)) is not None]
            if not steps or min(steps) > horizon:
                return None
            moment = min(steps)
            if self.is_open(moment) is not state:
                return moment

    def both(self, other: Calendar) -> Calendar:
        """Return a calendar that is open when both are."""
        if other.always or other == self:
            return self
        if self.always:
            return other
        return Calendar(self.windows, self.holidays, self.zone, self.closed, (*self.also, other))

    @property
    def words(self) -> str:
        """The calendar as it was written."""
        own = NEVER if self.closed else ", ".join(window.text for window in self.windows) or ALWAYS
        return " and ".join([own, *(other.words for other in self.also)])

    # ------------------------------------------------------------ its own windows

    def _open(self, now: dt.datetime) -> bool:
        if self.closed or not self.windows:
            return not self.closed
        return any(start <= now < end for start, end in self._around(now, 1))

    def _own_change(self, now: dt.datetime) -> dt.datetime | None:
        """Return the next beginning or end of a window that is really one."""
        if self.closed or not self.windows:
            return None
        state, moment = self._open(now), now
        for ahead in (8, AHEAD):
            edges = sorted({edge for pair in self._around(now, ahead) for edge in pair if edge > moment})
            for edge in edges:
                if self._open(edge) is not state:
                    return edge
        return None

    def _around(self, now: dt.datetime, ahead: int) -> Iterator[tuple[dt.datetime, dt.datetime]]:
        zone = _zone(self.zone)
        today = now.astimezone(zone).date()
        for offset in range(-1, ahead + 1):
            day = today + dt.timedelta(days=offset)
            for window in self.windows:
                if window.covers(day, day in self.holidays):
                    last = day if window.end > window.start else day + dt.timedelta(days=1)
                    # A time that comes twice, or not at all at a clock change, is read against the lending.
                    yield max(_moments(day, window.start, zone)), min(_moments(last, window.end, zone))


def _moments(day: dt.date, minute: int, zone: dt.tzinfo | None) -> list[dt.datetime]:
    """Return both readings of a wall clock's time; they differ only around a clock change."""
    days, minute = divmod(minute, MINUTES)
    naive = dt.datetime.combine(day + dt.timedelta(days=days), dt.time(minute // 60, minute % 60))
    folds = [naive.replace(fold=fold) for fold in (0, 1)]
    local = [each.replace(tzinfo=zone) if zone is not None else each.astimezone() for each in folds]
    return [each.astimezone(dt.UTC) for each in local]


def _zone(name: str) -> dt.tzinfo | None:
    return ZoneInfo(name) if name else None


def calendar_of(texts: str | Sequence[str], holidays: Iterable[dt.date | str] = (), zone: str = "") -> Calendar:
    """Read a calendar of one or several windows.

    Raises:
        BadConfiguration: a window, date or zone cannot be read; names it.
    """
    lines = [texts] if isinstance(texts, str) else list(texts)
    check_zone(zone)
    dates = frozenset(_date(each) if isinstance(each, str) else each for each in holidays)
    windows = [_window(str(line)) for line in lines if str(line).strip().lower() != ALWAYS]
    if any(str(line).strip().lower() == ALWAYS for line in lines) or not lines:
        return Calendar(zone=zone)
    kept = tuple(window for window in windows if window is not None)
    return Calendar(kept, dates, zone, closed=not kept)


def check_zone(name: str) -> None:
    """Check a time zone's name; empty is allowed.

    Raises:
        BadConfiguration: there is no such zone.
    """
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):
        raise BadConfiguration(f"{name!r} is no time zone: give one such as Europe/Berlin") from None


def _window(text: str) -> Window | None:
    """Read one window; None for one that is never open."""
    words = text.strip().lower().split()
    if words == [NEVER]:
        return None
    if not words or len(words) > 2:
        raise BadConfiguration(f"{text!r} is no calendar: {EXAMPLE}")
    start, end = _times(words[1], text) if len(words) == 2 else (0, MINUTES)
    dates = _DATES.fullmatch(words[0])
    if dates:
        first = _date(dates[1])
        last = _date(dates[2]) if dates[2] else first
        if last < first:
            raise BadConfiguration(f"{text!r} ends before it begins")
        return Window(text.strip(), first=first, last=last, start=start, end=end)
    if words[0] == HOLIDAYS:
        return Window(text.strip(), holidays=True, start=start, end=end)
    days: set[int] = set()
    for part in words[0].split(","):
        days |= _days(part, text)
    return Window(
        text.strip(),
        frozenset(days),
        holidays=words[0] in (WEEKENDS, DAILY),
        working=words[0] == WEEKDAYS,
        start=start,
        end=end,
    )


def _days(part: str, text: str) -> set[int]:
    known = {WEEKDAYS: set(range(5)), WEEKENDS: {5, 6}, DAILY: set(range(7))}
    if part in known:
        return known[part]
    first, _, last = part.partition("-")
    try:
        begin, end = (DAYS.index(day[:3]) for day in (first, last or first))
    except ValueError:
        raise BadConfiguration(f"{text!r} is no calendar: {part!r} is no day; {EXAMPLE}") from None
    return {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}


def _times(word: str, text: str) -> tuple[int, int]:
    found = _TIMES.fullmatch(word)
    if found:
        hours = int(found[1]), int(found[3])
        minutes = int(found[2]), int(found[4])
        start, end = (60 * hour + minute for hour, minute in zip(hours, minutes, strict=True))
        if start < MINUTES and end <= MINUTES and max(minutes) < 60 and start != end:
            return start, end or MINUTES
    raise BadConfiguration(f"{text!r} is no calendar: {word!r} is no time of day; {EXAMPLE}")


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise BadConfiguration(f"{text!r} is no date: give one such as 2026-12-24") from None
