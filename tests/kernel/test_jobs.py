"""Work can be listed, kept after its notebook has ended, picked up, ended and forgotten."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest

import computemesh as face
from computemesh.errors import BadRequirement, Interrupted, NoSuchJob
from computemesh.kernel import jobs, kept_jobs
from computemesh.kernel.connection import connect
from computemesh.kernel.kept_jobs import KeptRecord, record_from, split_expired


@pytest.fixture(autouse=True)
def no_jobs(mesh, cluster):
    jobs._records.clear()
    yield
    with connect(cluster.scheduler_address) as again:
        kept_jobs.delete(again.client, kept_jobs.records(again.client))


def eventually(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


SCRIPT = """
import sys
import computemesh as face
face.connect(sys.argv[1])
def slow(x):
    import time
    time.sleep(0.3)
    return x * 2
face.map(slow, range(4), job="overnight", ttl="1 hour")
face.submit(slow, 1)
"""


def test_a_job_outlives_its_notebook_and_is_picked_up_elsewhere(mesh, cluster):
    subprocess.run([sys.executable, "-c", SCRIPT, cluster.scheduler_address], check=True, timeout=60)
    found = face.job("overnight")
    assert found.result(timeout=30) == [0, 2, 4, 6]
    assert found.status == "finished"
    assert found.counts == {"finished": 4}
    assert 3500 < found.kept - time.time() < 3601
    assert [job.id for job in face.jobs()] == ["overnight"], "what nobody kept ended with its process"
    assert "overnight" in repr(face.jobs())
    assert "<table>" in face.jobs()._repr_html_()
    assert "4 finished" in repr(found)
    found.forget()
    with pytest.raises(NoSuchJob, match=r"no job 'overnight'.*ttl"):
        face.job("overnight")
    eventually(lambda: not any("slow" in str(key) for keys in mesh.client.has_what().values() for key in keys))


def test_this_process_own_jobs_are_listed_by_number(mesh):
    futures = face.map(abs, [-1, -2])
    one = face.submit(pow, 2, 3)
    face.gather([*futures, one])
    listed = face.jobs()
    assert [(job.kind, job.title, job.status) for job in listed] == [
        ("submit", "pow", "finished"),
        ("map", "abs", "finished"),
    ]
    assert face.job(listed[1].id).result() == [1, 2]
    assert face.job(int(listed[0].id)).result() == 8
    del futures, one
    del listed
    eventually(lambda: len(face.jobs()) == 0)
    assert repr(face.jobs()) == "No jobs."


def test_a_job_can_be_cancelled_and_says_so(mesh):
    futures = face.map(time.sleep, [0.5] * 6, job="naps")
    job = face.job("naps")
    assert job.status in {"running", "waiting"}
    job.cancel()
    eventually(lambda: face.jobs() == ())
    with pytest.raises((Interrupted, NoSuchJob), match="cancelled"):
        job.result()
    assert futures[-1].cancelled()


def test_a_failed_job_raises_what_it_raised(mesh):
    face.submit(lambda: 1 / 0, job="broken")
    job = face.job("broken")
    with pytest.raises(ZeroDivisionError):
        job.result(timeout=20)
    assert job.status == "failed"


def test_a_name_used_again_is_the_newer_job(mesh):
    face.submit(pow, 2, 3, job="same")
    face.submit(pow, 2, 4, job="same")
    assert face.job("same").result() == 16
    assert len([job for job in face.jobs() if job.id == "same"]) == 1


def test_futures_of_any_origin_can_be_kept(mesh, cluster):
    future = mesh.client.submit(pow, 3, 3)
    face.keep(future, "cube")
    del future
    mesh.close()
    with connect(cluster.scheduler_address):
        assert face.job("cube").result() == [27]
        face.job("cube").forget()


def test_what_is_over_its_time_is_let_go(mesh):
    face.submit(pow, 2, 3, job="brief", ttl="100 ms")
    eventually(lambda: not [job for job in face.jobs() if job.id == "brief"])
    assert kept_jobs.records(mesh.client) == []


def test_another_users_jobs_are_not_mine(mesh, monkeypatch):
    face.submit(pow, 2, 3, job="mine").result()
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert [job.id for job in face.jobs() if job.kept] == []
    with pytest.raises(NoSuchJob, match="somebody-else"):
        face.job("mine")


def test_records_are_read_from_names_and_foreign_data_sets_are_left_alone(mesh):
    record = KeptRecord("a", "ada", "map", "fit", 3, 10.0, 20.0)
    assert record_from(record.dataset) == record
    for name in ("somebody's", "computemesh-job {", "computemesh-job {}", 5, ("a", 1)):
        assert record_from(name) is None
    assert split_expired([record], 19.9) == ([record], [])
    assert split_expired([record], 20.0) == ([], [record])
    mesh.client.publish_dataset(1, name="somebody's")
    assert face.jobs() == ()
    mesh.client.unpublish_dataset("somebody's")


@pytest.mark.parametrize("job", ["", "a b", "../x", "5", 7, "x" * 65])
def test_bad_names_are_refused_before_anything_runs(mesh, job):
    with pytest.raises(BadRequirement, match="job="):
        face.submit(pow, 2, 3, job=job)
    assert face.jobs() == ()


@pytest.mark.parametrize("ttl", [0, -1, "soon", "inf"])
def test_bad_times_are_refused(mesh, ttl):
    with pytest.raises(BadRequirement, match="ttl="):
        face.submit(pow, 2, 3, job="x", ttl=ttl)


def test_a_map_shows_its_progress_with_failures_and_nodes(mesh, capsys):
    futures = face.map(lambda x: 1 / x, [1, 2, 0], progress=True)
    said = "".join(capsys.readouterr())
    assert [future.status for future in futures] == ["finished", "finished", "error"]
    assert re.search(r"lambda: 3 in .* s: worker \d.*; 1 failed", said)


def test_a_bar_in_a_notebook_is_one_display_that_is_renewed(mesh, monkeypatch):
    from computemesh.kernel import map_progress, screens

    shown = []
    screen = screens.NotebookScreen()
    monkeypatch.setattr(
        screen, "display", lambda data, metadata, identity, update: shown.append((data, identity, update))
    )
    monkeypatch.setattr(map_progress, "screen_here", lambda: screen)

    def slow(x):
        import time

        time.sleep(0.5)
        return 1 / x

    face.map(slow, [1, 2, 3, 0], progress=True)
    assert len({identity for _, identity, _ in shown}) == 1
    assert [update for _, _, update in shown] == [False] + [True] * (len(shown) - 1)
    assert "<progress max='4'" in shown[0][0]["text/html"]
    assert " running on worker " in shown[0][0]["text/plain"]
    assert shown[-1][0]["text/plain"].startswith("slow: 4 in ")
    assert shown[-1][0]["text/plain"].endswith("; 1 failed")
