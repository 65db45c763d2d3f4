"""What the mesh costs the scheduler: CPU per no-op task, stock Dask ÷ with plugin, link and journal, nodes beating.

Each round starts both schedulers afresh, one after the other, in turns, with fake workers that answer at once: what
clings to a process (memory layout, hash seed, a busy core) is drawn anew for each round. Noise only ever adds CPU, so
each side is judged by its best round; the medians stand beside.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import dask
import psutil
from distributed import Client, wait

from .result import Direction, Result, median, spread_of

GOAL = 0.95


def noop(*_: Any) -> int:
    return 0


def by_map(client: Client, tasks: int, mark: int) -> None:
    """Run a flat map."""
    wait(client.map(noop, range(tasks), key=f"noop-{mark}", pure=False))


def by_tree(client: Client, tasks: int, mark: int) -> None:
    """Run a delayed tree of arity 4."""
    level = [dask.delayed(noop)(index, dask_key_name=f"leaf-{mark}-{index}") for index in range(tasks * 3 // 4)]
    depth = 0
    while len(level) > 1:
        depth += 1
        level = [
            dask.delayed(noop)(*level[start : start + 4], dask_key_name=f"node-{mark}-{depth}-{start}")
            for start in range(0, len(level), 4)
        ]
    wait(client.compute(level[0]))


@contextlib.contextmanager
def cluster(workers: int, mesh: bool) -> Iterator[tuple[Client, psutil.Process]]:
    """Start a scheduler with fake workers."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if mesh:
            stack.enter_context(_running("_driver", folder, str(workers)))
        process, address = stack.enter_context(_running("_scheduler", *([f"{folder}/link"] if mesh else [])))
        stack.enter_context(_running("_fake_workers", address, str(workers)))
        client = stack.enter_context(Client(address, set_as_default=False))
        client.wait_for_workers(workers, timeout=60)
        yield client, psutil.Process(process.pid)


@contextlib.contextmanager
def _running(module: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a module of this folder; yield its process and the line by which it says that it is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.{module}", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        yield process, process.stdout.readline().strip() if process.stdout else ""
    finally:
        process.kill()
        process.wait()


def cpu_per_task(
    run: Callable[[Client, int, int], None], client: Client, process: psutil.Process, tasks: int, mark: int
) -> float:
    """Return the scheduler's CPU per task in microseconds, from the graph until the last task is forgotten."""
    before = sum(process.cpu_times()[:2])
    with client.as_current():
        run(client, tasks, mark)
    while client.run_on_scheduler(_tasks_left):
        time.sleep(0.2)
    return (sum(process.cpu_times()[:2]) - before) / tasks * 1e6


def _tasks_left(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


SHAPES = {"map": by_map, "delayed tree": by_tree}


def measured(workers: int, mesh: bool, tasks: int) -> dict[str, float]:
    """Return CPU per task by shape, on a scheduler of its own that has run a little of each before."""
    with cluster(workers, mesh) as (client, process):
        for shape in SHAPES.values():
            cpu_per_task(shape, client, process, tasks // 10, 0)
        return {name: cpu_per_task(shape, client, process, tasks, 1) for name, shape in SHAPES.items()}


def run(quick: bool) -> Result:
    """Measure."""
    tasks, rounds = (1_500, 1) if quick else (20_000, 5)
    ratios: list[float] = []
    worst: list[float] = []
    detail: dict[str, Any] = {"tasks a round": tasks, "rounds": rounds}
    for workers in (4, 100):
        found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for number in range(rounds):
            for mesh in (False, True) if number % 2 else (True, False):
                found[mesh].append(measured(workers, mesh, tasks))
        for name in SHAPES:
            bare, ours = ([one[name] for one in found[mesh]] for mesh in (False, True))
            ratios += [one / other for one, other in zip(bare, ours, strict=True)]
            worst.append(min(bare) / min(ours))
            detail[f"{name}, {workers} workers"] = (
                f"{min(bare):.0f} µs stock, {min(ours):.0f} µs with plugin: ratio {min(bare) / min(ours):.3f} "
                f"(of medians {median(bare) / median(ours):.3f})"
            )
    return Result(
        name="overhead",
        figure=min(worst),
        unit="",
        spread=spread_of(ratios),
        goal=GOAL,
        direction=Direction.AT_LEAST,
        compared_with="stock Dask, alternated rounds in the same run (figure: the worst of the four below)",
        detail=detail,
    )
