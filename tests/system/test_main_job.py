"""The main job end to end: notebooks in real kernels fan out over real nodes through a real driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from computemesh.identity import HOME_VARIABLE

from .conftest import House, client_of, scheduler_process, until, worker_process

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LOAD = "%load_ext computemesh\nimport computemesh as mesh"


def environment(house: House) -> dict[str, str]:
    return {**os.environ, HOME_VARIABLE: str(house.home)}


def executed(house: House, notebook, **options):
    """Execute a notebook, or a list of cells, in a kernel of its own and return it with outputs."""
    if isinstance(notebook, list):
        cells = [nbformat.v4.new_code_cell(source) for source in notebook]
        notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=150, kernel_name="python3", **options)
    client.execute(env=environment(house))
    return notebook


@contextmanager
def kernel_of(house: House):
    """Give the manager and client of a kernel that has the mesh loaded."""
    manager, client = start_new_kernel(kernel_name="python3", env=environment(house))
    try:
        client.execute_interactive(LOAD, timeout=60)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def reply_to(client, message: str, timeout: float):
    """Return the content of the kernel's reply to one message."""
    reply = client.get_shell_msg(timeout=timeout)
    while reply["parent_header"].get("msg_id") != message:
        reply = client.get_shell_msg(timeout=timeout)
    return reply["content"]


def text_of(cell) -> str:
    """Return all that a cell shows as text."""
    shown = []
    for output in cell.outputs:
        shown.append(output.get("text", ""))
        shown.append(output.get("data", {}).get("text/plain", ""))
        shown.append("\n".join(output.get("traceback", [])))
    return "\n".join(shown)


def test_the_quickstart_fans_out_over_all_nodes(shared_house: House):
    notebook = executed(shared_house, nbformat.read(NOTEBOOKS / "quickstart.ipynb", as_version=4))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    everything = "\n".join(text_of(cell) for cell in code)
    assert "[desk] seed" in everything
    assert "[rack] seed" in everything
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert "285" in text_of(code[-1])
    placements = shared_house.client.get("/v1/placements?count=10000")
    assert {placement["node"] for placement in placements} == {"desk", "rack"}
    answer = shared_house.client.why(placements[-1]["key"])
    assert {node["node"] for node in answer["eligible"]} == {"desk", "rack"}
    assert "ran on" in answer["sentence"]


def test_a_remote_error_shows_the_cells_own_line(shared_house: House):
    cells = [LOAD, "%%mesh\nvalues = {}\nvalues['missing']  # the line"]
    with pytest.raises(CellExecutionError) as failed:
        executed(shared_house, cells)
    assert failed.value.ename == "KeyError"
    assert "values['missing']  # the line" in failed.value.traceback
    assert "desk" in failed.value.traceback or "rack" in failed.value.traceback


def test_what_cannot_travel_is_refused_by_name_before_anything_runs(shared_house: House):
    cells = [LOAD, "import threading\nlock = threading.Lock()", "%%mesh\nprint('ran')\nlock.acquire()"]
    notebook = executed(shared_house, cells, allow_errors=True)
    assert "lock" in text_of(notebook.cells[-1])
    assert "ran" not in [output.get("text", "").strip() for output in notebook.cells[-1].outputs]


def test_two_notebooks_at_once_keep_their_output_apart(shared_house: House):
    def cells(word: str) -> list[str]:
        body = f"import time\nfor i in range(5):\n    print('{word}', x, i)\n    time.sleep(0.05)"
        return [LOAD, f"%%mesh for x in range(4)\n{body}"]

    script = (
        "import sys, json, nbformat\nfrom nbclient import NotebookClient\n"
        "cells = [nbformat.v4.new_code_cell(c) for c in json.loads(sys.argv[1])]\n"
        "notebook = nbformat.v4.new_notebook(cells=cells)\n"
        "NotebookClient(notebook, timeout=150, kernel_name='python3').execute()\n"
        "print(json.dumps(''.join(o.get('text', '') for o in notebook.cells[-1].outputs)))\n"
    )
    started = {
        word: subprocess.Popen(
            [sys.executable, "-c", script, json.dumps(cells(word))],
            env=environment(shared_house),
            stdout=subprocess.PIPE,
            text=True,
        )
        for word in ("apple", "pear")
    }
    for word, process in started.items():
        printed = json.loads(process.communicate(timeout=170)[0].strip().splitlines()[-1])
        other = "pear" if word == "apple" else "apple"
        assert printed.count(word) == 20
        assert other not in printed


BUSY = {
    "python": "while True: pass",
    "blocking-call": "import time; time.sleep(600)",
    "deaf": "while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass",
}


