"""How well the mesh uses nodes of different speeds: makespan of 200 tasks on speeds 1:2:4:8, ÷ work ÷ total speed.

The nodes are simulated by timed waits: real Dask workers with one thread each, whose tasks sleep for their length
divided by the node's speed. So the figure shows placement, not the machine's CPU. Both sides know the mean length of
each task prefix beforehand, through Dask's own setting.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import dask
from distributed import Client, Scheduler, Worker, get_worker

from computemesh.node import Node, NodeFacts, Sample
from computemesh.scheduler_plugin import MeshPlugin

from .result import Direction, Result, median, spread_of

GOAL = 1.10
SPEEDS = {"node-1": 1.0, "node-2": 2.0, "node-4": 4.0, "node-8": 8.0}
LENGTHS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)
"""Of the prefixes, in mean lengths."""
TASKS = 200
GB = 10**9


def work(length: float, _number: int) -> float:
    time.sleep(length / SPEEDS[get_worker().name])
    return length


def plan(mean: float, random: Random) -> list[tuple[str, float]]:
    """Return (key, seconds at speed 1) of each task, shuffled; the key's prefix tells the length."""
    tasks = [
        (f"work{number % len(LENGTHS)}-{number}", LENGTHS[number % len(LENGTHS)] * mean) for number in range(TASKS)
    ]
    random.shuffle(tasks)
    return tasks


def nodes() -> list[Node]:
    """Return what an agent would have reported of the simulated nodes."""
    return [
        Node(
            facts=NodeFacts(name=name, cores=1, ram=8 * GB, core_speed=speed),
            sample=Sample(time=0.0, ram_free=8 * GB),
        )
        for name, speed in SPEEDS.items()
    ]


async def makespan(mesh: bool, tasks: list[tuple[str, float]], mean: float) -> tuple[float, dict[str, int]]:
    """Return the seconds from submission to the last result, and how many tasks each node ran."""
    usual = len(SPEEDS) / sum(SPEEDS.values())
    settings: dict[str, Any] = {
        "distributed.scheduler.default-task-durations": {
            f"work{index}": f"{length * mean * usual}s" for index, length in enumerate(LENGTHS)
        },
        "distributed.admin.tick.limit": "60s",
    }
    async with AsyncExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        scheduler = await stack.enter_async_context(
            Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0")
        )
        if mesh:
            await scheduler.register_scheduler_plugin(
                MeshPlugin(nodes(), foreign_sampling=False, random=Random(0)), idempotent=True
            )
        for name in SPEEDS:
            await stack.enter_async_context(Worker(scheduler.address, name=name, nthreads=1, host="127.0.0.1"))
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        begun = time.perf_counter()
        keys, lengths = zip(*tasks, strict=True)
        futures = client.map(work, lengths, range(len(tasks)), key=list(keys))
        await client.gather(futures)
        taken = time.perf_counter() - begun
        ran = dict.fromkeys(SPEEDS, 0)
        for future in futures:
            for ws in scheduler.tasks[future.key].who_has or ():
                ran[ws.name] += 1
        return taken, ran


def run(quick: bool) -> Result:
    """Measure."""
    mean, rounds = (0.3, 1) if quick else (0.7, 5)
    ours: list[float] = []
    stock: list[float] = []
    detail: dict[str, Any] = {"nodes": "timed waits at speeds 1:2:4:8", "tasks": TASKS}
    for number in range(rounds):
        tasks = plan(mean, Random(number))
        ideal = sum(length for _, length in tasks) / sum(SPEEDS.values())
        for mesh, found in ((False, stock), (True, ours)):
            taken, ran = asyncio.run(makespan(mesh, tasks, mean))
            found.append(taken / ideal)
            label = "mesh" if mesh else "stock Dask"
            detail[f"{label}, round {number}"] = (
                f"{taken:.2f} s of {ideal:.2f} s ideal: {taken / ideal:.3f}; tasks by node {list(ran.values())}"
            )
    return Result(
        name="makespan",
        figure=median(ours),
        unit="× ideal",
        spread=spread_of(ours),
        goal=GOAL,
        direction=Direction.AT_MOST,
        compared_with=f"stock Dask, same tasks and nodes in the same run: {median(stock):.3f} × ideal",
        detail=detail,
    )
