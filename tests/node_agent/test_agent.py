"""Agents as real processes against a driver of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import psutil
import pytest

from computemesh import protocol
from computemesh.certificates import Role, lifetime_of
from computemesh.dask_security import MeshSecurity
from computemesh.errors import Interrupted, TaskDied
from computemesh.node import Harvest

from .fake_driver import FakeDriver, tls_scheduler
from .real_agent import Mesh
from .waiting import BOUND, eventually


def square(value: int) -> int:
    return value * value


async def test_joined_node_lends_a_worker_and_leaves_in_order(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated", "--site", "lab/1", "--pool", "gpu")
    await mesh.worker_of(agent)
    (hello,) = mesh.driver.of(protocol.Hello)
    assert hello.version == protocol.VERSION
    facts = hello.facts
    assert (facts.name, facts.site, facts.pools, facts.dedicated) == ("n1", "lab/1", ("gpu",), True)
    assert facts.cores == psutil.cpu_count()
    assert 0 < facts.ram < psutil.virtual_memory().total
    assert facts.core_speed > 0.1
    assert facts.packages is not None
    assert facts.packages["distributed"] == facts.distributed

    assert await mesh.submit(square, 7) == 49
    assert await mesh.submit(square, 8, executor="default") == 64
    beat = await eventually(lambda: [beat for beat in mesh.driver.of(protocol.Beat) if beat.network.throughput])
    assert beat[-1].harvest is Harvest.LENDING
    assert 0 < beat[-1].network.round_trip < BOUND
    assert mesh.driver.probes == ["POST 2000000", "GET"]
    samples = [sample for beat in mesh.driver.of(protocol.Beat) for sample in beat.samples]
    assert samples
    assert all(0 <= sample.cpu_ours <= 100 and sample.ram_free > 0 for sample in samples)

    tree = agent.see()
    agent.process.send_signal(signal.SIGTERM)
    code, errors = await agent.ends()
    assert code == 0, errors
    assert [leaving.reason for leaving in mesh.driver.of(protocol.Leaving)] == ["the agent was stopped"]
    assert not any(process.is_running() for process in tree)
    await eventually(lambda: not mesh.scheduler.workers)


async def test_killed_agent_takes_everything_with_it(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    await mesh.worker_of(agent)
    future = mesh.submit(_spin_with_child)
    await eventually(lambda: _sleeping(agent.see()) == 2)
    tree = agent.tree
    agent.process.kill()
    await agent.ends()
    for process in tree:
        await eventually(lambda one=process: not one.is_running(), str(process))
    await future.cancel()


def _sleeping(tree: list[psutil.Process]) -> int:
    count = 0
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            count += process.name() == "sleep"
    return count


def _spin_with_child() -> None:
    import subprocess

    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    while True:
        pass


async def test_killed_worker_is_started_again_and_reported(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    worker = await mesh.worker_of(agent)
    future = mesh.submit(_spin_with_child)
    await eventually(lambda: _sleeping(agent.see()) == 2)
    tree = agent.tree
    await future.cancel()
    worker.kill()
    reports = await eventually(lambda: mesh.driver.of(protocol.Report))
    assert (reports[0].kind, reports[0].text) == ("worker-died", "the worker was killed by SIGKILL")
    for process in tree:
        await eventually(lambda one=process: not one.is_running(), str(process))
    assert await mesh.submit(square, 3) == 9


async def test_interrupt_reaches_a_node(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    await mesh.worker_of(agent)
    future = mesh.submit(_spin)
    await eventually(lambda: any(ws.processing for ws in mesh.scheduler.workers.values()))
    (address,) = mesh.scheduler.workers
    await eventually(lambda: mesh.scheduler.workers[address].metrics.get("mesh", {}).get("capsules") == 1)
    order = {"op": "mesh-capsule-signal", "key": future.key, "how": "interrupt", "stimulus_id": "test"}
    mesh.scheduler.worker_send(address, order)
    with pytest.raises(Interrupted, match="Interrupted on n1"):
        await future


def _spin() -> None:
    while True:
        pass


async def test_driver_away_leaves_the_worker_running_and_loses_no_sample(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    worker = await mesh.worker_of(agent)
    await mesh.driver.close()
    before = len(mesh.driver.heard)
    assert await mesh.submit(square, 5) == 25
    await asyncio.sleep(2.5)  # samples must pile up meanwhile; there is nothing to wait for
    mesh.driver.open()
    await eventually(lambda: mesh.driver.connections == 2)
    hellos = mesh.driver.of(protocol.Hello)
    assert hellos[0].incarnation == hellos[1].incarnation
    await eventually(
        lambda: any(isinstance(m, protocol.Beat) and len(m.samples) >= 2 for m in list(mesh.driver.heard)[before:])
    )
    assert worker.is_running()


async def test_silent_driver_is_left_and_tried_again(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    await eventually(lambda: mesh.driver.connections == 1)
    mesh.driver.silent = True
    await eventually(lambda: mesh.driver.connections >= 2)
    assert "has stopped answering" in agent.log()


async def test_new_scheduler_gets_the_worker(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    worker = await mesh.worker_of(agent)
    async with tls_scheduler(mesh.driver) as second:
        mesh.driver.scheduler_address = second.address
        mesh.driver.tell(mesh.driver.welcome())
        await eventually(lambda: second.workers)
        await eventually(lambda: not worker.is_running())


async def test_lost_scheduler_ends_the_worker_which_comes_back(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    await mesh.worker_of(agent)
    mesh.driver.scheduler_address = ""
    mesh.driver.tell(mesh.driver.welcome())
    await mesh.client.close()
    await mesh.scheduler.close()
    await eventually(lambda: "lost the connection to its scheduler" in agent.log())
    async with tls_scheduler(mesh.driver) as second:
        mesh.driver.scheduler_address = second.address
        mesh.driver.tell(mesh.driver.welcome())
        await eventually(lambda: second.workers)
    assert not mesh.driver.of(protocol.Report)


async def test_revoked_certificates_are_turned_away_by_the_worker(mesh: Mesh) -> None:
    from cryptography import x509
    from distributed.core import rpc

    agent = await mesh.join("n1", "--service", "--dedicated")
    await mesh.worker_of(agent)
    (address,) = mesh.scheduler.workers
    other = mesh.driver.authority.identity(mesh.folder / "other", Role.NODE, "n2", mesh.driver.address)
    security = MeshSecurity(other)
    async with rpc(address, connection_args=security.get_connection_args("worker")) as peer:
        assert (await peer.identity())["id"]
    serial = x509.load_pem_x509_certificate(other.certificate.read_bytes()).serial_number
    mesh.driver.tell(protocol.Denied(serials=(serial,)))

    async def turned_away() -> bool:
        try:
            async with rpc(address, connection_args=security.get_connection_args("worker"), timeout=5) as peer:
                await peer.identity()
        except OSError:
            return True
        return False

    async with asyncio.timeout(BOUND):
        while not await turned_away():  # noqa: ASYNC110 - the worker's own doing has no event here
            await asyncio.sleep(0.05)
    reports = await eventually(lambda: mesh.driver.of(protocol.Report))
    assert [report.kind for report in reports] == ["refused-certificate"] * len(reports), reports


async def test_certificate_is_renewed_at_half_its_life(mesh: Mesh) -> None:
    identity = mesh.driver.node(mesh.folder / "n1", "n1", age=2000, life=3600)
    before = lifetime_of(identity.certificate.read_bytes())
    await mesh.join("n1", "--service", "--dedicated")
    await eventually(lambda: mesh.driver.renewals == 1)
    await eventually(lambda: lifetime_of(identity.certificate.read_bytes()) > before)


async def test_too_much_memory_ends_the_capsule_and_not_the_worker(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated", "--memory", "700MB")
    worker = await mesh.worker_of(agent)
    with pytest.raises(TaskDied, match="killed by SIGKILL"):
        await mesh.submit(_hoard)
    reports = await eventually(lambda: mesh.driver.of(protocol.Report))
    assert reports[0].kind == "memory-exceeded"
    assert "the largest task was ended" in reports[0].text
    assert worker.is_running()
    assert await mesh.submit(square, 3) == 9


def _hoard() -> None:
    import time

    kept = bytearray(1_000_000_000)
    time.sleep(600)
    del kept


@pytest.mark.parametrize("by", ["quota", "turns"])
async def test_share_of_the_cpu_is_kept(mesh: Mesh, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import textwrap

    # Without a writable cgroup the agent falls back to turns; this makes it so for the test.
    site = mesh.folder / "site"
    site.mkdir()
    if by == "turns":
        (site / "sitecustomize.py").write_text(
            textwrap.dedent(
                """
                import sys
                if "join" in sys.orig_argv:
                    import computemesh.node_agent.supervisor as supervisor
                    supervisor.make_quota_group = lambda name, lent: None
                """
            )
        )
    cores = psutil.cpu_count() or 1
    agent = await mesh.join(
        "n1", "--service", "--dedicated", "--cpu", f"{40 / cores}%", "--threads", "1", PYTHONPATH=str(site)
    )
    await mesh.worker_of(agent)
    (hello,) = mesh.driver.of(protocol.Hello)
    full = hello.facts.core_speed / 0.4
    assert hello.facts.cores == 1
    assert full > 0.1
    used, passed = await mesh.submit(_burn, 3.0)
    assert 0.1 < used / passed < 0.65, f"{used:.2f} s of CPU in {passed:.2f} s"
    agent.process.send_signal(signal.SIGTERM)
    code, _ = await agent.ends()
    assert code == 0
    assert ("turns of running" in agent.log()) == (by == "turns")


def _burn(seconds: float) -> tuple[float, float]:
    import time

    began = time.monotonic()
    while time.monotonic() - began < seconds:
        pass
    return time.process_time(), time.monotonic() - began


# ---------------------------------------------------------------- joining


async def test_first_join_enrols_and_the_second_needs_no_token(mesh: Mesh) -> None:
    mesh.driver.tokens.add("id.secret")
    ask = [mesh.driver.address, "--token", "id.secret", "--ca", mesh.driver.authority.pin, "--name", "desk-1"]
    agent = await mesh.join("n1", "--service", "--dedicated", *ask, enrolled=False)
    await eventually(lambda: mesh.driver.of(protocol.Hello))
    agent.process.send_signal(signal.SIGINT)
    assert (await agent.ends())[0] == 0
    again = await mesh.join("n1", "--service", "--dedicated", enrolled=False)
    await eventually(lambda: len(mesh.driver.of(protocol.Hello)) == 2)
    first, second = mesh.driver.of(protocol.Hello)
    assert first.facts.name == second.facts.name == "desk-1"
    assert second.incarnation == first.incarnation + 1
    assert first.facts.core_speed == second.facts.core_speed
    again.process.send_signal(signal.SIGTERM)
    assert (await again.ends())[0] == 0


async def test_the_same_join_command_a_second_time_goes_on(mesh: Mesh) -> None:
    mesh.driver.tokens.add("id.secret")
    ask = [mesh.driver.address, "--token", "id.secret", "--ca", mesh.driver.authority.pin, "--name", "desk-1"]
    for start in (1, 2):
        agent = await mesh.join("n1", "--service", "--dedicated", *ask, enrolled=False)
        await eventually(lambda expected=start: len(mesh.driver.of(protocol.Hello)) == expected)
        agent.process.send_signal(signal.SIGTERM)
        code, errors = await agent.ends()
        assert code == 0
    assert "this machine is enrolled as desk-1 already" in errors


async def test_worker_and_capsules_step_back_for_an_owner(mesh: Mesh) -> None:
    mesh.policy("n1", idle="0 s")
    agent = await mesh.join("n1", "--service")
    worker = await mesh.worker_of(agent)
    policy, nice = await mesh.submit(lambda: (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)))
    assert (policy, nice) == (os.SCHED_IDLE, 19)
    assert os.sched_getscheduler(worker.pid) == os.SCHED_IDLE
    assert os.sched_getscheduler(agent.process.pid) == os.SCHED_OTHER
    assert (await mesh.submit(lambda: os.environ["OMP_NUM_THREADS"])) == str(psutil.cpu_count())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "This machine is in no mesh yet"),
        (["--token", "a.b"], "--token needs --ca"),
        (["{driver}", "--token", "a.b"], "--token needs --ca"),
        (["{driver}", "--token", "a.b", "--ca", "{pin}"], "The token is unknown, used or expired"),
        (["{driver}", "--token", "a.b", "--ca", "sha256:" + 64 * "0"], "is not the one in the join command"),
        (["{driver}", "--token", "a.b", "--ca", "md5:1"], "--ca 'md5:1' is not usable"),
        (["127.0.0.1:1", "--token", "a.b", "--ca", "{pin}"], "Nobody listens at 127.0.0.1:1"),
        (["--cpu", "300%"], "--cpu '300%' is not usable"),
        (["--cpu", "half"], "--cpu 'half' is not usable"),
        (["--memory", "9999TB"], "--memory '9999TB' is not usable: this machine has"),
        (["--memory", "lots"], "--memory 'lots' is not usable"),
        (["--pool", "A B"], "pool='A B' is not usable"),
        (["--name", "No Name"], "--name 'No Name' is not usable"),
    ],
)
async def test_what_cannot_work_is_one_clear_message(mesh: Mesh, options: list[str], words: str) -> None:
    filled = [option.format(driver=mesh.driver.address, pin=mesh.driver.authority.pin) for option in options]
    agent = await mesh.join("n1", "--service", *filled, enrolled=False)
    code, errors = await agent.ends()
    assert code == 1
    assert words in errors
    assert errors.startswith("Error: ")
    assert "Traceback" not in errors


async def test_refusal_of_the_driver_ends_the_agent_with_its_words(mesh: Mesh) -> None:
    mesh.driver.refuse = "computemesh 9.9 there, 0.1.0 here: install the same"
    agent = await mesh.join("n1", "--service", "--dedicated")
    code, errors = await agent.ends()
    assert code == 1
    assert "computemesh 9.9 there, 0.1.0 here" in errors
    assert "Traceback" not in errors


async def test_order_to_leave_ends_agent_and_worker(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    await mesh.worker_of(agent)
    tree = agent.see()
    mesh.driver.tell(protocol.Leave(reason="it was revoked by an administrator"))
    code, errors = await agent.ends()
    assert code == 1
    assert "it was revoked by an administrator" in errors
    assert not any(process.is_running() for process in tree)


async def test_certificate_of_another_mesh_is_turned_away(mesh: Mesh) -> None:
    foreign = FakeDriver(mesh.folder / "foreign")
    foreign.port = mesh.driver.port
    foreign.node(mesh.folder / "n1", "n1")
    agent = await mesh.join("n1", "--service", "--dedicated", enrolled=False)
    code, errors = await agent.ends()
    assert code == 1
    assert f"What answers at {mesh.driver.address} is not the driver of this mesh" in errors


async def test_second_agent_of_one_home_is_refused(mesh: Mesh) -> None:
    first = await mesh.join("n1", "--service", "--dedicated")
    await eventually(lambda: mesh.driver.of(protocol.Hello))
    second = await mesh.join("n1", "--service", "--dedicated")
    code, errors = await second.ends()
    assert code == 1
    assert f"Another agent (process {first.process.pid}) runs with the home {first.home}" in errors


async def test_foreground_shows_its_state_without_a_terminal(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--dedicated")
    await mesh.worker_of(agent)
    assert agent.process.stdout is not None
    async with asyncio.timeout(BOUND):
        while f"n1 · lending to {mesh.driver.address}" not in (await agent.process.stdout.readline()).decode():
            pass
