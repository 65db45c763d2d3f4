"""A calendar is open when a person who reads it would say so, whatever the clocks do."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.errors import BadConfiguration
from computemesh.policy_calendar import calendar_of

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)


# 2026-12-01 is a Tuesday.
@pytest.mark.parametrize(
    ("calendar", "moment", "is_open"),
    [
        ("weekdays 18:00-08:00", "2026-12-01 17:59", False),
        ("weekdays 18:00-08:00", "2026-12-01 18:00", True),
        ("weekdays 18:00-08:00", "2026-12-02 07:59", True),
        ("weekdays 18:00-08:00", "2026-12-02 08:00", False),
        ("weekdays 18:00-08:00", "2026-12-05 07:00", True),  # Friday's night reaches into Saturday
        ("weekdays 18:00-08:00", "2026-12-05 19:00", False),
        ("weekdays 18:00-08:00", "2026-12-07 07:00", False),  # and Sunday's does not exist
        ("weekends", "2026-12-06 12:00", True),
        ("weekends", "2026-12-07 00:00", False),
        ("sat,sun 10:00-12:00", "2026-12-05 11:00", True),
        ("fri-mon", "2026-12-07 23:59", True),
        ("fri-mon", "2026-12-08 00:00", False),
        ("daily 22:00-06:00", "2026-12-08 03:00", True),
        ("daily 00:00-24:00", "2026-12-08 23:59", True),
        ("2026-12-24..2027-01-01", "2026-12-31 12:00", True),
        ("2026-12-24..2027-01-01", "2027-01-02 00:00", False),
        ("2026-12-24", "2026-12-24 00:00", True),
        ("always", "2026-12-08 03:00", True),
        ("never", "2026-12-08 03:00", False),
    ],
)
def test_it_reads_as_it_is_written(calendar, moment, is_open):
    assert calendar_of(calendar, zone="Europe/Berlin").is_open(at(moment)) is is_open


def test_a_holiday_is_no_weekday_and_counts_as_a_weekend():
    for line, is_open in {"weekdays": False, "weekends": True, "holidays": True, "fri": True, "daily": True}.items():
        calendar = calendar_of(line, ["2026-12-25"], "Europe/Berlin")
        assert calendar.is_open(at("2026-12-25 12:00")) is is_open, line
    assert not calendar_of("holidays", (), "Europe/Berlin").is_open(at("2026-12-25 12:00"))


def test_any_of_several_windows_opens_it():
    calendar = calendar_of(["weekdays 18:00-08:00", "weekends"], zone="Europe/Berlin")
    assert calendar.is_open(at("2026-12-05 19:00"))
    assert calendar.is_open(at("2026-12-01 19:00"))
    assert not calendar.is_open(at("2026-12-01 12:00"))
    # Friday 18:00 until Monday 8:00 is one piece but for Sunday night.
    assert calendar.next_change(at("2026-12-04 19:00")) == at("2026-12-07 00:00")


def test_the_zone_is_the_calendars_and_not_the_askers():
    calendar = calendar_of("daily 18:00-20:00", zone="Asia/Tokyo")
    assert calendar.is_open(at("2026-12-01 10:00"))
    assert not calendar.is_open(at("2026-12-01 18:30"))


def test_a_window_over_a_clock_change_ends_at_the_wall_clocks_time():
    calendar = calendar_of("daily 22:00-06:00", zone="Europe/Berlin")
    spring = at("2027-03-27 23:00")
    assert calendar.next_change(spring) == at("2027-03-28 06:00")
    assert calendar.next_change(spring) - spring == dt.timedelta(hours=6)
    autumn = at("2026-10-24 23:00")
    assert calendar.next_change(autumn) - autumn == dt.timedelta(hours=8)


def test_an_hour_that_comes_twice_counts_for_the_owner():
    calendar = calendar_of("daily 02:30-04:00", zone="Europe/Berlin")
    assert not calendar.is_open(at("2026-10-25 02:45", fold=0))
    assert calendar.is_open(at("2026-10-25 02:45", fold=1))
    ending = calendar_of("daily 01:00-02:30", zone="Europe/Berlin")
    assert ending.is_open(at("2026-10-25 02:15", fold=0))
    assert not ending.is_open(at("2026-10-25 02:15", fold=1))


def test_an_hour_that_does_not_come_counts_for_the_owner():
    calendar = calendar_of("daily 02:30-06:00", zone="Europe/Berlin")
    # At 2:00 it becomes 3:00: half past two is read as 3:30.
    assert not calendar.is_open(at("2026-03-29 03:15"))
    assert calendar.is_open(at("2026-03-29 03:30"))
    ending = calendar_of("daily 00:00-02:30", zone="Europe/Berlin")
    assert ending.is_open(at("2026-03-29 01:15"))
    assert not ending.is_open(at("2026-03-29 03:00"))


def test_two_calendars_are_open_together_when_both_are():
    both = calendar_of("weekdays 18:00-08:00", zone="Europe/Berlin").both(
        calendar_of("daily 20:00-22:00", zone="Europe/Berlin")
    )
    assert not both.is_open(at("2026-12-01 19:00"))
    assert both.is_open(at("2026-12-01 21:00"))
    assert both.next_change(at("2026-12-01 12:00")) == at("2026-12-01 20:00")
    assert both.next_change(at("2026-12-01 21:00")) == at("2026-12-01 22:00")
    assert both.next_change(at("2026-12-04 23:00")) == at("2026-12-07 20:00")


def test_what_never_changes_says_so():
    for line in ("always", "never", "daily 00:00-24:00"):
        assert calendar_of(line, zone="UTC").next_change(at("2026-12-01 12:00")) is None
    assert calendar_of("2026-01-01", zone="UTC").next_change(at("2026-12-01 12:00")) is None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("weekday 18:00-08:00", "'weekday' is no day"),
        ("weekdays 18-08", "'18-08' is no time of day"),
        ("weekdays 25:00-08:00", "no time of day"),
        ("weekdays 08:00-08:00", "no time of day"),
        ("weekdays 18:00 - 08:00", "no calendar"),
        ("", "no calendar"),
        ("2026-13-01", "'2026-13-01' is no date"),
        ("2026-12-24..2026-12-01", "ends before it begins"),
    ],
)
def test_what_cannot_be_read_is_named(line, says):
    with pytest.raises(BadConfiguration, match=says):
        calendar_of(line)


def test_an_unknown_zone_is_named():
    with pytest.raises(BadConfiguration, match="'Europe/Berlim' is no time zone"):
        calendar_of("weekdays", zone="Europe/Berlim")


LINES = st.sampled_from(
    ["weekdays 18:00-08:00", "weekends", "mon 02:30-03:00", "daily 22:00-06:00", "2026-10-25 02:00-03:00", "fri-tue"]
)
MOMENTS = st.datetimes(dt.datetime.fromisoformat("2026-03-20"), dt.datetime.fromisoformat("2027-04-01")).map(
    lambda naive: naive.replace(tzinfo=dt.UTC)
)


@given(st.lists(LINES, min_size=1, max_size=3), MOMENTS)
def test_until_the_next_change_nothing_changes(lines, now):
    calendar = calendar_of(lines, ["2026-12-25"], "Europe/Berlin")
    change = calendar.next_change(now)
    if change is None:
        return
    state = calendar.is_open(now)
    assert change > now
    assert calendar.is_open(change) is not state
    for part in range(1, 20):
        moment = now + (change - now) * part / 20
        assert calendar.is_open(moment) is state
