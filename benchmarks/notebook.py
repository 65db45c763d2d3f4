"""The notebook's side, beside ipyparallel's ``%%px`` and plain Dask on as many slots, in one run.

Four figures: what a trivial cell costs above `client.submit`; a loop over many short items; how often a big array is
sent that several runs use; how soon many printed lines are shown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from . import cell
from ._mesh import mesh_cluster, seconds_of
from .result import Direction, Result, median, spread_of

ITEMS, ITEM_SECONDS, LOOP_GOAL = 1_000, 0.010, 1.15
ARRAY_BYTES, RUNS, SENT_GOAL = 200_000_000, 8, 1.1
LINES, PRINTERS, LINES_GOAL = 10_000, 4, 2.0


@contextlib.contextmanager
def mesh_shell(workers: int) -> Iterator[tuple[Any, Any]]:
    """Give a shell with the mesh loaded, and the client, on `workers` workers with plugin and capsules."""
    from IPython.core.interactiveshell import InteractiveShell

    import computemesh as mesh

    with mesh_cluster(workers) as (_, client):
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "computemesh")
        mesh.connect(client=client)
        ran(shell, "%%mesh\n1 + 1")
        try:
            yield shell, client
        finally:
            shell.run_line_magic("unload_ext", "computemesh")


def ran(shell: Any, source: str) -> tuple[float, str]:
    """Run one cell; return its seconds and what it printed."""
    from IPython.utils.capture import capture_output

    begun = time.perf_counter()
    with capture_output() as captured:
        shell.run_cell(source).raise_error()
    return time.perf_counter() - begun, captured.stdout


@contextlib.contextmanager
def px_view(engines: int) -> Iterator[Any]:
    """Give ipyparallel's view of as many engines."""
    try:
        import ipyparallel
    except ImportError:
        raise SystemExit("Beside us runs ipyparallel, which is not here: pip install -e '.[benchmarks]'") from None

    with ipyparallel.Cluster(n=engines, log_level=50) as found:
        yield found.load_balanced_view()


def waited(_: int, seconds: float = ITEM_SECONDS) -> int:
    """Be one short item."""
    time.sleep(seconds)
    return 1


def _loop(shell: Any, client: Any, view: Any, items: int, rounds: int) -> Result:
    ideal = items * ITEM_SECONDS / 2
    shell.user_ns["count"] = items
    source = f"%%mesh for item in range(count)\nimport time\ntime.sleep({ITEM_SECONDS})\nitem"
    took: dict[str, list[float]] = {"%%mesh for": [], "client.map": [], "ipyparallel, load-balanced map": []}
    for _ in range(rounds):
        took["%%mesh for"].append(ran(shell, source)[0])
        took["client.map"].append(seconds_of(lambda: client.gather(client.map(waited, range(items), pure=False))))
        took["ipyparallel, load-balanced map"].append(seconds_of(lambda: view.map_sync(waited, range(items))))
    ours = [seconds / ideal for seconds in took["%%mesh for"]]
    return Result(
        name="%%mesh for, many short items",
        figure=median(ours),
        unit="of the ideal time",
        spread=spread_of(ours),
        goal=LOOP_GOAL,
        direction=Direction.AT_MOST,
        compared_with=f"{items} items of {ITEM_SECONDS * 1000:.0f} ms on 2 slots, ideally {ideal:.2f} s",
        detail={name: f"{median(seconds):.2f} s" for name, seconds in took.items()},
    )


def _sent(shell: Any, client: Any, array_bytes: int) -> Result:
    import numpy as np

    shell.user_ns["big"] = np.random.default_rng(0).random(array_bytes // 8)
    before = _network_bytes()
    seconds, _ = ran(shell, f"%%mesh for part in range({RUNS}) --ship-limit 1GB\nfloat(big[part])")
    again, _ = ran(shell, f"%%mesh for part in range({RUNS}) --ship-limit 1GB\nfloat(big[part])")
    crossed = _network_bytes() - before
    nodes = len(client.scheduler_info(n_workers=-1)["workers"])
    # The notebook sends it to the scheduler's side once, and each node gets it once.
    figure = crossed / array_bytes / nodes
    return Result(
        name="a big array used by many runs",
        figure=figure,
        unit="times a node",
        spread=(figure, figure),
        goal=SENT_GOAL,
        direction=Direction.AT_MOST,
        compared_with=f"{RUNS} runs on {nodes} nodes, twice, {array_bytes / 1e6:.0f} MB: bytes on loopback",
        detail={"first cell": f"{seconds:.2f} s", "second cell": f"{again:.2f} s"},
    )


def _network_bytes() -> int:
    import psutil

    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_recv)


def _lines(shell: Any, lines: int, rounds: int) -> Result:
    source = (
        f"%%mesh for run in range({PRINTERS}) --show-all\nfor line in range({lines // PRINTERS}):\n    print(run, line)"
    )
    took = []
    for _ in range(rounds):
        seconds, shown = ran(shell, source)
        if shown.count("\n") < lines:
            raise RuntimeError(f"only {shown.count(chr(10))} of {lines} lines were shown")
        took.append(seconds)
    return Result(
        name="many printed lines",
        figure=median(took),
        unit="s",
        spread=spread_of(took),
        goal=LINES_GOAL,
        direction=Direction.AT_MOST,
        compared_with=f"{lines} lines from {PRINTERS} runs until all are shown",
    )


def _px(view: Any, rounds: int) -> float:
    return median([seconds_of(lambda: view.apply_sync(int, 1)) for _ in range(rounds)])


def run(quick: bool) -> list[Result]:
    """Measure."""
    trivial = cell.run(quick)
    items, rounds, array_bytes, lines = (60, 1, 2_000_000, 400) if quick else (ITEMS, 5, ARRAY_BYTES, LINES)
    with px_view(2) as view:
        trivial.detail["ipyparallel, one call"] = f"{_px(view, 20):.4f} s"
        with mesh_shell(2) as (shell, client):
            loop = _loop(shell, client, view, items, rounds)
            sent = _sent(shell, client, array_bytes)
    with mesh_shell(4) as (shell, _):
        printed = _lines(shell, lines, rounds)
    return [trivial, loop, sent, printed]
