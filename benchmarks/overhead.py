"""What the plugin costs the scheduler: CPU per no-op task, stock Dask ÷ with plugin, nodes known and scores active.

Two schedulers stand side by side, each with its own fake workers; rounds alternate between them, so that noise on the
machine meets both. Noise only ever adds CPU, so each side is judged by its best round; the medians stand beside.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
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
    module = [sys.executable, "-m"]
    scheduler = subprocess.Popen(
        [*module, "benchmarks._scheduler", str(workers if mesh else 0)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    fakes = None
    try:
        address = scheduler.stdout.readline().strip() if scheduler.stdout else ""
        fakes = subprocess.Popen(
            [*module, "benchmarks._fake_workers", address, str(workers)], stderr=subprocess.DEVNULL
        )
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
            yield client, psutil.Process(scheduler.pid)
    finally:
        for process in (fakes, scheduler):
            if process is not None:
                process.kill()
                process.wait()


def cpu_per_task(
    run: Callable[[Client, int, int], None], client: Client, process: psutil.Process, tasks: int, mark: int
) -> float:
    """Return the scheduler's CPU per task in microseconds, everything from graph to last result."""
    before = sum(process.cpu_times()[:2])
    with client.as_current():
        run(client, tasks, mark)
    return (sum(process.cpu_times()[:2]) - before) / tasks * 1e6


def run(quick: bool) -> Result:
    """Measure."""
    tasks, rounds = (1_500, 2) if quick else (20_000, 4)
    ratios: list[float] = []
    detail: dict[str, Any] = {}
    worst: list[float] = []
    for workers in (4, 100):
        with cluster(workers, mesh=False) as stock, cluster(workers, mesh=True) as mesh:
            for name, shape in (("map", by_map), ("delayed tree", by_tree)):
                pairs = []
                for number in range(rounds + 1):
                    order = (stock, mesh) if number % 2 else (mesh, stock)
                    seconds = {id(side): cpu_per_task(shape, *side, tasks, number) for side in order}
                    if number:  # the first round warms both up
                        pairs.append((seconds[id(stock)], seconds[id(mesh)]))
                bare, ours = min(one for one, _ in pairs), min(other for _, other in pairs)
                middle = median([one / other for one, other in pairs])
                ratios += [one / other for one, other in pairs]
                worst.append(bare / ours)
                detail[f"{name}, {workers} workers"] = (
                    f"{bare:.0f} µs stock, {ours:.0f} µs with plugin: ratio {bare / ours:.3f} "
                    f"(median of pairs {middle:.3f})"
                )
    return Result(
        name="overhead",
        figure=min(worst),
        unit="",
        spread=spread_of(ratios),
        goal=GOAL,
        direction=Direction.AT_LEAST,
        compared_with="stock Dask, alternated rounds in the same run (figure: the worst of the four below)",
        detail={"tasks a round": tasks, "rounds": rounds, **detail},
    )
