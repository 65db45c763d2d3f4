"""What was acknowledged is still true after a restart, and the journal stays bounded."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from computemesh.driver.books import Books, Record
from computemesh.driver.journal import Journal
from computemesh.errors import BadConfiguration

names = st.sampled_from(["a", "b", "c"])
serials = st.integers(1, 5).map(str)
facts = {"name": "a"}
steps = st.one_of(
    st.tuples(st.just("node-enrolled"), names, st.fixed_dictionaries({"address": st.just("10.0.0.1")})),
    st.tuples(st.just("node-removed"), names, st.just({})),
    st.tuples(st.sampled_from(["node-cordoned", "node-uncordoned", "node-draining"]), names, st.just({})),
    st.tuples(st.just("node-facts"), names, st.just({"facts": facts})),
    st.tuples(st.just("loan-ended"), names, st.fixed_dictionaries({"kept": st.booleans()})),
    st.tuples(
        st.just("certificate-issued"),
        names,
        st.fixed_dictionaries(
            {"serial": serials, "role": st.just("node"), "name": names, "expires": st.floats(0, 2000)}
        ),
    ),
    st.tuples(
        st.just("certificates-denied"), names, st.fixed_dictionaries({"serials": st.lists(serials, max_size=2)})
    ),
    st.tuples(
        st.just("token-created"),
        st.just(""),
        st.fixed_dictionaries(
            {"token": st.fixed_dictionaries({"identifier": names, "digest": st.just("d"), "role": st.just("user"),
                                             "expires": st.floats(0, 1e6)})}
        ),
    ),
    st.tuples(st.just("token-used"), st.just(""), st.fixed_dictionaries({"identifier": names})),
    st.tuples(st.just("token-revoked"), st.just(""), st.fixed_dictionaries({"identifier": names})),
    st.tuples(st.just("something-else"), names, st.just({"free": "form"})),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=25), st.integers(0, 25))
def test_reading_the_journal_again_gives_the_same_books(tmp_path_factory, history, cut):
    file = tmp_path_factory.mktemp("journal") / "journal.sqlite"
    journal, books = Journal(file), Books()
    for number, (kind, node, data) in enumerate(history):
        books.apply(journal.append(1, float(number * 40), kind, "", node, data))
        if number == cut:
            journal.save_snapshot(journal.newest(1)[0].sequence, books.snapshot())
    journal.close()

    again, read = Journal(file), Books()
    since = 0
    if snapshot := again.load_snapshot():
        since, kept = snapshot
        read.restore(kept)
    for record in again.read(since):
        read.apply(record)
    again.close()
    assert json.dumps(read.snapshot(), sort_keys=True) == json.dumps(books.snapshot(), sort_keys=True)


def test_a_snapshot_drops_what_is_neither_needed_nor_recent(tmp_path):
    journal, books = Journal(tmp_path / "j.sqlite", kept=100), Books()
    for number in range(1000):
        books.apply(journal.append(1, float(number), "node-cordoned", "", "a", {}))
        if journal.snapshot_due():
            journal.save_snapshot(journal.newest(1)[0].sequence, books.snapshot())
    assert 100 <= len(list(journal.read())) <= 110


def test_each_start_begins_a_new_term(tmp_path):
    assert [Journal(tmp_path / "j.sqlite").lead() for _ in range(3)] == [1, 2, 3]


def test_a_file_that_is_no_journal_is_named(tmp_path):
    (tmp_path / "j.sqlite").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(BadConfiguration, match=r"j\.sqlite cannot be used"):
        Journal(tmp_path / "j.sqlite")


def test_old_loans_fade():
    books = Books()
    books.apply(Record(1, 0.0, "node-enrolled", "", "a", {"address": ""}))
    books.apply(Record(2, 1.0, "loan-ended", "", "a", {"kept": False}))
    books.apply(Record(3, 1.0 + 30 * 86400, "loan-ended", "", "a", {"kept": True}))
    loans = books.nodes["a"].reliability
    assert (loans.kept, loans.broken) == (1.0, 0.5)
