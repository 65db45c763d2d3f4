"""What `%%mesh` adds to Dask: a trivial cell beside the same work as `client.submit(...).result()`, alternated."""

from __future__ import annotations

import statistics
import time
from typing import Any

from ._mesh import mesh_cluster, seconds_of, with_capsules
from .result import Direction, Result

GOAL = 0.030


def _add(a: int, b: int) -> int:
    return a + b


def measure(client: Any, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each cell and of each submit on the cluster of `client`."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    import computemesh as mesh

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "computemesh")
    mesh.connect(client=client)

    def cell() -> None:
        with capture_output():
            found = shell.run_cell("%%mesh\n1 + 1")
        found.raise_error()

    for _ in range(3):
        cell()
    cells, submits = [], []
    for number in range(rounds):
        cells.append(seconds_of(cell))
        submits.append(seconds_of(lambda: client.submit(_add, number, 1, pure=False).result()))  # noqa: B023
        # Warm spares are refilled off the path; a person pauses between cells too.
        time.sleep(0.1)
    shell.run_line_magic("unload_ext", "computemesh")
    return cells, submits


def run(quick: bool) -> Result:
    """Measure on two workers of this machine, with the plugin and capsules as on a mesh."""
    with mesh_cluster(2) as (_, client):
        capsules = with_capsules(client)
        cells, submits = measure(client, 20 if quick else 100)
    above = [cell - submit for cell, submit in zip(cells, submits, strict=True)]
    where = "capsules" if capsules else "threads: no worker offered capsules"
    return Result(
        name="%%mesh above submit",
        figure=statistics.median(above),
        unit="s",
        spread=(min(above), max(above)),
        goal=GOAL,
        direction=Direction.AT_MOST,
        compared_with=f"client.submit(...).result() in the same run: {statistics.median(submits):.4f} s ({where})",
    )
