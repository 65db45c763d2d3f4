"""A machine that slept, or a process that was stopped, comes back by itself; a clock that is set disturbs nothing."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from computemesh import protocol
from computemesh.node_agent.waking import Clocks, Wakefulness, slept

from .real_agent import Mesh
from .waiting import eventually


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        (Clocks(10, 10), Clocks(11, 11), 0),
        (Clocks(10, 10), Clocks(14, 14), 0),  # a busy machine
        (Clocks(10, 10), Clocks(11, 3611), 3600),  # suspended
        (Clocks(10, 500), Clocks(11, 501), 0),  # slept before
        (Clocks(10, 10), Clocks(31, 31), 20),  # the process was stopped
        (Clocks(10, None), Clocks(31, None), 20),  # a platform whose clock runs on
        (Clocks(10, None), Clocks(11, None), 0),
    ],
)
def test_sleep_is_told_from_waiting(before, after, seconds):
    assert slept(before, after, 1.0) == seconds


def test_each_sleep_is_noticed_once():
    read = iter([Clocks(0, 0), Clocks(1, 1), Clocks(2, 102), Clocks(3, 103)])
    wakefulness = Wakefulness(1.0, lambda: next(read))
    assert [wakefulness.look() for _ in range(3)] == [0, 100, 0]


async def test_a_stopped_machine_is_back_at_once_when_it_goes_on(mesh: Mesh) -> None:
    agent = await mesh.join("n1", "--service", "--dedicated")
    await mesh.worker_of(agent)
    processes = [agent.process.pid, *(process.pid for process in agent.see())]
    connections = mesh.driver.connections
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    await asyncio.sleep(7)  # that long it sleeps: there is nothing to wait for
    before = len(mesh.driver.of(protocol.Beat))
    for process in processes:
        os.kill(process, signal.SIGCONT)
    await eventually(lambda: mesh.driver.connections > connections, "it connects anew")
    await eventually(lambda: len(mesh.driver.of(protocol.Beat)) > before + 3, "it beats")
    assert await mesh.submit(lambda: 7) == 7
    assert "slept for" in agent.log()
