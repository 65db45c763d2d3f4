"""The agent's pure decisions."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computemesh.errors import BadConfiguration, Interrupted, TaskDied
from computemesh.node import Harvest
from computemesh.node_agent.accounting import Accounting, Member, too_large
from computemesh.node_agent.backoff import BackOff
from computemesh.node_agent.endings import (
    Deliver,
    Died,
    Fail,
    NeverStarted,
    Reschedule,
    Returned,
    Unusable,
    Unwound,
    Wish,
    how_it_died,
    verdict,
)
from computemesh.node_agent.joining import check_name, default_name
from computemesh.node_agent.link import smoothed
from computemesh.node_agent.log_files import OutputLog
from computemesh.node_agent.processes import ProcessTimes
from computemesh.node_agent.sampler import cpu_percent
from computemesh.node_agent.share import memory_of, share_of
from computemesh.node_agent.status_line import View, line

ENDS = st.one_of(
    st.just(Returned()),
    st.just(NeverStarted()),
    st.builds(Unwound, st.text(max_size=5)),
    st.builds(Unusable, st.text(max_size=5)),
    st.builds(Died, st.one_of(st.none(), st.integers(-64, 255))),
)


@given(ENDS, st.sampled_from(Wish))
def test_every_end_has_a_verdict_and_a_cancel_blames_nobody(end: object, wish: Wish) -> None:
    decided = verdict(end, wish, "n1", 5.0, 2.0)  # type: ignore[arg-type]
    if wish is Wish.CANCEL:
        assert decided == Reschedule()
    elif isinstance(end, Returned):
        assert decided == Deliver()
    else:
        assert isinstance(decided, Fail)
        assert "n1" in str(decided.error)


@pytest.mark.parametrize(
    ("end", "wish", "kind", "words"),
    [
        (Unwound(""), Wish.INTERRUPT, Interrupted, "Interrupted on n1"),
        (Unwound(""), Wish.TIMEOUT, Interrupted, "Ran out of its time on n1: stopped after 5 s"),
        (Died(-9), Wish.INTERRUPT, Interrupted, "did not stop within 2 s and was ended: what it had bound is lost"),
        (Died(-9), Wish.TIMEOUT, Interrupted, "after 5 s it did not stop within 2 s"),
        (Died(-9), Wish.KILL, Interrupted, "at once, as asked: what it had bound is lost"),
        (Died(-9), Wish.NONE, TaskDied, "was killed by SIGKILL: most often the node was out of memory"),
        (Died(-11), Wish.NONE, TaskDied, "was killed by SIGSEGV"),
        (Died(7), Wish.NONE, TaskDied, "ended with exit code 7"),
        (Died(None), Wish.NONE, TaskDied, "is gone without a result"),
    ],
)
def test_ends_in_words(end: object, wish: Wish, kind: type[Exception], words: str) -> None:
    decided = verdict(end, wish, "n1", 5.0, 2.0)  # type: ignore[arg-type]
    assert isinstance(decided, Fail)
    assert type(decided.error) is kind
    assert words in str(decided.error)


def test_every_signal_has_words() -> None:
    for number in signal.valid_signals():
        assert "was killed by" in how_it_died(-number)


@given(st.integers(1, 256), st.integers(1, 100), st.one_of(st.none(), st.integers(1, 512)))
def test_share_says_no_more_than_it_lends(cores: int, percent: int, threads: int | None) -> None:
    share = share_of(cores, f"{percent}%", threads)
    told = share.threads * share.thread_speed
    assert told == pytest.approx(min(share.lent, share.threads))
    assert 0 < share.thread_speed <= 1
    if threads is None:
        assert told == pytest.approx(share.lent) or share.threads < 2


@pytest.mark.parametrize("cpu", ["0%", "101%", "half", "-5%", "25", "1e2%"])
def test_nonsense_shares_are_refused_by_name(cpu: str) -> None:
    with pytest.raises(BadConfiguration, match="--cpu"):
        share_of(4, cpu, None)


def test_all_of_the_machine_is_not_paced() -> None:
    assert not share_of(4, "", None).paced
    assert not share_of(4, "100%", None).paced
    assert share_of(4, "99%", None).paced


@pytest.mark.parametrize(
    ("text", "lent"), [("", 12_000), ("50%", 8_000), ("4kB", 4_000), ("16000B", 16_000), ("100%", 16_000)]
)
def test_memory(text: str, lent: int) -> None:
    assert memory_of(16_000, text) == lent


@pytest.mark.parametrize("text", ["0%", "101%", "17kB", "much", "-1GB"])
def test_nonsense_memory_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadConfiguration, match="--memory"):
        memory_of(16_000, text)


@given(st.floats(0.01, 10), st.floats(10, 100), st.integers(1, 5000), st.integers())
def test_back_off_grows_within_its_bound(first: float, most: float, tries: int, seed: int) -> None:
    delays = BackOff(first, most, Random(seed))
    for count in range(min(tries, 60)):
        whole = min(most, first * 2.0**count)
        assert whole / 2 <= delays.next() <= whole
    delays.reset()
    assert delays.next() <= first


def member(pid: int, cpu: float = 0.0, memory: int = 0, group: int | None = None) -> Member:
    return Member(pid, ProcessTimes(cpu, memory, pid if group is None else group))


def test_cpu_of_ended_processes_is_neither_lost_nor_negative() -> None:
    # A capsule (3) has used 5 s, ends, is not reaped yet, and is then in its parent's figures.
    looks = iter(
        [
            [member(1, 1.0), member(2, 0.5), member(3, 5.0)],
            [member(1, 1.0), member(2, 0.5)],
            [member(1, 1.0), member(2, 5.6)],
        ]
    )
    accounting = Accounting(own_time=lambda: 0.0, members=lambda _root: next(looks))
    accounting.follow(1)
    assert accounting.look()[0] == pytest.approx(6.5)
    assert accounting.look()[0] == pytest.approx(6.5)
    assert accounting.look()[0] == pytest.approx(6.6)
    accounting.forget(1)
    assert accounting.look()[0] == pytest.approx(6.6)


@given(st.lists(st.lists(st.floats(0, 100), max_size=4), min_size=2, max_size=8))
def test_cpu_of_ours_never_goes_back(looks: list[list[float]]) -> None:
    remaining = iter(looks)
    accounting = Accounting(
        own_time=lambda: 0.0,
        members=lambda _root: [member(pid, cpu) for pid, cpu in enumerate(next(remaining))],
    )
    accounting.follow(1)
    seen = [accounting.look()[0] for _ in looks]
    assert seen == sorted(seen)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(-1, 100), st.integers(1, 256))
def test_cpu_percent_is_a_percentage(before: float, after: float, seconds: float, cores: int) -> None:
    assert 0 <= cpu_percent(before, after, seconds, cores) <= 100


def test_shared_pages_are_counted_once_before_anybody_is_ended() -> None:
    everyone = [member(1, memory=80), member(2, memory=70), member(3, memory=60)]
    assert too_large(everyone, 210, lambda _pid: 0) is None
    assert too_large(everyone, 100, {1: 50, 2: 20, 3: 30}.get) is None
    assert too_large(everyone, 90, {1: 50, 2: 20, 3: 30}.get) == (everyone[0], 100)
    assert too_large(everyone, 90, lambda _pid: None) == (everyone[0], 210)


@given(st.floats(0.001, 1), st.lists(st.floats(0.001, 1), min_size=1))
def test_round_trip_stays_within_what_was_measured(first: float, more: list[float]) -> None:
    mean = smoothed(0.0, first)
    assert mean == first
    for newest in more:
        mean = smoothed(mean, newest)
    assert min(first, *more) - 1e-9 <= mean <= max(first, *more) + 1e-9


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (
            View("laptop-7", "10.0.0.1:8790", True, True, Harvest.LENDING, 2, 12.2, 0.0031),
            "laptop-7 · lending to 10.0.0.1:8790 · 2 tasks · ours 12 % · rtt 3 ms",
        ),
        (
            View("laptop-7", "10.0.0.1:8790", True, True, Harvest.OWNER, 1, 0.0, 0.0002),
            "laptop-7 · in use by its owner, known to 10.0.0.1:8790 · 1 task · ours 0 % · rtt <1 ms",
        ),
        (
            View("laptop-7", "10.0.0.1:8790", True, False, Harvest.LENDING, 0, 0.0, 0.0),
            "laptop-7 · starting its worker for 10.0.0.1:8790 · 0 tasks · ours 0 % · rtt –",
        ),
        (
            View("laptop-7", "10.0.0.1:8790", True, True, Harvest.LENDING, 0, 0.0, 0.003, ("is cordoned",)),
            "laptop-7 · gets no tasks (is cordoned), known to 10.0.0.1:8790 · 0 tasks · ours 0 % · rtt 3 ms",
        ),
        (
            View("laptop-7", "10.0.0.1:8790", False, True, Harvest.LENDING, 2, 12.0, 0.003),
            "laptop-7 · looking for the driver at 10.0.0.1:8790",
        ),
    ],
)
def test_status_line(view: View, text: str) -> None:
    assert line(view) == text


@given(st.text(max_size=80))
def test_default_name_is_always_a_name(hostname: str) -> None:
    check_name(default_name(hostname))


def test_worker_output_is_kept_within_bounds(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "logs" / "worker.log", largest=1000, kept=2)
    for number in range(100):
        log.write(f"{number:03}".encode() * 30)
    log.close()
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == ["worker.log", "worker.log.1", "worker.log.2"]
    assert sum(file.stat().st_size for file in files) <= 3000
    assert (tmp_path / "logs" / "worker.log").read_bytes().endswith(b"099")
    assert math.isclose(len(files[1].read_bytes()), 990, abs_tol=90)
