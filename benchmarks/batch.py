"""`mesh batch` beside a papermill process for each notebook: six notebooks on the same two nodes of two slots each.

Alternated in one run: `mesh batch` in one process; six processes of ``papermill --engine mesh`` at once; and plain
papermill, as many at once as there are slots. Each starts from nothing, imports and connections included.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ._mesh import mesh_cluster
from .result import Direction, Result, median, spread_of

GOAL = 1.8
NOTEBOOKS = 6
NODES, SLOTS = 2, 2
CELLS = ("import time\ntotal = 0", "for number in range(5):\n    time.sleep(0.1)\n    total += number", "total")

_BATCH = """
import computemesh as mesh
from pathlib import Path
from computemesh.kernel.batch import Wishes
from computemesh.kernel.batch_run import run_batch
mesh.connect({address!r})
raise SystemExit(run_batch([Path(name) for name in {notebooks!r}], Path({out!r}), Wishes(), resume=False))
"""
_ONE = """
import computemesh as mesh, papermill
mesh.connect({address!r})
papermill.execute_notebook({source!r}, {target!r}, engine_name="mesh", progress_bar=False)
"""
_PLAIN = """
import papermill
papermill.execute_notebook({source!r}, {target!r}, progress_bar=False)
"""


def written(folder: Path, count: int) -> list[Path]:
    """Write the notebooks."""
    import nbformat

    made = []
    for number in range(count):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        made.append(folder / f"{number}.ipynb")
        nbformat.write(notebook, made[-1])
    return made


def _run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def by_batch(address: str, notebooks: list[Path], out: Path) -> None:
    """One `mesh batch`."""
    _run(_BATCH.format(address=address, notebooks=[str(name) for name in notebooks], out=str(out)))


def by_mesh_papermill(address: str, notebooks: list[Path], out: Path) -> None:
    """A papermill process each, on the mesh, all at once."""
    _at_once(len(notebooks), _ONE, notebooks, out, address)


def by_plain_papermill(address: str, notebooks: list[Path], out: Path) -> None:
    """A papermill process each, here, as many at once as the mesh has slots."""
    _at_once(NODES * SLOTS, _PLAIN, notebooks, out, address)


def _at_once(most: int, script: str, notebooks: list[Path], out: Path, address: str) -> None:
    scripts = [script.format(address=address, source=str(one), target=str(out / one.name)) for one in notebooks]
    with ThreadPoolExecutor(most) as pool:
        list(pool.map(_run, scripts))


WAYS: dict[str, Callable[[str, list[Path], Path], None]] = {
    "mesh batch": by_batch,
    "papermill --engine mesh, six processes": by_mesh_papermill,
    "plain papermill, four processes at a time": by_plain_papermill,
}


def run(quick: bool) -> Result:
    """Measure on workers of this machine, with the plugin and capsules as on a mesh."""
    rounds, count = (1, 2) if quick else (5, NOTEBOOKS)
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder, mesh_cluster(NODES, SLOTS) as (cluster, _):
        notebooks = written(Path(folder), count)
        # Workers that have just started are still making their first spare.
        by_batch(cluster.scheduler_address, notebooks[:1], Path(folder, "warm"))
        for number in range(rounds):
            for name, way in WAYS.items():
                out = Path(folder, f"{number}-{len(took[name])}-{abs(hash(name))}")
                out.mkdir()
                begun = time.perf_counter()
                way(cluster.scheduler_address, notebooks, out)
                took[name].append(time.perf_counter() - begun)
    ours, peer, plain = (took[name] for name in WAYS)
    detail: dict[str, Any] = {name: f"{median(seconds):.1f} s" for name, seconds in took.items()}
    detail["against plain papermill"] = f"{median(plain) / median(ours):.2f} times as fast"
    return Result(
        name="mesh batch",
        figure=median(peer) / median(ours),
        unit="times as fast",
        spread=spread_of([theirs / mine for theirs, mine in zip(peer, ours, strict=True)]),
        goal=GOAL,
        direction=Direction.AT_LEAST,
        compared_with=f"{count} processes of `papermill --engine mesh` on the same {NODES * SLOTS} slots, same run",
        detail=detail,
    )
