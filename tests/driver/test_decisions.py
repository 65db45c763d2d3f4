"""What the driver decides without clock or network: tokens, rate limits, enrolment, health."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.certificates import Role
from computemesh.driver.books import Books, Record
from computemesh.driver.enrolment import Application, judge, mismatch
from computemesh.driver.health import Patience, health_of
from computemesh.driver.registry import Registry
from computemesh.driver.tokens import RateLimit, Token, digest_of, fault_of, new_token, split
from computemesh.driver_client import Versions
from computemesh.errors import Refused
from computemesh.node import Health
from computemesh.protocol import Beat, plain

OURS = Versions("0.1.0", "2026.8.0", "3.11")
NOW = 1_800_000_000.0


def token(**changes):
    base = {"identifier": "abc123", "digest": digest_of("secret"), "role": Role.NODE, "expires": NOW + 60}
    return Token(**{**base, **changes})


@pytest.mark.parametrize(
    ("kept", "secret", "address", "says"),
    [
        (token(), "secret", "10.0.0.1", ""),
        (None, "secret", "10.0.0.1", "not known"),
        (token(), "wrong", "10.0.0.1", "not known"),
        (token(uses=0), "wrong", "10.0.0.1", "not known"),
        (token(uses=0), "secret", "10.0.0.1", "used already"),
        (token(expires=NOW), "secret", "10.0.0.1", "expired"),
        (token(networks=("10.0.0.0/8",)), "secret", "10.0.0.1", ""),
        (token(networks=("10.0.0.0/8",)), "secret", "::ffff:10.0.0.1", ""),
        (token(networks=("10.0.0.0/8",)), "secret", "192.168.1.1", "may not be used from 192.168.1.1"),
        (token(networks=("10.0.0.0/8",)), "secret", "fe80::1%eth0", "may not be used from"),
    ],
)
def test_a_token_is_judged_and_guessing_learns_nothing(kept, secret, address, says):
    fault = fault_of(kept, secret, NOW, address)
    assert says in fault
    assert bool(fault) == bool(says)


def test_a_token_is_kept_only_as_a_hash():
    kept, given_away = new_token(Role.NODE, NOW, 1, "", (), ())
    identifier, secret = split(given_away)
    assert identifier == kept.identifier
    assert secret not in str(plain(kept))
    assert len(secret) >= 32


def test_the_rate_limit_stops_a_burst_and_forgives_with_time():
    limit = RateLimit(5)
    assert [limit.allows("a", 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert limit.allows("b", 0.0)
    assert limit.allows("a", 12.0)
    assert not limit.allows("a", 12.0)


def test_the_rate_limits_memory_is_bounded():
    limit = RateLimit(5)
    for number in range(30_000):
        limit.allows(str(number), number * 0.1)
    assert len(limit._left) <= 10_001


def application(**changes):
    base = {"token": "abc123.secret", "request": "", "time": NOW, "versions": OURS, "name": "laptop-7"}
    return Application(**{**base, **changes})


def books_with(*tokens):
    books = Books()
    for number, made in enumerate(tokens, start=1):
        books.apply(Record(number, NOW, "token-created", "", data={"token": plain(made)}))
    return books


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        (application(token="zzz.secret"), 403, "not known"),
        (application(token=""), 403, "not known"),
        (application(versions=Versions("0.1.0", "2026.8.0", "3.12")), 426, "Python 3.12 there and 3.11 at the driver"),
        (application(versions=Versions("0.2.0", "2026.8.0", "3.11")), 426, "computemesh is 0.2.0 there and 0.1.0"),
        (
            application(versions=Versions("0.1.0", "2025.1.0", "3.11")),
            426,
            "distributed is 2025.1.0 there and 2026.8.0",
        ),
        (application(time=NOW + 7200), 409, "7200 s ahead of the driver's"),
        (application(time=NOW - 7200), 409, "7200 s behind the driver's"),
        (application(name="Laptop Nr. 7"), 400, "no usable name"),
        (application(name=""), 400, "no usable name"),
        (application(name="../../etc"), 400, "no usable name"),
    ],
)
def test_enrolment_is_refused_with_the_reason(asked, status, says):
    with pytest.raises(Refused, match=says) as refused:
        judge(asked, books_with(token()), OURS, NOW, "10.0.0.1", 300)
    assert refused.value.status == status


def test_enrolment_grants_the_tokens_role_and_name():
    admission = judge(
        application(name="ignored"), books_with(token(role=Role.USER, name="alice")), OURS, NOW, "10.0.0.1", 300
    )
    assert (admission.role, admission.name) == (Role.USER, "alice")


def test_a_taken_name_is_refused_until_it_is_revoked():
    books = books_with(token())
    data = {"serial": "7", "role": "node", "name": "laptop-7", "expires": NOW + 1000}
    books.apply(Record(2, NOW, "certificate-issued", "", data=data))
    with pytest.raises(Refused, match="already in the mesh"):
        judge(application(), books, OURS, NOW, "10.0.0.1", 300)
    books.apply(Record(3, NOW, "certificates-denied", "", data={"serials": ["7"]}))
    assert judge(application(), books, OURS, NOW, "10.0.0.1", 300).name == "laptop-7"


def test_equal_versions_do_not_mismatch():
    assert mismatch(OURS, OURS) == ""


@pytest.mark.parametrize(
    ("silence", "health"),
    [(0, Health.ALIVE), (5.9, Health.ALIVE), (6, Health.SUSPECTED), (9.9, Health.SUSPECTED), (10, Health.DEAD)],
)
def test_three_missed_beats_are_suspect_and_five_are_death(silence, health):
    assert health_of(silence, Patience()) is health


def heard_of(registry, name, now):
    registry.connected(name, 1, now)
    registry.beat(name, now, Beat(sequence=1))


def test_a_driver_that_slept_itself_kills_nobody():
    registry = Registry(Patience(), 10)
    heard_of(registry, "a", 100.0)
    registry.check(100.5, 0.5)
    assert registry.check(4000.0, 0.5) == []
    assert [change.after for change in registry.check(4000.5, 0.5)] == []


@given(st.lists(st.floats(0.4, 0.6), min_size=30, max_size=60))
def test_a_silent_node_is_suspected_then_dead_never_the_other_way_round(rounds):
    registry = Registry(Patience(), 10)
    heard_of(registry, "a", 0.0)
    now, seen = 0.0, []
    for pause in rounds:
        now += pause
        seen += [change.after for change in registry.check(now, 0.5)]
    assert seen == [Health.ALIVE, Health.SUSPECTED, Health.DEAD][: len(seen)]
    assert (Health.DEAD in seen) == (now >= 10)


def test_a_cut_connection_is_suspect_at_once_and_a_stale_one_says_nothing():
    registry = Registry(Patience(), 10)
    heard_of(registry, "a", 0.0)
    registry.check(0.5, 0.5)
    assert registry.cut("a", 0) is None
    change = registry.cut("a", 1)
    assert change is not None
    assert change.after is Health.SUSPECTED
    heard_of(registry, "a", 1.0)
    assert [change.after for change in registry.check(1.1, 0.5)] == [Health.ALIVE]
