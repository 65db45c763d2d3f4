"""What the mesh costs the scheduler: CPU per no-op task, stock Dask ÷ with plugin, link and journal, nodes beating.

Each round starts both schedulers afresh, with fake workers that answer at once, and gives each the same graphs in the
order A B B A: a machine that grows slower or faster meanwhile does so for both. Such a block of four runs makes one
ratio; the figure is the median over the blocks of the worst of four cases.
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


def block(
    shape: Callable[[Client, int, int], None], sides: dict[bool, tuple[Client, psutil.Process]], tasks: int, mark: int
) -> tuple[float, float]:
    """Return both sides' CPU per task, stock first, over four runs in the order A B B A."""
    spent = {False: 0.0, True: 0.0}
    for number, mesh in enumerate((False, True, True, False) if mark % 2 else (True, False, False, True)):
        spent[mesh] += cpu_per_task(shape, *sides[mesh], tasks, 10 * mark + number) / 2
    return spent[False], spent[True]


def run(quick: bool) -> Result:
    """Measure."""
    tasks, rounds, blocks = (1_500, 1, 1) if quick else (20_000, 2, 2)
    ratios: list[float] = []
    worst: list[float] = []
    detail: dict[str, Any] = {"tasks a run": tasks, "blocks of four runs": rounds * blocks}
    for workers in (4, 100):
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in SHAPES}
        for number in range(rounds):
            with cluster(workers, False) as stock, cluster(workers, True) as mesh:
                sides = {False: stock, True: mesh}
                for side in sides.values():
                    for shape in SHAPES.values():
                        cpu_per_task(shape, *side, tasks // 10, 0)
                for count in range(blocks):
                    for name, shape in SHAPES.items():
                        found[name].append(block(shape, sides, tasks, 1 + number * blocks + count))
        for name, pairs in found.items():
            each = [one / other for one, other in pairs]
            ratios += each
            worst.append(median(each))
            bare, ours = (median([pair[side] for pair in pairs]) for side in (0, 1))
            detail[f"{name}, {workers} workers"] = (
                f"{bare:.0f} µs stock, {ours:.0f} µs with plugin: ratio {median(each):.3f} "
                f"({', '.join(f'{ratio:.3f}' for ratio in each)})"
            )
    return Result(
        name="overhead",
        figure=min(worst),
        unit="",
        spread=spread_of(ratios),
        goal=GOAL,
        direction=Direction.AT_LEAST,
        compared_with="stock Dask, in turns within the same run (figure: the worst of the four below)",
        detail=detail,
    )
