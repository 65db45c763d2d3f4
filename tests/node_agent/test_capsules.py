"""A task in a capsule: a process of its own, at no cost to the worker, that can be ended at any moment."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from distributed import CancelledError, Client, Reschedule, get_client, get_worker, worker_client

import computemesh.output
from computemesh.errors import Interrupted, Refused, TaskDied
from computemesh.node_agent.frames import Kind, read_frame
from computemesh.protocol import CAPSULE_SIGNAL

from .conftest import Cluster
from .waiting import BOUND, eventually


def increment(value: int) -> int:
    return value + 1


def about_process() -> dict[str, int | bool | str]:
    return {
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "main": threading.current_thread() is threading.main_thread(),
        "stdin": str(Path("/proc/self/fd/0").readlink()),
    }


def spin() -> None:
    while True:
        pass


async def test_task_runs_in_main_thread_of_its_own_process(cluster: Cluster) -> None:
    first, second = await cluster.client.gather([cluster.submit(about_process) for _ in range(2)])
    assert first["pid"] != second["pid"]
    for about in (first, second):
        assert about["pid"] != os.getpid()
        assert about["group"] == about["pid"]
        assert about["main"]
        assert about["stdin"] == "/dev/null"


async def test_many_tasks_in_a_row_and_at_once(cluster: Cluster) -> None:
    for value in range(30):
        assert await cluster.submit(increment, value) == value + 1
    futures = [cluster.submit(increment, value) for value in range(40)]
    assert await cluster.client.gather(futures) == list(range(1, 41))
    assert cluster.capsules.counts["finished"] == 70
    assert not cluster.capsules.running


async def test_spares_are_refilled(cluster: Cluster) -> None:
    spares = cluster.capsules.spares
    assert await asyncio.to_thread(spares.wait_ready, BOUND)
    waiting = spares._ready[0].pid
    about = await cluster.submit(about_process)
    assert about["pid"] == waiting
    assert await asyncio.to_thread(spares.wait_ready, BOUND)
    assert spares._ready[0].pid != waiting


async def test_a_spare_that_is_killed_is_replaced(cluster: Cluster) -> None:
    spares = cluster.capsules.spares
    assert await asyncio.to_thread(spares.wait_ready, BOUND)
    victim = spares._ready[0].pid
    os.kill(victim, signal.SIGKILL)
    await eventually(lambda: spares._ready and spares._ready[0].pid != victim)
    assert await cluster.submit(increment, 1) == 2


async def test_a_zygote_that_is_killed_is_replaced(cluster: Cluster) -> None:
    spares = cluster.capsules.spares
    assert await asyncio.to_thread(spares.wait_ready, BOUND)
    zygote = psutil.Process(spares._ready[0].pid).parent()
    assert zygote is not None
    future = cluster.submit(time.sleep, 600)
    capsule = await cluster.running(future.key)
    zygote.kill()
    with pytest.raises(TaskDied, match="SIGKILL"):
        await future
    await eventually(lambda: not psutil.pid_exists(capsule))
    assert await cluster.submit(increment, 1) == 2


async def test_large_results_and_arguments_arrive_whole_and_writable(cluster: Cluster) -> None:
    array = await cluster.submit(lambda: np.arange(300_000_000 // 8))
    assert array.nbytes == 300_000_000
    assert array[-1] == array.size - 1
    future = cluster.submit(np.ones, 10_000_000)
    doubled = await cluster.submit(lambda ones: float((ones * 2).sum()), future)
    assert doubled == 20_000_000
    assert cluster.worker.data[future.key].flags.writeable
    pieces = await cluster.submit(lambda: [np.full(3, index) for index in range(2000)])
    assert int(sum(piece[0] for piece in pieces)) == sum(range(2000))


async def test_class_defined_in_the_notebook_comes_back(cluster: Cluster) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    point = await cluster.submit(Point, 3)
    assert point.x == 3


async def test_error_of_the_task_is_the_users_own(cluster: Cluster) -> None:
    def divide() -> float:
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        await cluster.submit(divide)
    assert any(entry.name == "divide" for entry in caught.traceback)


async def test_error_that_cannot_be_read_back_does_no_harm(cluster: Cluster) -> None:
    class Picky(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("picky")

    def fail() -> None:
        raise Picky(1, 2)

    with pytest.raises(Exception, match="picky"):
        await cluster.submit(fail)
    assert await cluster.submit(increment, 1) == 2


async def test_result_that_cannot_be_sent_names_its_type(cluster: Cluster) -> None:
    with pytest.raises(TaskDied, match=r"n1 returned a _thread\.lock, which cannot be sent back"):
        await cluster.submit(threading.Lock)


async def test_result_that_cannot_be_read_back_is_an_error(cluster: Cluster) -> None:
    class Sour:
        def __reduce__(self) -> tuple[object, ...]:
            return int, ("no number",)

    with pytest.raises(TaskDied, match="cannot be read back: ValueError"):
        await cluster.submit(Sour)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "process on n1 was killed by SIGKILL: most often .* memory"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "process on n1 was killed by SIGSEGV"),
        (lambda: ctypes.string_at(1), "process on n1 was killed by SIGSEGV"),
        (os.abort, "process on n1 was killed by SIGABRT"),
        (lambda: os._exit(3), "process on n1 ended with exit code 3"),
        (lambda: sys.exit(4), r"called sys\.exit\(4\)"),
    ],
    ids=["kill", "segv", "bad-pointer", "abort", "os-exit", "sys-exit"],
)
async def test_death_of_the_process_is_named(cluster: Cluster, end: object, words: str) -> None:
    with pytest.raises(TaskDied, match=words):
        await cluster.submit(end)
    assert await cluster.submit(increment, 1) == 2
    assert cluster.worker.status.name == "running"


async def test_death_is_seen_though_a_grandchild_holds_the_channel(cluster: Cluster) -> None:
    def fork_and_die() -> None:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TaskDied, match="SIGKILL"):
        await cluster.submit(fork_and_die)


async def test_cancel_ends_the_process_and_frees_the_slot(cluster: Cluster) -> None:
    futures = [cluster.submit(spin) for _ in range(2)]
    capsules = [await cluster.running(future.key) for future in futures]
    await cluster.client.cancel(futures)
    for capsule in capsules:
        await eventually(lambda pid=capsule: not psutil.pid_exists(pid))
    assert await cluster.submit(increment, 1) == 2
    for future in futures:
        with pytest.raises(CancelledError):
            await future
    assert not cluster.worker.state.executing


async def test_cancelled_and_asked_again_runs_again(cluster: Cluster, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def first_long(path: Path) -> str:
        with path.open("a") as file:
            file.write("x")
        if path.read_text() == "x":
            time.sleep(600)
        return "second"

    import dask

    with dask.annotate(executor="capsule"):
        future = cluster.client.submit(first_long, started, key="again")
    await eventually(lambda: started.exists() and started.read_text() == "x")
    await cluster.client.cancel(future)
    async with Client(cluster.scheduler.address, asynchronous=True) as other:
        with dask.annotate(executor="capsule"):
            assert await other.submit(first_long, started, key="again") == "second"


async def test_interrupt_raises_in_a_spinning_task(cluster: Cluster) -> None:
    future = cluster.submit(spin)
    await cluster.running(future.key)
    send(cluster, future.key, "interrupt")
    with pytest.raises(Interrupted, match=r"^Interrupted on n1$"):
        await future


async def test_interrupt_reaches_sleep_and_subprocess(cluster: Cluster) -> None:
    for call in (lambda: time.sleep(600), lambda: subprocess.run(["sleep", "600"], check=True)):
        future = cluster.submit(call)
        await cluster.running(future.key)
        send(cluster, future.key, "interrupt")
        with pytest.raises(Interrupted):
            await future
        assert "lost" not in str(await future.exception())


async def test_interrupted_task_may_answer_with_a_value(cluster: Cluster, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def careful() -> str:
        try:
            started.touch()
            time.sleep(600)
        except KeyboardInterrupt:
            return "kept"
        return "never"

    future = cluster.submit(careful)
    await eventually(started.exists)
    send(cluster, future.key, "interrupt")
    assert await future == "kept"


async def test_task_that_ignores_the_interrupt_is_ended_and_says_what_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def stubborn() -> None:
        started.touch()
        # Locking a plain mutex twice blocks in C with Python's lock held, and no signal ends that.
        mutex = ctypes.create_string_buffer(64)
        library = ctypes.PyDLL(None)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)

    cluster.capsules.grace = 0.3
    future = cluster.submit(stubborn)
    await eventually(started.exists)
    send(cluster, future.key, "interrupt")
    with pytest.raises(Interrupted, match=r"did not stop within 0\.3 s and was ended: what it had bound is lost"):
        await future


async def test_kill_ends_at_once(cluster: Cluster) -> None:
    future = cluster.submit(spin)
    capsule = await cluster.running(future.key)
    send(cluster, future.key, "kill")
    with pytest.raises(Interrupted, match="at once, as asked: what it had bound is lost"):
        await future
    assert not psutil.pid_exists(capsule)


async def test_interrupt_before_the_start_keeps_it_from_starting(cluster: Cluster, tmp_path: Path) -> None:
    spares = cluster.capsules.spares
    assert await asyncio.to_thread(spares.wait_ready, BOUND)
    zygote = psutil.Process(spares._ready[0].pid).parent()
    assert zygote is not None
    zygote.kill()
    await eventually(lambda: not spares._ready)
    future = cluster.submit((tmp_path / "ran").touch)
    await eventually(lambda: future.key in cluster.capsules.running)
    cluster.capsules.signal(future.key)
    with pytest.raises(Interrupted, match="before it had started"):
        await future
    assert not (tmp_path / "ran").exists()


async def test_signals_to_nobody_and_nonsense_are_ignored(cluster: Cluster) -> None:
    send(cluster, "no-such-key", "interrupt")
    future = cluster.submit(time.sleep, 0.2)
    await cluster.running(future.key)
    send(cluster, future.key, "dance")
    assert await future is None


async def test_timeout_interrupts_and_says_so(cluster: Cluster) -> None:
    with pytest.raises(Interrupted, match=r"Ran out of its time on n1: stopped after 0\.2 s"):
        await cluster.submit(spin, timeout=0.2)
    assert await cluster.submit(increment, 1, timeout=30) == 2


async def test_keyboard_interrupt_and_reschedule_of_the_task_itself(cluster: Cluster, tmp_path: Path) -> None:
    def own_interrupt() -> None:
        raise KeyboardInterrupt

    def second_time(path: Path) -> str:
        if not path.exists():
            path.touch()
            raise Reschedule
        return "moved"

    with pytest.raises(Interrupted, match="by itself"):
        await cluster.submit(own_interrupt)
    assert await cluster.submit(second_time, tmp_path / "mark") == "moved"


async def test_nothing_that_a_task_starts_survives_it(cluster: Cluster) -> None:
    def leave_daemons() -> list[int]:
        plain = subprocess.Popen(["sleep", "600"])
        apart = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return [os.getpid(), plain.pid, apart.pid]

    left = await cluster.submit(leave_daemons)
    for process in left:
        await eventually(lambda pid=process: not psutil.pid_exists(pid), f"{process} of {left} ends")


async def test_messages_arrive_in_order_and_before_the_result(cluster: Cluster) -> None:
    def talk() -> str:
        for number in range(3000):
            computemesh.output.emit("talk", {"number": number, "data": b"\x00raw"})
        return "done"

    heard: list[int] = []
    cluster.client.subscribe_topic("talk", lambda event: heard.append(event[1]["number"]))
    await eventually(lambda: cluster.scheduler._broker._topics["talk"].subscribers)
    assert await cluster.submit(talk) == "done"
    events = [message["number"] for _, message in cluster.scheduler.get_events("talk")]
    assert events == list(range(3000))[-len(events) :]
    assert events[-1] == 2999
    await eventually(lambda: len(heard) == 3000)
    assert heard == list(range(3000))


async def test_worker_and_client_are_refused_in_words(cluster: Cluster) -> None:
    def with_worker_client() -> None:
        with worker_client():
            pass

    with pytest.raises(ValueError, match=r"runs in a capsule.*get_worker\(\) is not available"):
        await cluster.submit(get_worker)
    for call in (get_client, with_worker_client):
        with pytest.raises(Refused, match="this scheduler grants no rights to tasks"):
            await cluster.submit(call)


async def test_nested_dask_computes_inside_a_capsule(cluster: Cluster) -> None:
    def nested() -> int:
        import dask

        return int(dask.delayed(sum)([dask.delayed(increment)(1), 3]).compute())

    assert await cluster.submit(nested) == 5


async def test_capsules_draw_different_random_numbers(cluster: Cluster) -> None:
    drawn = await cluster.client.gather([cluster.submit(lambda: float(np.random.random())) for _ in range(5)])
    assert len(set(drawn)) == 5


async def test_cpu_and_memory_of_each_task_are_known(cluster: Cluster) -> None:
    def work() -> None:
        data = bytearray(200_000_000)
        end = time.process_time() + 0.3
        while time.process_time() < end:
            data[0] = 1

    future = cluster.submit(work)
    await future
    (usage,) = (usage for usage in cluster.capsules.ended if usage.key == future.key)
    assert 0.3 <= usage.cpu < 3
    assert 200e6 < usage.peak < 600e6
    assert usage.handover < usage.seconds


async def test_running_capsules_are_in_the_workers_metrics(cluster: Cluster) -> None:
    future = cluster.submit(time.sleep, 600)
    await cluster.running(future.key)
    metrics = (await cluster.worker.get_metrics())["mesh"]
    assert metrics["executors"] == ["capsule"]
    assert metrics["capsules"] == 1
    assert metrics["memory"] > 1e6
    await eventually(
        lambda: cluster.scheduler.workers[cluster.worker.address].metrics.get("mesh", {}).get("capsules") == 1
    )
    send(cluster, future.key, "kill")
    with pytest.raises(Interrupted):
        await future


async def test_closing_a_worker_with_running_capsules_leaves_none(cluster: Cluster) -> None:
    future = cluster.submit(spin)
    capsule = await cluster.running(future.key)
    zygote = psutil.Process(capsule).ppid()
    await cluster.worker.close()
    for process in (capsule, zygote):
        await eventually(lambda pid=process: not psutil.pid_exists(pid))
    await future.cancel()


WORKER = """
import asyncio, sys
from distributed import Worker
from computemesh.node_agent.capsules import CapsulePlugin

