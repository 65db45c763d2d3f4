"""The owner comes first: when a machine is lent, frozen and given back, decided from plain data."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.node import GpuSample, Harvest, Sample
from computemesh.node_agent.harvest import Cause, Latch, Moment, Signs, Standing, decide, explanation
from computemesh.policy import Policy
from computemesh.policy_calendar import calendar_of

START = dt.datetime.fromisoformat("2026-12-01 12:00+00:00")
POLICY = Policy(idle=300, resume=30, evict=60)
QUIET = Sample(0.0, ram_free=8 * 10**9, disk_free=10**11)


class Machine:
    """A machine whose clock the test turns, second by second."""

    def __init__(self, policy: Policy = POLICY, **signs: object) -> None:
        self.policy = policy
        self.signs = Signs(QUIET, input_age=1e9, **signs)  # type: ignore[arg-type]
        self.seconds = 1000.0
        self.standing = Standing(since=self.seconds)
        self.seen: list[Harvest] = []

    @property
    def moment(self) -> Moment:
        return Moment(self.seconds, START + dt.timedelta(seconds=self.seconds - 1000))

    def now(self, **changes: object) -> Harvest:
        """Decide at this moment."""
        own = set(Sample.__dataclass_fields__) - {"input_age"}
        sample = {name: changes.pop(name) for name in list(changes) if name in own}
        self.signs = replace(self.signs, sample=replace(self.signs.sample, **sample), **changes)
        self.standing = decide(self.policy, self.signs, self.standing, self.moment)
        if not self.seen or self.seen[-1] is not self.standing.state:
            self.seen.append(self.standing.state)
        return self.standing.state

    def after(self, seconds: float, **changes: object) -> Harvest:
        """Let time pass, deciding every second."""
        age = changes.get("input_age", self.signs.input_age)
        if changes:
            self.now(**changes)
        end = self.seconds + seconds
        while self.seconds < end:
            step = min(1.0, end - self.seconds)
            self.seconds += step
            age = age + step if age is not None else None
            self.now(input_age=age)
        return self.standing.state

    def touch(self) -> Harvest:
        """Somebody presses a key."""
        return self.now(input_age=0.0)

    def words(self) -> str:
        return explanation(self.policy, self.signs, self.standing, self.moment, None)


def lending(policy: Policy = POLICY, **signs: object) -> Machine:
    machine = Machine(policy, **signs)
    assert machine.now() is Harvest.LENDING
    return machine


def test_a_machine_is_lent_after_minutes_without_input():
    machine = Machine()
    assert machine.touch() is Harvest.OWNER
    assert machine.after(299) is Harvest.OWNER
    assert machine.after(1) is Harvest.LENDING


def test_the_owners_key_freezes_at_once_and_a_short_absence_resumes_in_place():
    machine = lending()
    assert machine.touch() is Harvest.SUSPENDED
    assert machine.after(29) is Harvest.SUSPENDED
    assert machine.after(1) is Harvest.LENDING
    assert Harvest.EVICTING not in machine.seen


def test_an_owner_who_stays_gets_all_of_it_back():
    machine = lending()
    for _ in range(60):
        machine.touch()
        machine.after(1)
    assert machine.standing.state is Harvest.EVICTING
    assert machine.after(100) is Harvest.EVICTING, "until all is given back"
    assert machine.now(cleared=True, input_age=100.0) is Harvest.OWNER
    assert machine.after(199) is Harvest.OWNER
    assert machine.after(1) is Harvest.LENDING


def test_with_a_suspend_delay_a_single_key_changes_nothing_and_staying_does():
    machine = lending(replace(POLICY, suspend=5))
    machine.touch()
    assert machine.after(29) is Harvest.LENDING
    for _ in range(5):
        machine.touch()
        assert machine.after(1) in (Harvest.LENDING, Harvest.SUSPENDED)
    machine.touch()
    machine.after(1)
    assert machine.standing.state is Harvest.SUSPENDED


@pytest.mark.parametrize(("desktop", "state"), [(True, Harvest.OWNER), (False, Harvest.LENDING)])
def test_where_nothing_can_tell_a_desktop_is_in_use_and_a_server_is_not(desktop, state):
    machine = Machine(desktop=desktop)
    assert machine.now(input_age=None) is state


def test_a_dedicated_machine_is_lent_unless_paused():
    machine = lending(dedicated=True)
    assert machine.now(input_age=0.0, cpu=100.0, battery=5.0, charging=False) is Harvest.LENDING
    assert machine.now(paused=True) is Harvest.EVICTING
    assert machine.now(cleared=True) is Harvest.IDLE
    assert machine.now(paused=False) is Harvest.LENDING


def test_a_presentation_counts_as_use():
    machine = lending()
    assert machine.now(in_use="a presentation runs") is Harvest.SUSPENDED
    assert machine.words().startswith("Not lent, and its tasks are frozen for 60 s more")
    assert "a presentation runs" in machine.words()


def test_a_pause_wins_over_everything_and_gives_back_at_once():
    machine = lending()
    assert machine.now(paused=True) is Harvest.EVICTING
    assert machine.standing.grace == 0
    machine.now(cleared=True)
    assert machine.after(10_000) is Harvest.IDLE
    frozen = lending()
    frozen.touch()
    assert frozen.now(paused=True) is Harvest.EVICTING


CAUSES = {
    Cause.LOAD: ({"cpu": 40.0}, {"cpu": 10.0}, 2),
    Cause.BATTERY: ({"battery": 50.0, "charging": False}, {"battery": 50.0, "charging": True}, 0),
    Cause.HEAT: ({"temperature": 95.0}, {"temperature": 60.0}, 0),
    Cause.MEMORY: ({"ram_free": 10**8}, {"ram_free": 4 * 10**9}, 2),
    Cause.DISK: ({"disk_free": 10**9}, {"disk_free": 10**11}, 0),
}


@pytest.mark.parametrize("cause", list(CAUSES))
def test_each_need_of_the_machine_freezes_within_two_seconds_and_then_evicts(cause):
    bad, good, within = CAUSES[cause]
    machine = lending()
    machine.after(within, **bad)
    assert machine.standing.state is Harvest.SUSPENDED
    assert machine.standing.causes == (cause,)
    assert machine.after(60) is Harvest.EVICTING
    assert machine.now(cleared=True) is Harvest.IDLE
    machine.after(61, cleared=False, **good)
    assert machine.standing.state is Harvest.LENDING


def test_only_on_the_charger_means_that():
    machine = lending(replace(POLICY, only_on_charger=True))
    assert machine.now(battery=100.0, charging=False) is Harvest.SUSPENDED
    assert "lent on the charger only" in machine.words()


def test_free_memory_of_a_gpu_is_kept():
    machine = lending(replace(POLICY, keep_vram=2e9))
    machine.after(2, gpus=(GpuSample(10**9, 5.0),))
    assert machine.standing.causes == (Cause.VRAM,)


def test_when_the_calendar_ends_what_runs_may_end_within_the_grace():
    machine = lending(replace(POLICY, calendar=calendar_of("daily 10:00-12:01", zone="UTC")))
    assert machine.after(59) is Harvest.LENDING
    assert machine.after(1) is Harvest.EVICTING
    assert machine.standing.grace == 60
    machine.touch()
    assert machine.standing.grace == 0, "the owner has come meanwhile"
    for bad, _, within in CAUSES.values():
        other = lending(replace(POLICY, calendar=calendar_of("daily 10:00-12:01", zone="UTC")))
        other.after(61)
        other.after(within, **bad)
        assert other.standing.grace == 0, "the machine needs its strength meanwhile"


def test_a_metered_network_is_like_a_closed_calendar():
    machine = lending()
    assert machine.now(metered=True) is Harvest.EVICTING
    assert machine.standing.grace == 60
    assert lending(replace(POLICY, metered=True)).now(metered=True) is Harvest.LENDING
    assert lending().now(network_allowed=False) is Harvest.EVICTING
    assert lending().now(metered=None) is Harvest.LENDING


def test_it_says_why_and_until_when():
    machine = Machine()
    machine.touch()
    machine.after(40)
    assert machine.words().startswith("Not lent: used 40 s ago; lent again at ")
    closed = Machine(replace(POLICY, calendar=calendar_of("daily 18:00-20:00", zone="UTC")))
    closed.now()
    assert "its calendar lends it daily 18:00-20:00; next at" in closed.words()
    assert lending(dedicated=True).words() == "Lent: it is dedicated to the mesh."
    assert lending().words() == "Lent: nobody uses it."


@given(st.lists(st.floats(20, 40), min_size=60, max_size=60))
def test_load_around_the_ceiling_does_not_flap(loads):
    machine = lending(replace(POLICY, evict=1e6))
    for load in loads:
        machine.after(1, cpu=load)
    # Back to lending takes the dwell time: within a minute that is possible only a few times.
    assert machine.seen.count(Harvest.SUSPENDED) <= 60 / 15 + 1


@given(st.lists(st.floats(55, 66), min_size=50, max_size=50))
def test_charge_around_the_minimum_changes_the_state_once_at_most(charges):
    machine = lending(replace(POLICY, evict=1e6))
    for charge in charges:
        machine.after(1, battery=charge, charging=False)
    assert len(machine.seen) <= 2


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=100), st.floats(0.5, 20), st.floats(0.5, 20))
def test_a_latch_turns_only_when_the_opposite_has_held(looks, rises, falls):
    latch, held = Latch(), 0.0
    for second, (over, under) in enumerate(looks):
        under = under and not over
        opposite = under if latch.on else over
        before = latch
        latch = latch.moved(over, under, float(second), rises, falls)
        held = held + 1 if opposite else 0
        if latch.on is not before.on:
            assert held - 1 >= (falls if before.on else rises)
            held = 0


events = st.sampled_from(
    [
        {"input_age": 0.0}, {"input_age": 1e6}, {"cpu": 80.0}, {"cpu": 0.0}, {"battery": 10.0, "charging": False},
        {"battery": 90.0, "charging": True}, {"paused": True}, {"paused": False}, {"in_use": "a call"}, {"in_use": ""},
        {"cleared": True}, {"cleared": False}, {"metered": True}, {"metered": False},
    ]
)  # fmt: skip


@given(st.lists(st.tuples(events, st.sampled_from([0, 1, 5, 31, 61, 301])), max_size=40))
def test_whatever_happens_the_owner_comes_first(history):
    machine = Machine()
    for change, seconds in history:
        before = machine.standing.state
        state = machine.now(**change)
        causes = machine.standing.causes
        assert not (state is Harvest.LENDING and causes)
        # What was given back is never thawed, and what is lent was never evicted in the same breath.
        if before is Harvest.EVICTING:
            assert state is not Harvest.SUSPENDED
            assert machine.signs.cleared or state is Harvest.EVICTING
        if state is Harvest.OWNER:
            assert {Cause.INPUT, Cause.BUSY} & set(causes)
        machine.after(seconds)
