"""The owner of a machine is obeyed at once: real agents, workers and tasks, real input on a real X server."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from computemesh import protocol
from computemesh.node import Harvest
from computemesh.node_agent.reins import state_of

from .real_agent import Joined, Mesh
from .waiting import eventually


def press(display: str) -> None:
    subprocess.run(["xdotool", "key", "a"], env={**os.environ, "DISPLAY": display}, check=True)


def harvest(mesh: Mesh) -> Harvest | None:
    beats = mesh.driver.of(protocol.Beat)
    return beats[-1].harvest if beats else None


def below(agent: Joined) -> list[int]:
    return [process.pid for process in psutil.Process(agent.process.pid).children(recursive=True)]


def all_frozen(agent: Joined) -> bool:
    processes = below(agent)
    return bool(processes) and all(state_of(process) in "TZ" for process in processes)


def counts(folder: str, until: int) -> tuple[int, int]:
    """Count in a file, slowly; note each start."""
    with Path(folder, "starts").open("a") as starts:
        starts.write("s")
    child = subprocess.Popen(["sleep", "1000"])
    for number in range(until):
        Path(folder, "count").write_text(str(number))
        time.sleep(0.01)
    child.kill()
    return until, os.getpid()


def holds_the_gil(folder: str, seconds: float) -> int:
    """Compute in one C call that lets no other thread of the process run."""
    Path(folder, "holding").touch()
    end, number = time.process_time() + seconds, 0
    while time.process_time() < end:
        number += sum(range(3_000_000)) and 1
    return number


def notes(folder: str, name: int) -> int:
    """Note that it has run."""
    with Path(folder, "ran").open("a") as ran:
        ran.write(f"{name}\n")
    return name


def waits(folder: str) -> str:
    """Wait for the gate."""
    with Path(folder, "starts").open("a") as starts:
        starts.write("s")
    while not Path(folder, "gate").exists():
        time.sleep(0.01)
    return os.environ["COMPUTEMESH_NODE"]


def number_in(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


async def test_a_key_freezes_all_of_it_and_a_short_absence_goes_on_in_place(
    mesh: Mesh, display: str, tmp_path: Path
) -> None:
    mesh.policy("n1", idle="1 s", resume="2 s", evict="10 min")
    agent = await mesh.join("n1", "--service", "--threads", "2", DISPLAY=display)
    await mesh.worker_of(agent)
    task = mesh.submit(counts, str(tmp_path), 300)
    held = mesh.submit(holds_the_gil, str(tmp_path), 1.5, executor="default")
    await eventually(lambda: number_in(tmp_path / "count") > 5, "the task counts")
    await eventually((tmp_path / "holding").exists, "the thread computes")
    (worker,) = mesh.scheduler.workers.values()

    press(display)
    await eventually(lambda: all_frozen(agent), "all is frozen")
    assert len(below(agent)) >= 4
    await eventually(lambda: harvest(mesh) is Harvest.SUSPENDED, "the driver knows")
    frozen_at = number_in(tmp_path / "count")
    assert number_in(tmp_path / "count") == frozen_at

    value, _ = await task
    assert value == 300
    assert (tmp_path / "starts").read_text() == "s", "it went on where it was"
    assert await held >= 1
    await eventually(lambda: harvest(mesh) is Harvest.LENDING, "the driver knows")
    assert mesh.scheduler.workers == {worker.address: worker}
    assert await mesh.submit(lambda: 7) == 7


async def test_what_had_not_begun_runs_elsewhere_at_once_and_once(mesh: Mesh, display: str, tmp_path: Path) -> None:
    mesh.policy("n1", idle="1 s", resume="1 h", evict="10 min")
    mesh.scheduler.WORKER_SATURATION = math.inf
    agent = await mesh.join("n1", "--service", "--threads", "1", DISPLAY=display)
    await mesh.worker_of(agent)
    first = mesh.submit(waits, str(tmp_path))
    await eventually((tmp_path / "starts").exists, "the first runs")
    queued = [mesh.submit(notes, str(tmp_path), number, executor="default") for number in range(5)]
    (home,) = mesh.scheduler.workers.values()
    await eventually(lambda: len(home.processing) == 6, "all are sent there")
    await mesh.scheduler.extensions["stealing"].stop()
    await mesh.join("n2", "--service", "--dedicated")
    await eventually(lambda: len(mesh.scheduler.workers) == 2, "another node")

    press(display)
    assert await mesh.client.gather(queued) == list(range(5))
    assert sorted((tmp_path / "ran").read_text().split()) == list("01234")
    assert all_frozen(agent)
    assert set(home.processing) == {mesh.scheduler.tasks[first.key]}
    assert not any(task.suspicious for task in mesh.scheduler.tasks.values())


async def test_an_owner_who_stays_has_the_machine_back_and_the_work_is_done_elsewhere(
    mesh: Mesh, display: str, tmp_path: Path
) -> None:
    mesh.policy("n1", idle="1 s", resume="1 h", evict="1 s")
    agent = await mesh.join("n1", "--service", "--threads", "1", DISPLAY=display)
    await mesh.worker_of(agent)
    task = mesh.submit(waits, str(tmp_path))
    await eventually((tmp_path / "starts").exists, "it runs")
    tree = agent.see()
    await mesh.join("n2", "--service", "--dedicated")
    await eventually(lambda: len(mesh.scheduler.workers) == 2, "another node")

    press(display)
    await eventually(lambda: not any(process.is_running() for process in tree), "all of it is gone")
    (tmp_path / "gate").touch()
    assert await task == "n2"
    assert (tmp_path / "starts").read_text() == "ss"
    told = [beat for beat in mesh.driver.of(protocol.Beat) if beat.harvest is Harvest.EVICTING]
    assert told
    assert told[-1].worker == "", "the driver was told before the end"
    # Nobody has touched it for longer than its owner's second: it is lent again, with a new worker.
    await eventually(lambda: harvest(mesh) is Harvest.LENDING, "lent again")
    await eventually(lambda: len(mesh.scheduler.workers) == 2, "a new worker")


async def test_the_owner_is_obeyed_while_the_driver_is_away(mesh: Mesh, display: str, tmp_path: Path) -> None:
    mesh.policy("n1", idle="1 s", resume="1 h")
    agent = await mesh.join("n1", "--service", DISPLAY=display)
    await mesh.worker_of(agent)
    task = mesh.submit(counts, str(tmp_path), 10**6)
    await eventually(lambda: number_in(tmp_path / "count") > 5, "the task counts")
    await mesh.driver.close()
    press(display)
    await eventually(lambda: all_frozen(agent), "all is frozen")

    tree = agent.see()
    agent.process.kill()
    await agent.ends()
    await eventually(lambda: not any(process.is_running() for process in tree), "nothing frozen is left behind")
    mesh.driver.open()
    task.release()


async def test_a_worker_that_dies_while_its_owner_is_there_is_not_started_again(mesh: Mesh, display: str) -> None:
    mesh.policy("n1", idle="1 s", resume="5 s", evict="1 h")
    agent = await mesh.join("n1", "--service", DISPLAY=display)
    worker = await mesh.worker_of(agent)
    press(display)
    await eventually(lambda: all_frozen(agent), "all is frozen")
    worker.kill()
    await eventually(lambda: not below(agent), "nothing of it is left")
    before = len(mesh.driver.of(protocol.Beat))
    await eventually(lambda: len(mesh.driver.of(protocol.Beat)) > before + 15 or below(agent), "some beats")
    assert harvest(mesh) is not Harvest.SUSPENDED or not below(agent)
    await eventually(lambda: harvest(mesh) is Harvest.LENDING and below(agent), "lent again, with a new worker")


# ---------------------------------------------------------------- the owner's word


def mesh_command(home: Path, *words: str) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "computemesh", *words, "--home", str(home)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return ran.returncode, (ran.stdout + ran.stderr).strip()


async def said(home: Path, *words: str) -> str:
    code, text = await asyncio.to_thread(mesh_command, home, *words)
    assert code == 0, text
    return text


async def test_a_pause_is_obeyed_at_once_kept_over_a_restart_and_ended_by_the_owner_alone(mesh: Mesh) -> None:
    mesh.policy("n1", idle="0 s")
    agent = await mesh.join("n1", "--service")
    await mesh.worker_of(agent)
    await mesh.driver.close()
    assert (await said(agent.home, "pause")).endswith("paused by its owner.")
    await eventually(lambda: not below(agent), "all is given back")
    assert "Not lent: paused by its owner" in await said(agent.home, "status")
    agent.process.terminate()
    await agent.ends()

    mesh.driver.open()
    again = await mesh.join("n1", "--service")
    await eventually(lambda: harvest(mesh) is Harvest.IDLE, "the driver knows")
    assert "paused" in mesh.driver.of(protocol.Beat)[-1].reason
    assert below(again) == []
    await said(agent.home, "resume")
    await mesh.worker_of(again)
    assert "It was not paused" in await said(agent.home, "resume")
    text = await said(agent.home, "pause", "2h")
    assert "paused by its owner until" in text
    assert "has left the mesh" in await said(agent.home, "leave", "--forget")
    assert again.process.returncode is not None or await again.ends()
    assert [leaving.reason for leaving in mesh.driver.of(protocol.Leaving)][-1] == "its owner took it back"
    code, text = await asyncio.to_thread(mesh_command, agent.home, "status")
    assert code == 1
    assert text.startswith("Error: No agent runs here")


async def test_a_changed_policy_counts_at_once_and_a_bad_one_changes_nothing(mesh: Mesh) -> None:
    mesh.policy("n1", idle="0 s")
    agent = await mesh.join("n1", "--service")
    await mesh.worker_of(agent)
    assert await said(agent.home, "policy", "set", "calendar", "never") == "calendar is never now."
    await eventually(lambda: harvest(mesh) in (Harvest.EVICTING, Harvest.IDLE), "it is not lent")
    assert "its calendar lends it never" in await said(agent.home, "policy", "explain")

    file = agent.home / "policy.toml"
    file.write_text(file.read_text() + '\nbatery = "50 %"\n')
    wrong = await eventually(
        lambda: [report for report in mesh.driver.of(protocol.Report) if report.kind == "policy-refused"], "a report"
    )
    assert "line 7: there is no field 'batery'" in wrong[0].text
    assert "the last good one counts" in await said(agent.home, "status")
    code, text = await asyncio.to_thread(mesh_command, agent.home, "policy", "check")
    assert (code, "line 7" in text) == (1, True)
    agent.process.terminate()
    await agent.ends()
    agent = await mesh.join("n1", "--service")
    text = await eventually(lambda: mesh_command(agent.home, "status")[1].count("lends it never"), "the last good one")
    assert below(agent) == [], "over a restart too"

    mesh.policy("n1", idle="0 s")
    await eventually(lambda: harvest(mesh) is Harvest.LENDING, "lent again")
    mesh.driver.tell(protocol.Rules(rules={"default": {"evict": "9 s"}, "ceiling": {"calendar": "never"}}))
    await eventually(lambda: harvest(mesh) is not Harvest.LENDING, "the ceiling counts")
    shown: dict[str, Any] = {
        line.split()[0]: line for line in (await said(agent.home, "policy", "show")).splitlines() if line.strip()
    }
    assert "never" in shown["calendar"]
    assert "ceiling" in shown["calendar"]
    assert "default" in shown["evict"]
    assert "owner" in shown["idle"]


async def test_a_smaller_share_counts_from_the_next_loan(mesh: Mesh) -> None:
    mesh.policy("n1", idle="0 s")
    agent = await mesh.join("n1", "--service", "--threads", "2", "--memory", "2GB")
    await mesh.worker_of(agent)
    total = psutil.virtual_memory().total
    await said(agent.home, "policy", "set", "ram", f"{100e9 / total:.3f} %")
    await said(agent.home, "pause")
    await eventually(lambda: not mesh.scheduler.workers, "the worker has gone")
    await said(agent.home, "resume")
    (worker,) = await eventually(lambda: list(mesh.scheduler.workers.values()), "a new worker")
    assert worker.memory_limit <= 1.001e9
    await eventually(lambda: mesh.driver.of(protocol.Hello)[-1].facts.ram <= 1.001e9, "the driver knows")
