"""A real ipykernel with jobs behind its cells: their output stays under their own cell, and their handle lives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import Empty
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from .test_kernel import Kernel, shown, started, stop, text_of


@pytest.fixture(scope="module")
def kernel(cluster) -> Iterator[Kernel]:
    made = started(cluster)
    yield made
    stop(made)


def by_parent(kernel: Kernel, until: Any, seconds: float = 60) -> dict[str, list[dict[str, Any]]]:
    """Collect messages by the cell that they are for, until what has come suffices."""
    found: dict[str, list[dict[str, Any]]] = {}
    deadline = time.monotonic() + seconds
    while not until(found):
        assert time.monotonic() < deadline, found
        try:
            message = kernel.client.get_iopub_msg(timeout=0.5)
        except Empty:
            continue
        found.setdefault(message["parent_header"].get("msg_id", ""), []).append(message)
    return found


def idle(messages: list[dict[str, Any]]) -> bool:
    return any(m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" for m in messages)


def test_a_jobs_output_stays_under_its_cell_whatever_runs_meanwhile(kernel, tmp_path):
    gate = tmp_path / "gate"
    first = kernel.start(
        f"%%mesh for i in range(2) --no-wait\nimport os, time, warnings\nwhile not os.path.exists({str(gate)!r}):\n"
        "    time.sleep(0.01)\nprint('late', i)\ndisplay(f'shown {i}')\nwarnings.warn('late warning')"
    )
    second = kernel.start(
        f"print('second')\nopen({str(gate)!r}, 'w').close()\n"
        "for k in range(20):\n    print('tick', k)\n    time.sleep(0.1)"
    )
    third = kernel.start("_mesh.result()\nprint('third')")
    found = by_parent(kernel, lambda found: idle(found.get(third, [])))
    assert sorted(line[-1] for line in text_of(found[first]).splitlines() if "late" in line) == ["0", "1"]
    assert "late warning" in text_of(found[first], "stderr")
    assert {"'shown 0'", "'shown 1'"} <= set(shown(found[first], "text/plain"))
    for other in (second, third):
        assert "late" not in text_of(found[other]) + text_of(found[other], "stderr")
        assert not any("'shown" in text for text in shown(found[other], "text/plain"))
    assert text_of(found[second]).count("tick") == 20


def test_the_handle_shows_progress_and_then_its_end(kernel):
    first = kernel.start("%%mesh for i in range(4) --no-wait\nimport time\ntime.sleep(0.6)\ni")
    found = by_parent(
        kernel, lambda found: any("finished" in text for text in shown(found.get(first, []), "text/html"))
    )
    displays = [m for m in found[first] if m["msg_type"] in {"display_data", "update_display_data"}]
    ids = {m["content"]["transient"]["display_id"] for m in displays}
    assert len(ids) == 1
    assert displays[0]["msg_type"] == "display_data"
    html = shown(found[first], "text/html")
    assert "<progress" in html[0]
    assert any("of 4 done" in text and "running on worker" in text for text in html)
    assert "4 runs on worker" in html[-1]
    assert shown(kernel.run("_mesh.result()"), "text/plain")[-1] == "[0, 1, 2, 3]"


def test_bars_are_shown_live_one_line_for_each_run(kernel):
    pytest.importorskip("tqdm")
    ran = kernel.run(
        "%%mesh for i in range(2) --progress-after 0.1\nfrom tqdm import tqdm\nimport time\n"
        "for _ in tqdm(range(60), desc=f'bar{i}'): time.sleep(0.02)"
    )
    pages = shown(ran, "text/html")
    assert any("bar0" in page and "bar1" in page and "%|" in page for page in pages)
    lines = [line for line in text_of(ran, "stderr").splitlines() if line.strip()]
    assert len(lines) == 2
    assert all("60/60" in line for line in lines)


def test_a_single_runs_bar_is_rewritten_in_place(kernel):
    pytest.importorskip("tqdm")
    ran = kernel.run("%%mesh\nfrom tqdm import tqdm\nimport time\nfor _ in tqdm(range(30)): time.sleep(0.01)")
    text = text_of(ran, "stderr")
    assert text.count("\n") == 1
    assert text.count("\r") > 2


def test_clear_output_and_update_display(kernel):
    ran = kernel.run(
        "%%mesh\nfrom IPython.display import clear_output, update_display\ndisplay('a', display_id='mine')\n"
        "update_display('b', display_id='mine')\nprint('x', flush=True)\nclear_output(wait=True)\nprint('y')"
    )
    kinds = [message["msg_type"] for message in ran]
    assert kinds.count("clear_output") == 1
    assert kinds.index("update_display_data") < kinds.index("clear_output")
    updates = [m for m in ran if m["msg_type"] == "update_display_data"]
    assert updates[0]["content"]["transient"]["display_id"] == "mine"


def test_help_in_a_cell_of_its_own(kernel):
    for text in ("%%mesh --help", "%%mesh?"):
        ran = kernel.run(text)
        assert "--no-wait" in text_of(ran)
        assert not [m for m in ran if m["msg_type"] == "error"]


def test_completion_over_the_wire(kernel):
    code = "%%mesh --pro"
    kernel.client.complete(code, len(code))
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline
        reply = kernel.client.get_shell_msg(timeout=30)
        if reply["msg_type"] == "complete_reply":
            break
    assert "--progress-after" in reply["content"]["matches"]
    start, end = reply["content"]["cursor_start"], reply["content"]["cursor_end"]
    assert code[start:end] == "--pro"


def test_ten_thousand_lines_while_another_cell_runs(kernel):
    first = kernel.start("%%mesh for i in range(4) --show-all --no-wait\nfor k in range(2500): print('line', i, k)")
    second = kernel.start("sum(range(1000))")
    third = kernel.start("_mesh.result()")
    found = by_parent(kernel, lambda found: idle(found.get(third, [])))
    lines = text_of(found[first]).splitlines()
    assert len(lines) == 10_000
    assert shown(found[second], "text/plain") == ["499500"]


def test_jobs_in_a_notebook_that_is_executed(cluster):
    cells = [
        f"%load_ext computemesh\nimport computemesh as mesh\nmesh.connect({cluster.scheduler_address!r});",
        "%%mesh for i in range(3) --no-wait\ni * i",
        "_mesh.result()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    assert "finished" in notebook.cells[1].outputs[0]["data"]["text/plain"], "the saved handle says how it ended"
    assert notebook.cells[2].outputs[-1]["data"]["text/plain"] == "[0, 1, 4]"
