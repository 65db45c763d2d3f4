"""An owner's policy: read with errors that name the line, joined so that the stricter wins."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.errors import BadConfiguration
from computemesh.policy import FIELDS, Policy, policy_of, read_value, read_values, settled, stricter
from computemesh.policy_calendar import calendar_of
from computemesh.policy_file import from_words, read_sections, read_text, with_field

FILE = """\
# my laptop
idle = "10 min"
battery = "50 %"

calendar = ["weekdays 18:00-08:00", "weekends"]
holidays = [2026-12-25]
zone = "Europe/Berlin"
users = ["ada"]
"""


def test_a_file_reads_as_it_is_written():
    policy = policy_of(settled(read_text(FILE), {}, {}))
    assert (policy.idle, policy.battery, policy.users) == (600, 50, frozenset({"ada"}))
    assert policy.calendar.is_open(dt.datetime.fromisoformat("2026-12-25 12:00+01:00"))
    assert not policy.calendar.is_open(dt.datetime.fromisoformat("2026-12-23 12:00+01:00"))
    assert policy.evict == Policy().evict


def test_every_field_has_a_value_that_its_example_shows():
    assert {each.attribute for each in FIELDS} == {each.name for each in fields(Policy)}
    for each in FIELDS:
        value = each.read(each.example)
        if each.name == "calendar":
            value = calendar_of(value)
        assert each.show(value)
        if each.name not in ("calendar", "networks", "users", "pools", "executors"):
            assert value == getattr(Policy(), each.attribute), each.name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('idle = "10 min"\nbatery = 50\n', r"line 2: there is no field 'batery'; there are idle, "),
        ('\n\nbattery = "110 %"\n', r"line 3: battery = '110 %' cannot be used: give a share from 0 % to 100 %"),
        ('idle = "soon"\n', r"line 1: idle = 'soon' cannot be used: give a duration"),
        ("idle = -5\n", "from 0 s to a year"),
        ('temperature = "400 C"', "from 30 to 120"),
        ('keep-ram = "much"', "give a size such as"),
        ("only-on-charger = 3", "true or false"),
        ('executors = ["gpu"]', "'gpu' is no executor"),
        ('networks = ["10.0.0.0/40"]', "'10.0.0.0/40' is no subnet"),
        ('calendar = ["weekdays 18:00-08:00", "whenever"]', r"line 1: calendar: 'whenever' is no calendar"),
        ('calendar = "always"\nzone = "Mars"', "line 2: zone: 'Mars' is no time zone"),
        ('zone = "UTC"', "only beside a calendar"),
        ("idle = \n", "line 1: this is no TOML"),
        ('idle = "1 min"\nidle = "2 min"', "line 2: this is no TOML"),
        ("users = 5", "list of names"),
        ("users = []", "could mean all or nobody"),
        ("calendar = []", "could mean always or never"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_allowed(text, says):
    with pytest.raises(BadConfiguration, match=says):
        read_text(text)


def test_the_administrators_file_has_two_sections():
    rules = read_sections('[default]\nidle = "1 min"\n[ceiling]\ncpu = "50 %"\n')
    assert rules == {"default": {"idle": "1 min"}, "ceiling": {"cpu": "50 %"}}
    with pytest.raises(BadConfiguration, match=r"line 4: cpu = '500 %'"):
        read_sections('[default]\ncpu = "40 %"\n[ceiling]\ncpu = "500 %"\n')
    with pytest.raises(BadConfiguration, match=r"line 2: 'maximum' is not known here"):
        read_sections('\n[maximum]\ncpu = "50 %"\n')
    with pytest.raises(BadConfiguration, match="'idle' is not known here"):
        read_sections('idle = "1 min"')


def test_the_owner_counts_over_the_default_and_a_stricter_ceiling_over_both():
    found = settled(
        read_values({"idle": "1 min", "cpu": "80 %"}),
        read_values({"idle": "9 min", "battery": "70 %"}),
        read_values({"cpu": "50 %", "battery": "40 %", "calendar": "weekends"}),
    )
    assert {name: (found[name].value, found[name].source) for name in ("idle", "cpu", "battery", "ram")} == {
        "idle": (60, "owner"),
        "cpu": (50, "ceiling"),
        "battery": (70, "default"),
        "ram": (100, "built-in"),
    }
    assert found["calendar"].source == "ceiling"


def test_a_field_is_set_where_it_stands_and_comments_stay():
    changed = with_field(FILE, "battery", "40 %")
    assert changed == FILE.replace("50 %", "40 %")
    assert with_field(FILE, "battery", None) == FILE.replace('battery = "50 %"\n', "")
    assert read_text(with_field("", "evict", "2 min")) == {"evict": 120}
    with pytest.raises(BadConfiguration, match="no field 'evicted'"):
        with_field(FILE, "evicted", "2 min")
    with pytest.raises(BadConfiguration, match="only beside a calendar"):
        with_field(FILE, "calendar", None)


@pytest.mark.parametrize(
    ("key", "words", "value"),
    [
        ("idle", ("10", "min"), "10 min"),
        ("calendar", ("weekdays 18:00-08:00", "sat,sun"), ["weekdays 18:00-08:00", "sat,sun"]),
        ("users", ("ada,grace",), ["ada", "grace"]),
        ("users", ("ada", "grace"), ["ada", "grace"]),
        ("only-on-charger", ("yes",), True),
        ("holidays", ("2026-12-25,2026-12-26",), ["2026-12-25", "2026-12-26"]),
        ("zone", ("Europe/Berlin",), "Europe/Berlin"),
    ],
)
def test_words_of_a_command_become_values(key, words, value):
    assert from_words(key, words) == value
    read_value(key, value)


percents = st.floats(0, 100)
durations = st.floats(0, 1e6)
sizes = st.floats(0, 1e12)
allowed = st.one_of(st.none(), st.frozensets(st.sampled_from(["a", "b", "c"])))
WINDOWS = ["weekdays 18:00-08:00", "weekends", "daily 12:00-20:00", "never"]
calendars = st.lists(st.sampled_from(WINDOWS), max_size=2).map(lambda lines: calendar_of(lines, zone="UTC"))
policies = st.builds(
    Policy,
    idle=durations, others_cpu=percents, battery=percents, only_on_charger=st.booleans(), temperature=percents,
    keep_ram=sizes, keep_disk=sizes, keep_vram=sizes, cpu=percents, ram=percents, gpu=percents, calendar=calendars,
    metered=st.booleans(), networks=allowed, users=allowed, pools=allowed, executors=allowed,
    suspend=durations, resume=durations, evict=durations,
)  # fmt: skip
MOMENTS = [
    dt.datetime.fromisoformat(f"2026-12-0{day} {hour:02}:30+00:00") for day in range(1, 8) for hour in (7, 13, 19)
]


def laxer(one: Policy, other: Policy) -> list[str]:
    """Return in which fields `one` allows something that `other` does not."""
    found = [
        name
        for name in ("idle", "battery", "keep_ram", "keep_disk", "keep_vram", "resume", "only_on_charger")
        if getattr(one, name) < getattr(other, name)
    ]
    found += [
        name
        for name in ("others_cpu", "temperature", "cpu", "ram", "gpu", "suspend", "evict", "metered")
        if getattr(one, name) > getattr(other, name)
    ]
    for name in ("networks", "users", "pools", "executors"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if theirs is not None and (mine is None or not mine <= theirs):
            found.append(name)
    if any(one.calendar.is_open(moment) and not other.calendar.is_open(moment) for moment in MOMENTS):
        found.append("calendar")
    return found


@given(policies, policies)
def test_the_stricter_of_two_is_no_laxer_than_either(one, other):
    joined = stricter(one, other)
    assert not laxer(joined, one)
    assert not laxer(joined, other)


@given(policies, policies)
def test_it_does_not_matter_whose_is_first(one, other):
    first, second = stricter(one, other), stricter(other, one)
    assert not laxer(first, second)
    assert not laxer(second, first)


@given(policies)
def test_a_policy_beside_itself_is_itself(policy):
    assert stricter(policy, policy) == policy
