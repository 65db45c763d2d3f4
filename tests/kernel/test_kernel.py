"""A real ipykernel runs cells on a real cluster: rich output, live order, interrupt, two notebooks at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient

from computemesh.kernel.kernel_install import install_kernelspec, spec_for

REPOSITORY = Path(__file__).parents[2]


class Kernel:
    """A kernel with its messages collected by kind."""

    def __init__(self, manager: KernelManager, client: Any) -> None:
        self.manager, self.client = manager, client

    def start(self, code: str) -> str:
        return self.client.execute(code)

    def messages(self, parent: str, until: str = "idle", seconds: float = 60) -> Iterator[dict[str, Any]]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") != parent:
                # Output under another cell than the one that made it is what must never happen.
                assert message["msg_type"] in {"status", "execute_input", "comm_open", "iopub_welcome"}
                continue
            yield message
            if message["msg_type"] == "status" and message["content"]["execution_state"] == until:
                return
        raise TimeoutError("the kernel did not become idle")

    def run(self, code: str) -> list[dict[str, Any]]:
        return list(self.messages(self.start(code)))


@pytest.fixture
def kernel(cluster) -> Iterator[Kernel]:
    made = started(cluster)
    yield made
    stop(made)


def started(cluster) -> Kernel:
    kernel = Kernel(*start_new_kernel(kernel_name="python3"))
    ran = kernel.run(
        f"%load_ext computemesh\nimport computemesh as mesh\nmesh.connect({cluster.scheduler_address!r})\nimport time"
    )
    assert not [message for message in ran if message["msg_type"] == "error"], ran
    return kernel


def stop(kernel: Kernel) -> None:
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


def text_of(messages: list[dict[str, Any]], stream: str = "stdout") -> str:
    return "".join(
        message["content"]["text"]
        for message in messages
        if message["msg_type"] == "stream" and message["content"]["name"] == stream
    )


def shown(messages: list[dict[str, Any]], mime: str) -> list[str]:
    kinds = {"display_data", "execute_result", "update_display_data"}
    return [
        message["content"]["data"][mime]
        for message in messages
        if message["msg_type"] in kinds and mime in message["content"]["data"]
    ]


def test_figures_and_rich_output_arrive_as_mime_bundles(kernel):
    ran = kernel.run(
        "%%mesh\nimport matplotlib.pyplot as plt\nimport pandas as pd\nplt.plot([1, 2])\n"
        "display(pd.DataFrame({'a': [1]}))\npd.DataFrame({'b': [2]})"
    )
    assert len(shown(ran, "image/png")) == 1
    assert [("<th>a</th>" in html, "<th>b</th>" in html) for html in shown(ran, "text/html")] == [
        (True, False),
        (False, True),
    ]


def test_a_display_can_be_updated(kernel):
    ran = kernel.run("%%mesh\nh = display('first', display_id=True)\nh.update('second')")
    updates = [message for message in ran if message["msg_type"] == "update_display_data"]
    assert [update["content"]["data"]["text/plain"] for update in updates] == ["'second'"]


def test_output_is_live(kernel):
    parent = kernel.start("%%mesh\nimport time\nprint('early', flush=True)\ntime.sleep(3)\nprint('late')")
    times = {}
    for message in kernel.messages(parent):
        if message["msg_type"] == "stream":
            for word in ("early", "late"):
                if word in message["content"]["text"]:
                    times[word] = time.monotonic()
    assert times["late"] - times["early"] > 1.5


def test_progress_is_an_updated_display(kernel):
    ran = kernel.run("%%mesh --progress-after 0.2 for i in range(4)\ntime.sleep(0.4)")
    texts = shown(ran, "text/plain")
    assert any("of 4 done" in text and "running on worker" in text for text in texts)
    assert "4 runs in" in texts[-1]
    assert "<progress" in shown(ran, "text/html")[0]


def test_interrupt_stops_the_cell_and_the_notebook_goes_on(kernel):
    parent = kernel.start(
        "%%mesh for i in range(5)\nprint('begun', flush=True)\nfor _ in range(3000): time.sleep(0.01)"
    )
    ran = []
    for message in kernel.messages(parent):
        begun = "begun" in text_of(ran)
        ran.append(message)
        if not begun and "begun" in text_of(ran):
            kernel.manager.interrupt_kernel()
    errors = [message["content"] for message in ran if message["msg_type"] == "error"]
    assert [error["ename"] for error in errors] == ["KeyboardInterrupt"]
    assert len(errors[0]["traceback"]) == 1, "none of our own frames"
    said = text_of(ran, "stderr") + "".join(shown(ran, "text/plain"))
    assert "Interrupted:" in said
    assert shown(kernel.run("%%mesh\n6 * 7"), "text/plain") == ["42"]


def test_a_remote_error_shows_the_cells_line(kernel):
    ran = kernel.run("%%mesh\nvalues = {}\nvalues['missing']")
    (error,) = [message["content"] for message in ran if message["msg_type"] == "error"]
    assert error["ename"] == "KeyError"
    text = "\n".join(error["traceback"])
    assert "----> 3 values['missing']" in text
    assert "Cell In[2], line 3" in text


def test_two_notebooks_at_once_do_not_mix_their_output(cluster):
    kernels = [started(cluster) for _ in range(2)]
    try:
        parents = [
            kernel.start(
                f"%%mesh for i in range(4)\nfor _ in range(5):\n    print('book {number}')\n    time.sleep(0.02)"
            )
            for number, kernel in enumerate(kernels)
        ]
        for number, (kernel, parent) in enumerate(zip(kernels, parents, strict=True)):
            text = text_of(list(kernel.messages(parent)))
            assert text.count(f"book {number}") == 20
            assert f"book {1 - number}" not in text
    finally:
        for kernel in kernels:
            stop(kernel)


def test_the_quickstart_runs_without_a_mesh_and_on_one(cluster, tmp_path, monkeypatch):
    path = REPOSITORY / "notebooks" / "quickstart.ipynb"
    for address in ("", cluster.scheduler_address):
        notebook = nbformat.read(path, as_version=4)
        if address:
            connect = f"import computemesh as mesh\nmesh.connect({address!r})"
            notebook.cells.insert(0, nbformat.v4.new_code_cell(connect))
        NotebookClient(
            notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
        by_tag = {tag: cell for cell in notebook.cells for tag in cell.metadata.get("tags", ())}
        assert "image/png" in by_tag["figure"].outputs[0]["data"]
        assert by_tag["map"].outputs[-1]["data"]["text/plain"] == "111"
        assert by_tag["delayed"].outputs[-1]["data"]["text/plain"] == "285"


def test_the_kernelspec_starts_this_python(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    folder = install_kernelspec(user=True)
    assert folder == tmp_path / "kernels" / "computemesh"
    kernel = Kernel(*start_new_kernel(kernel_name="computemesh"))
    try:
        ran = kernel.run("import sys\nprint(sys.executable)")
        assert Path(text_of(ran).strip()).samefile(sys.executable)
        assert "42" in shown(kernel.run("%%mesh\n42"), "text/plain")
    finally:
        stop(kernel)


def test_the_shipped_kernelspec_is_the_installed_one():
    import json

    shipped = json.loads((REPOSITORY / "kernel" / "kernelspec" / "kernel.json").read_text())
    assert shipped == spec_for("python")
