"""Processes come and go, and the mesh goes on."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from .conftest import House, client_of, mesh, scheduler_process, until, worker_process


def test_a_restarted_driver_knows_its_nodes_and_they_come_back_by_themselves(house: House):
    house.join("desk")
    house.lending("desk")
    assert mesh("cordon", "desk", "--home", str(house.home)).returncode == 0
    assert house.end("driver") == 0
    house.up()
    known = house.node("desk")
    assert known["cordoned"]
    assert known["facts"]["ram"] == 1_000_000_000
    until(lambda: house.node("desk")["health"] == "alive", "the node coming back")
    assert mesh("uncordon", "desk", "--home", str(house.home)).returncode == 0
    house.lending("desk")
    with client_of(house) as client:
        assert client.submit(lambda: 6 * 7).result(timeout=30) == 42


def test_a_driver_killed_without_notice_leaves_nothing_running_and_starts_again(house: House):
    child = scheduler_process(house)
    house.processes["driver"].kill()
    house.processes.pop("driver").wait()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the scheduler's end")
    house.up()
    assert house.client.nodes() == ()


def test_each_second_that_was_lent_counts_once_though_the_driver_is_killed(house: House):
    house.join("desk")
    house.lending("desk")

    def lent() -> dict[int, float]:
        history = house.client.get("/v1/nodes/desk")["history"]
        return {sample["number"]: sample["seconds"] for sample in history if sample["lent"]}

    def noted() -> float:
        return 3600 * house.client.get("/v1/savings")["total"]["hours"]

    until(lambda: len(lent()) >= 4, "some lent seconds")
    seen = lent()
    house.processes["driver"].kill()
    house.processes.pop("driver").wait()
    house.up()
    house.lending("desk")

    def exact() -> bool:
        all_lent = {**seen, **lent()}
        return abs(noted() - sum(all_lent.values())) < 0.01

    until(exact, "the ledger to be exact")
    later = lent()
    assert min(later) <= max(seen) + 1, "what the killed driver had not written was sent again"
    assert "desk" in mesh("savings", "--home", str(house.home)).stdout


def test_the_scheduler_is_restarted_and_open_futures_end_with_an_error(house: House):
    house.join("desk")
    house.lending("desk")
    with client_of(house) as client:
        import time

        future = client.submit(time.sleep, 600)
        until(lambda: client.processing() and any(client.processing().values()), "the task's start")
        scheduler_process(house).kill()
        with pytest.raises(Exception):  # noqa: B017 - stock Dask's error; the SDK's own is tested with the SDK
            future.result(timeout=60)
    until(lambda: len(house.events("scheduler-started")) == 2, "the scheduler's second start")
    # Not after the 30 s that a closing Dask worker would wait for the sleeping thread.
    house.lending("desk", bound=20)
    with client_of(house) as client:
        assert client.submit(lambda: 42).result(timeout=60) == 42


def test_an_agent_killed_without_notice_takes_its_worker_along_and_is_dead_in_ten_seconds(house: House):
    house.join("desk")
    house.join("rack")
    house.lending("desk", "rack")
    worker = worker_process(house, "desk")
    with client_of(house) as client:
        address = house.node("desk")["worker"]
        future = client.submit(lambda: __import__("time").sleep(3) or 42, workers=[address], allow_other_workers=True)
        until(lambda: client.processing().get(address), "the task on desk")
        house.processes["desk"].kill()
        house.processes.pop("desk").wait()
        assert future.result(timeout=60) == 42
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "the worker's end", 10)
    until(lambda: house.node("desk")["health"] == "dead", "its death", 20)
    kinds = [event["kind"] for event in house.events() if event["node"] == "desk"]
    assert kinds.index("node-suspected") < kinds.index("node-dead") < kinds.index("loan-ended")
    house.rejoin("desk")
    house.lending("desk")


def test_a_killed_worker_is_started_again(house: House):
    house.join("desk")
    house.lending("desk")
    before = worker_process(house, "desk")
    before.kill()
    until(lambda: before.pid != worker_process_or_none(house, "desk"), "another worker")
    house.lending("desk")
    with client_of(house) as client:
        assert client.submit(os.getpid).result(timeout=60) != before.pid


def worker_process_or_none(house: House, name: str) -> int:
    try:
        return worker_process(house, name).pid
    except StopIteration:
        return -1


def test_a_silent_node_is_suspected_then_dead_and_serves_again_when_it_wakes(house: House):
    house.join("desk")
    house.lending("desk")
    agent = house.processes["desk"]
    os.kill(agent.pid, signal.SIGSTOP)
    until(lambda: house.node("desk")["health"] == "suspected", "suspicion", 15)
    until(lambda: house.node("desk")["health"] == "dead", "death", 15)
    os.kill(agent.pid, signal.SIGCONT)
    until(lambda: house.node("desk")["health"] == "alive", "its return", 15)
    house.lending("desk")


def test_leaving_by_plan_is_a_kept_loan(house: House):
    house.join("desk")
    house.lending("desk")
    assert house.end("desk", signal.SIGINT) == 0
    until(lambda: house.events("node-left"), "its leaving")
    assert house.node("desk")["reliability"]["kept"] == 1.0
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(house.folder / "desk") in " ".join(process.info["cmdline"] or ())
    ]


def test_a_revoked_node_leaves_at_once_and_its_name_is_free_again(house: House):
    house.join("desk")
    house.lending("desk")
    assert mesh("revoke", "desk", "--home", str(house.home)).returncode == 0
    agent = house.processes.pop("desk")
    assert agent.wait(30) == 1
    assert "revoked" in house.log("desk")
    assert house.client.nodes() == ()
    house.rejoin("desk")
    assert house.processes.pop("desk").wait(30) == 1
    import shutil

    shutil.rmtree(house.folder / "desk")
    house.join("desk")
    house.lending("desk")


def test_drain_empties_a_node_and_keeps_its_results(house: House):
    house.join("desk")
    house.join("rack")
    house.lending("desk", "rack")
    with client_of(house) as client:
        desk, rack = house.node("desk")["worker"], house.node("rack")["worker"]
        held = client.submit(lambda: "only here", workers=[desk], allow_other_workers=True)
        held.result(timeout=30)
        queued = client.map(lambda x: __import__("time").sleep(0.2) or x, range(20))
        done = mesh("drain", "desk", "--home", str(house.home), "--timeout", "60", timeout=90)
        assert done.returncode == 0, done.stderr
        assert "desk is empty" in done.stdout
        assert rack in next(iter(client.who_has([held]).values()))
        assert client.gather(queued) == list(range(20))
        ran = len(house.client.get("/v1/placements?count=1000"))
        house.processes["desk"].kill()
        house.processes.pop("desk").wait()
        until(lambda: desk not in client.scheduler_info()["workers"], "the worker's end")
        assert held.result(timeout=30) == "only here"
        assert len(house.client.get("/v1/placements?count=1000")) == ran, "a result was computed again"


def test_an_owners_limits_and_a_drivers_ports_are_kept_for_the_next_start(house: House):
    made = house.token()
    limits = ("--dedicated", "--threads", "1", "--memory", "1GB", "--site", "london/floor2", "--pool", "night")
    folder = str(house.folder / "desk")
    given = ("--token", made["token"], "--ca", made["ca"], "--name", "desk", *limits, "--service", "--home", folder)
    house.spawn("desk", "join", house.address, *given)
    house.lending("desk")
    assert house.end("desk", signal.SIGINT) == 0
    until(lambda: house.node("desk")["gates"] == ["has left"], "its leaving in words")
    assert house.end("driver") == 0
    house.spawn("driver", "up", "--home", str(house.home))
    until(lambda: house.client.status().scheduler, "the driver at the same ports")
    house.spawn("desk", "join", "--service", "--home", folder)
    house.lending("desk")
    facts = house.node("desk")["facts"]
    assert facts["ram"] == 1_000_000_000
    assert (facts["dedicated"], facts["site"], facts["pools"], facts["cores"]) == (
        True,
        "london/floor2",
        ["night"],
        1.0,
    )


def test_revoking_the_local_administrator_replaces_its_certificate_and_nobody_revokes_himself(house: House, tmp_path):
    import shutil

    from computemesh.driver_client import DriverClient, enrol
    from computemesh.errors import NotTrusted, Refused
    from computemesh.identity import load_identity

    shutil.copytree(house.home / "admin", tmp_path / "stolen")
    made = house.token("admin", name="grace")
    grace = enrol(house.address, made["ca"], made["token"], tmp_path / "grace")
    with pytest.raises(Refused, match="lock you out"):
        DriverClient(grace).post("/v1/revoke", {"name": "grace"})
    assert mesh("revoke", "admin", "--home", str(house.home)).returncode == 0
    assert house.client.nodes() == ()
    with pytest.raises(NotTrusted, match="revoked"):
        DriverClient(load_identity(tmp_path / "stolen")).nodes()


def test_a_token_for_another_role_is_refused_before_it_is_used_up(house: House, tmp_path):
    node, user = house.token("node"), house.token("user", name="alice")
    done = mesh("login", house.address, "--token", node["token"], "--ca", node["ca"], "--home", str(tmp_path / "l"))
    assert (done.returncode, "use it with `mesh join`" in done.stderr) == (1, True), done.stderr
    done = mesh("join", house.address, "--token", user["token"], "--ca", user["ca"], "--home", str(tmp_path / "j"))
    assert (done.returncode, "use it with `mesh login`" in done.stderr) == (1, True), done.stderr
    done = mesh("login", house.address, "--token", user["token"], "--ca", user["ca"], "--home", str(tmp_path / "l"))
    assert done.returncode == 0, done.stderr
    house.join("desk")
    house.lending("desk")
    taken = house.token("user", name="desk")
    done = mesh("login", house.address, "--token", taken["token"], "--ca", taken["ca"], "--home", str(tmp_path / "t"))
    assert "already in the mesh" in done.stderr
