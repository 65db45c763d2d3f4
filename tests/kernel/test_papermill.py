"""papermill --engine mesh: the notebook runs on a node, all else is papermill's own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import nbformat
import papermill
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from computemesh.kernel.connection import connect


def written(path, *cells: str):
    notebook = new_notebook(
        cells=[new_code_cell("n = 1", metadata={"tags": ["parameters"]}), *map(new_code_cell, cells)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(notebook, path)
    return path


def test_parameters_outputs_and_the_node(mesh, tmp_path):
    source = written(tmp_path / "in.ipynb", "import os\nos.getppid()", "print('n is', n)")
    done = papermill.execute_notebook(source, tmp_path / "out.ipynb", {"n": 5}, engine_name="mesh", progress_bar=False)
    assert done.cells[-1].outputs[0]["text"] == "n is 5\n"
    workers = {worker["pid"] for worker in mesh.client.run(lambda: {"pid": os.getpid()}).values()}
    assert int(done.cells[-2].outputs[0]["data"]["text/plain"]) in workers
    saved = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert saved.metadata["computemesh"]["node"].startswith("worker")
    assert saved.cells[-1].metadata["papermill"]["status"] == "completed"
    assert saved.cells[-1].outputs == done.cells[-1].outputs


def test_a_failing_cell_ends_the_run_as_in_papermill(mesh, tmp_path):
    source = written(tmp_path / "in.ipynb", "1 / 0", "print('never')")
    with pytest.raises(papermill.PapermillExecutionError, match="division by zero"):
        papermill.execute_notebook(source, tmp_path / "out.ipynb", engine_name="mesh", progress_bar=False)
    saved = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert any("papermill-error-cell-tag" in cell.metadata.get("tags", ()) for cell in saved.cells)
    assert saved.cells[-1].outputs == []


def test_cells_are_saved_as_they_finish_and_an_interrupt_leaves_no_kernel(cluster, tmp_path):
    source = written(tmp_path / "in.ipynb", "print('first')", "import time\ntime.sleep(120)")
    target = tmp_path / "out.ipynb"
    code = (
        "import computemesh as mesh, papermill, sys\n"
        f"mesh.connect({cluster.scheduler_address!r})\n"
        f"papermill.execute_notebook({str(source)!r}, {str(target)!r}, engine_name='mesh', progress_bar=False)"
    )
    with connect(cluster.scheduler_address) as watch:
        workers = [psutil.Process(pid) for pid in watch.client.run(os.getpid).values()]
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while "first" not in saved_text(target):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        assert kernels_of(workers)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "KeyboardInterrupt" in said
        deadline = time.monotonic() + 20
        while kernels_of(workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not kernels_of(workers)


def saved_text(path) -> str:
    """Return the outputs saved so far."""
    if not path.exists():
        return ""
    try:
        cells = nbformat.read(path, as_version=4).cells
    except (OSError, ValueError):
        return ""
    return "".join(str(cell.get("outputs", "")) for cell in cells)


def kernels_of(workers) -> list[psutil.Process]:
    found = []
    for worker in workers:
        for child in worker.children():
            # One that has ended and waits to be reaped has no command line any more.
            with contextlib.suppress(psutil.Error):
                if "ipykernel" in " ".join(child.cmdline()):
                    found.append(child)
    return found


def test_nodes_never_import_papermill():
    code = "import sys, computemesh.kernel.notebook_run\nassert 'papermill' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_papermill_finds_the_engine():
    from papermill.engines import papermill_engines

    assert papermill_engines.get_engine("mesh").__name__ == "MeshEngine"
