"""A connection outlives its scheduler, renews its certificate, and tells what was lost."""

from __future__ import annotations

import contextlib
import datetime
import subprocess
import sys
import threading
import time

import pytest

import computemesh as mesh
from computemesh.certificates import Role, certificate_pem, key_pem, new_authority, new_key, new_request, sign
from computemesh.errors import DriverUnreachable, Interrupted
from computemesh.identity import Identity, save_identity
from computemesh.kernel.connection import connect
from computemesh.kernel.futures import scheduler_gone
from computemesh.kernel.renewal import Renewal


@contextlib.contextmanager
def process(*arguments: str):
    child = subprocess.Popen([sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def scheduler(port: int):
    return process("dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--dashboard-address", "127.0.0.1:0")


def worker(port: int):
    return process("dask_worker", f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-nanny", "--no-dashboard")


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually_connected(address: str):
    deadline = time.monotonic() + 30
    while True:
        try:
            return connect(address)
        except DriverUnreachable:
            if time.monotonic() > deadline:
                raise


def test_a_restarted_scheduler_fails_open_futures_with_one_clear_error_and_new_work_runs():
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with scheduler(port) as first, worker(port):
        found = eventually_connected(address)
        started = mesh.submit(pow, 2, 3)
        assert started.result() == 8
        futures = mesh.map(time.sleep, [60, 60])
        first.kill()
        first.wait()
        with pytest.raises(Interrupted, match="scheduler was restarted at .*submit again"):
            futures[0].result(timeout=30)
        with pytest.raises(Interrupted, match="scheduler was restarted at .*submit again"):
            mesh.gather(futures)
        with scheduler(port), worker(port):
            assert mesh.submit(pow, 2, 5).result(timeout=60) == 32
            assert found.client.status == "running"
        found.close()


def test_only_a_lost_scheduler_counts_as_one():
    assert scheduler_gone(ValueError("scheduler-connection-lost"), None) is None


@pytest.fixture
def identity(tmp_path) -> Identity:
    made = Identity(tmp_path / "user", Role.USER, "ada", "127.0.0.1:1")
    issue(made, new_authority(datetime.datetime.now(datetime.UTC)))
    return made


def issue(identity: Identity, authority) -> None:
    key = new_key()
    now = datetime.datetime.now(datetime.UTC)
    leaf = sign(authority, new_request(key, "ada"), Role.USER, "ada", [], now, datetime.timedelta(days=1))
    save_identity(identity, certificate_pem(authority[1]), certificate_pem(leaf), key_pem(key))


def test_a_certificate_is_renewed_when_half_its_life_is_over_and_not_again(identity):
    asked = []
    authority = new_authority(datetime.datetime.now(datetime.UTC))

    def renew(which: Identity) -> None:
        asked.append(which)
        issue(which, authority)

    now = time.time()
    Renewal(identity, renew, now=lambda: now + 11 * 3600).check()
    assert asked == []
    Renewal(identity, renew, now=lambda: now + 13 * 3600).check()
    assert asked == [identity]
    Renewal(identity, renew, now=lambda: now).check()
    assert asked == [identity], "another notebook finds it fresh"


def test_a_renewal_happens_unattended(identity):
    renewed = threading.Event()
    renewal = Renewal(identity, lambda _identity: renewed.set(), every=0.01, now=lambda: time.time() + 13 * 3600)
    renewal.start()
    assert renewed.wait(20)
    renewal.stop()


def test_a_driver_that_is_away_leaves_the_old_certificate_in_use(identity):
    def renew(_identity: Identity) -> None:
        raise DriverUnreachable("away")

    before = identity.certificate.read_bytes()
    Renewal(identity, renew, now=lambda: time.time() + 13 * 3600).check()
    assert identity.certificate.read_bytes() == before


def test_a_driver_that_does_not_answer_is_named(identity, monkeypatch):
    monkeypatch.setenv("COMPUTEMESH_HOME", str(identity.folder.parent))
    with pytest.raises(DriverUnreachable, match="127.0.0.1:1"):
        mesh.connect()


def test_connecting_anew_leaves_dasks_configuration_as_it_was(cluster):
    import dask

    assert dask.config.get("scheduler", None) is None
    connect(cluster.scheduler_address)
    with connect(cluster.scheduler_address) as found:
        assert dask.config.get("scheduler") == "dask.distributed"
        assert mesh.submit(pow, 2, 3).result() == 8
        assert mesh.submit(pow, 2, 3).client is found.client
    assert dask.config.get("scheduler", None) is None


def test_why_waits_for_a_task_that_was_submitted_just_now(mesh, monkeypatch):
    """Submissions go in batches, questions at once: the scheduler may be asked before it knows the task."""
    answers = [{"state": "unknown"}, {"state": "unknown"}, {"state": "no-worker", "sentence": "it waits"}]
    monkeypatch.setattr(type(mesh), "ask", lambda self, question, **arguments: answers.pop(0))

    class Submitted:
        key, status = "a-task", "pending"

    assert mesh.why(Submitted).sentence == "it waits"
    answers[:] = [{"state": "unknown"}]
    assert "Nothing is known" in mesh.why("no-such-key").sentence