@pytest.mark.parametrize("busy", BUSY.values(), ids=BUSY)
def test_interrupt_ends_the_cell_and_harms_neither_worker_nor_node(shared_house: House, busy: str):
    before = {name: worker_process(shared_house, name).pid for name in ("desk", "rack")}
    with kernel_of(shared_house) as (manager, client):
        client.execute_interactive("%%mesh\n1 + 1", timeout=60, output_hook=lambda _: None)
        message = client.execute(f"%%mesh\nprint('begun', flush=True)\n{busy}", stop_on_error=False)
        deadline = time.monotonic() + 60
        begun = False
        while not begun:
            assert time.monotonic() < deadline
            shown = client.get_iopub_msg(timeout=60)
            begun = "begun" in shown["content"].get("text", "")
        manager.interrupt_kernel()
        reply = reply_to(client, message, 60)
        assert reply["ename"] == "KeyboardInterrupt"
        answer = client.execute_interactive("%%mesh -o again\n6 * 7", timeout=60, output_hook=lambda _: None)
        assert answer["content"]["status"] == "ok", answer["content"]
    assert {name: worker_process(shared_house, name).pid for name in ("desk", "rack")} == before


def test_papermill_runs_a_notebook_on_a_node(shared_house: House, tmp_path):
    cells = [
        nbformat.v4.new_code_cell("n = 1", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("import os\nos.environ['COMPUTEMESH_NODE']"),
        nbformat.v4.new_code_cell("print('times', n * 2)"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "in.ipynb")
    done = subprocess.run(
        [sys.executable, "-m", "papermill", "--engine", "mesh", "in.ipynb", "out.ipynb", "-p", "n", "21"],
        cwd=tmp_path,
        env=environment(shared_house),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    everything = "\n".join(text_of(cell) for cell in result.cells if cell.cell_type == "code")
    assert "times 42" in everything
    assert "'desk'" in everything or "'rack'" in everything


def test_ten_thousand_tasks_while_beats_go_on(shared_house: House):
    before = len(shared_house.events("node-suspected"))
    with client_of(shared_house) as client:
        futures = client.map(lambda x: x + 1, range(10_000), pure=False)
        assert sum(client.gather(futures)) == sum(range(1, 10_001))
    assert len(shared_house.events("node-suspected")) == before
    assert {node["health"] for node in shared_house.client.nodes()} == {"alive"}


def test_a_task_that_no_node_can_run_waits_and_starts_when_a_fitting_node_joins(house: House):
    house.join("desk")
    house.lending("desk")
    with client_of(house) as client:
        import dask

        with dask.annotate(mesh={"pool": "night", "ram": "100MB"}):
            future = client.submit(lambda: "ran")
        until(lambda: house.events("unschedulable"), "the report")
        why = house.client.why(future.key)
        assert "night" in json.dumps(why)
        house.join("owl", "--pool", "night")
        assert future.result(timeout=60) == "ran"
        assert house.client.why(future.key)["chosen"]["node"] == "owl"


def test_a_restarted_scheduler_ends_open_work_with_one_clear_error_and_new_work_runs(house: House):
    house.join("desk")
    house.lending("desk")
    with kernel_of(house) as (_, client):
        client.execute_interactive("import time\nfuture = mesh.submit(time.sleep, 600)", timeout=60)
        until(lambda: house.client.get("/v1/placements"), "the task's start")
        scheduler_process(house).kill()
        shown: list[str] = []
        answer = client.execute_interactive(
            "future.result()", timeout=90, output_hook=lambda m: shown.append(str(m["content"]))
        )
        assert answer["content"]["status"] == "error"
        assert "restarted" in answer["content"]["evalue"]
        assert "submit" in answer["content"]["evalue"]
        house.lending("desk")
        answer = client.execute_interactive("assert mesh.submit(sum, [40, 2]).result() == 42", timeout=90)
        assert answer["content"]["status"] == "ok", answer["content"]


def test_a_node_that_dies_during_a_fan_out_loses_nothing(house: House):
    house.join("desk")
    house.join("rack")
    house.lending("desk", "rack")
    with kernel_of(house) as (_, client):
        message = client.execute("%%mesh for x in range(20)\nimport time\ntime.sleep(0.3)\ny = x * x")
        until(lambda: len(house.client.get("/v1/placements?count=1000")) >= 4, "the fan-out")
        house.processes["desk"].kill()
        house.processes.pop("desk").wait()
        reply = reply_to(client, message, 120)
        assert reply["status"] == "ok", reply
        answer = client.execute_interactive("assert y == [x * x for x in range(20)], y", timeout=60)
        assert answer["content"]["status"] == "ok", answer["content"]