async def main():
    worker = await Worker(sys.argv[1], nthreads=2, name="victim", host="127.0.0.1", dashboard=False)
    await worker.plugin_add(CapsulePlugin())
    await worker.finished()

asyncio.run(main())
"""


async def test_no_orphan_after_the_worker_is_killed(cluster: Cluster) -> None:
    import dask

    def hold(port: int) -> None:
        # A subprocess of the task and the task itself both hold a connection; its end is their death.
        socket.create_connection(("127.0.0.1", port))
        spin()

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(WORKER), cluster.scheduler.address
    )
    await eventually(lambda: len(cluster.scheduler.workers) == 2)
    address = next(a for a, ws in cluster.scheduler.workers.items() if ws.name == "victim")
    closed = asyncio.Event()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()
        closed.set()
        writer.close()

    arrived = asyncio.Event()
    server = await asyncio.start_server(served, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with dask.annotate(executor="capsule"):
        future = cluster.client.submit(hold, port, workers=[address], pure=False)
    async with asyncio.timeout(BOUND):
        await arrived.wait()
        tree = psutil.Process(process.pid).children(recursive=True)
        assert len(tree) >= 3
        process.kill()
        await process.wait()
        await closed.wait()
    for child in tree:
        await eventually(lambda one=child: not one.is_running())
    server.close()
    await future.cancel()


def send(cluster: Cluster, key: str, how: str) -> None:
    """Signal a capsule the way the scheduler plugin does."""
    message = {"op": CAPSULE_SIGNAL, "key": key, "how": how, "stimulus_id": "test"}
    cluster.scheduler.worker_send(cluster.worker.address, message)


def test_zygote_ends_in_order_when_its_worker_dies_with_a_report_unread() -> None:
    """The kernel then says reset where it else says end; without order, `setsid` children of capsules would stay."""
    ours, its = socket.socketpair()
    zygote = subprocess.Popen(
        [sys.executable, "-m", "computemesh.node_agent.zygote", str(its.fileno()), str(os.getpid())],
        pass_fds=[its.fileno()],
        stderr=subprocess.PIPE,
        text=True,
    )
    its.close()
    channel, capsules = socket.socketpair()
    socket.send_fds(ours, [b"+"], [capsules.fileno()])
    capsules.close()
    assert read_frame(channel).kind is Kind.READY
    channel.close()
    ready, _, _ = select.select([ours], [], [], 60)
    assert ready, "no report of the ended capsule"
    ours.close()
    _, printed = zygote.communicate(timeout=30)
    assert (zygote.returncode, "Traceback" in printed) == (0, False), printed


async def test_what_few_tasks_need_is_imported_for_capsules_to_come_once_one_has_used_it(cluster: Cluster) -> None:
    def imported(use: bool) -> bool:
        import sys

        before = "ipykernel.kernelapp" in sys.modules
        if use:
            import ipykernel.kernelapp  # noqa: F401
        return before

    assert not await cluster.submit(imported, False)
    assert not await cluster.submit(imported, True)
    deadline = time.monotonic() + BOUND
    while not await cluster.submit(imported, False):
        assert time.monotonic() < deadline
