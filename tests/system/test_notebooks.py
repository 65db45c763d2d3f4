"""The notebooks as people run them: in JupyterLab by keyboard, in a terminal, by Jupyter's and papermill's tools."""

from __future__ import annotations

import html
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pexpect
import playwright.sync_api
import pytest
from nbclient import NotebookClient
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from computemesh.identity import HOME_VARIABLE

from .conftest import House, new_house
from .lab import Lab, chromium, jupyter_lab, open_lab

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

SMALL: dict[str, dict[str, Any]] = {
    "csv_join": {"size_mb": 4},
    "hyper_parameters": {"points": 4, "folds": 2, "samples": 500},
    "monte_carlo": {"runs": 6, "paths": 2_000},
    "pipeline": {"pictures": 8, "side": 200},
    "placement": {"tasks": 20, "seconds": 0.01},
    "report": {"year": 2024},
}
"""Each notebook that is executed here, with the parameters that make it quick."""

RESULTS = {
    "csv_join": "result.cents.sum() == worth > 1e8 and len(result) == 48 and parts == 4",
    "hyper_parameters": "accuracy > 0.9 and scores.shape == (4, 4) and scores.max() == search.best_score_",
    "monte_carlo": "agrees and outcomes.shape == (31, 12_000) and len(set(map(float, outcomes[-1, ::2000]))) == 6",
    "pipeline": "len(places) == 8 and abs(off).mean() < 0.25 * sum(truth) / 8 and off.max() <= 2",
    "placement": "ran_on.total() == 20 and set(ran_on) == {'desk', 'rack'} and '8 GPUs' in reasons.sentence",
    "report": "list(summary.index) == gauges and len(report) == 366 and (summary['max'] > summary['mean']).all()",
}
"""What is true at each notebook's end."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, dict[str, str]]]:
    """A mesh of two nodes, and the environment of somebody who has logged in and installed the kernel."""
    house = new_house(tmp_path_factory.mktemp("house"))
    theirs = {
        **os.environ,
        HOME_VARIABLE: str(house.home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JUPYTER_DATA_DIR": str(house.folder / "jupyter-data"),
        "JUPYTER_RUNTIME_DIR": str(house.folder / "jupyter-runtime"),
        "IPYTHONDIR": str(house.folder / "ipython"),
        "TERM": "dumb",
    }
    try:
        house.up()
        house.join("desk")
        house.join("rack")
        subprocess.run(
            [sys.executable, "-m", "computemesh", "kernelspec", "install", "--user"],
            env=theirs, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        house.lending("desk", "rack")
        yield house, theirs
    finally:
        house.close()


def notebook_of(name: str, **parameters: Any) -> Any:
    notebook = load_notebook_node(str(NOTEBOOKS / f"{name}.ipynb"))
    return parameterize_notebook(notebook, parameters) if parameters else notebook


def code_of(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook: Any, tag: str) -> Any:
    return next(cell for cell in notebook.cells if tag in cell.metadata.get("tags", ()))


def has_figure(notebook: Any) -> bool:
    return any("image/png" in output.get("data", {}) for output in tagged(notebook, "figure").outputs)


def text_of(notebook: Any) -> str:
    """Return all that the notebook's cells show as text."""
    outputs = [output for cell in code_of(notebook) for output in cell.outputs]
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


def run(here: tuple[House, dict[str, str]], folder: Path, *command: str, status: int = 0) -> str:
    """Run one command line of Jupyter's or ours in `folder`; return all that it says."""
    done = subprocess.run(
        command, cwd=folder, env=here[1], text=True, timeout=120, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


# ---------------------------------------------------------------- each notebook


@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_comes_to_what_it_says_and_ends_in_a_figure(here, tmp_path: Path, name: str):
    notebook = notebook_of(name, **SMALL[name])
    notebook.cells.append(nbformat.v4.new_code_cell(f"assert {RESULTS[name]}, globals()"))
    client = NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=here[1])
    assert has_figure(notebook)
    assert "Warning" not in text_of(notebook)


def test_every_notebook_is_executed_somewhere_and_kept_without_outputs():
    files = {file.stem: file for file in NOTEBOOKS.glob("*.ipynb")}
    # The quickstart is typed below, and executed in test_main_job.
    assert set(files) == {*SMALL, "quickstart"}
    for name, file in files.items():
        notebook = nbformat.read(file, as_version=4)
        nbformat.validate(notebook)
        assert {cell.execution_count for cell in code_of(notebook)} == {None}, name
        assert not any(cell.outputs for cell in code_of(notebook)), name
        assert "figure" in {tag for cell in notebook.cells for tag in cell.metadata.get("tags", ())}, name
        assert notebook.metadata.kernelspec.name == "python3", "everybody has that kernel"


# ---------------------------------------------------------------- Jupyter's and papermill's tools

KERNEL = "computemesh"
LITTLE = [
    "%%mesh for n in range(4)\nimport os\nnode = os.environ['COMPUTEMESH_NODE']",
    "print('ran on', sorted(set(node)))",
]


def little(folder: Path) -> Path:
    """Write a notebook that leaves the loading of the extension to its kernel."""
    cells = [nbformat.v4.new_code_cell(source) for source in LITTLE]
    spec = {"name": KERNEL, "display_name": "Python (ComputeMesh)", "language": "python"}
    file = folder / "little.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), file)
    return file


def test_jupyter_execute(here, tmp_path: Path):
    file = little(tmp_path)
    run(here, tmp_path, "jupyter", "execute", "--inplace", file.name)
    assert "ran on ['desk', 'rack']" in text_of(nbformat.read(file, as_version=4))


def test_nbconvert_executes(here, tmp_path: Path):
    little(tmp_path)
    run(here, tmp_path, "jupyter", "nbconvert", "--to", "html", "--execute", "little.ipynb")
    assert "ran on ['desk', 'rack']" in html.unescape((tmp_path / "little.html").read_text("utf-8"))


def test_papermill_with_the_kernel(here, tmp_path: Path):
    """papermill's own engine: the notebook runs here, its cells on the mesh."""
    file = str(NOTEBOOKS / "report.ipynb")
    run(here, tmp_path, "papermill", file, "out.ipynb", "-k", KERNEL, "-p", "year", "2023")
    made = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert has_figure(made)
    assert "365 days" in text_of(made)


def test_a_batch_of_reports_runs_on_nodes_that_use_the_mesh_in_turn(here, tmp_path: Path):
    files = [str(NOTEBOOKS / f"{name}.ipynb") for name in ("report", "monte_carlo")]
    run(here, tmp_path, "mesh", "batch", *files, "--out", "done", "-p", "year", "2024", "-p", "runs", "3")
    made = {
        name: nbformat.read(tmp_path / "done" / f"{name}.ipynb", as_version=4) for name in ("report", "monte_carlo")
    }
    assert all(map(has_figure, made.values()))
    assert "mill: 366 days" in text_of(made["report"])
    assert text_of(made["monte_carlo"]).count("on average") == 3


def prompt(number: int) -> str:
    """Return a pattern of a terminal's prompt, which is coloured."""
    return rf"In \[\S*{number}\S*\]: "


def test_a_cell_typed_into_jupyter_console(here, tmp_path: Path):
    console = pexpect.spawn(
        "jupyter",
        ["console", "--kernel", KERNEL, "--JupyterConsoleApp.confirm_exit=False"],
        env={**here[1], "TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"},
        cwd=str(tmp_path), encoding="utf-8", timeout=60, dimensions=(50, 120),
    )  # fmt: skip
    try:
        console.expect(prompt(1))
        for line in ("%%mesh for n in range(3)", "print('square', n * n)", "square = n * n", "", ""):
            console.sendline(line)
        console.expect(r"\[(desk|rack)\] square \d")
        console.expect(prompt(2))
        console.sendline("print('all:', square)")
        console.expect_exact("all: [0, 1, 4]")
        console.expect(prompt(3))
        console.sendeof()
        console.expect(pexpect.EOF)
    finally:
        console.close(force=True)


# ---------------------------------------------------------------- JupyterLab


@pytest.fixture(scope="module")
def lab(here, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    house, theirs = here
    folder = tmp_path_factory.mktemp("lab")
    kernels = folder / "jupyter-data" / "kernels"
    kernels.parent.mkdir()
    kernels.symlink_to(Path(theirs["JUPYTER_DATA_DIR"]) / "kernels")
    with jupyter_lab(folder, house.home) as found:
        yield found


def new_notebook(page: Any) -> None:
    """Open a notebook with our kernel from the launcher, by keyboard."""
    page.locator(".jp-LauncherCard[data-category=Notebook]", has_text="Python (ComputeMesh)").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-content", timeout=60_000)
    page.wait_for_selector(".jp-NotebookPanel .jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=60_000)
    # The notebook's own indicator is idle before its kernel is there; what is run until then is lost.
    page.locator("#jp-main-statusbar", has_text="Python (ComputeMesh) | Idle").wait_for(timeout=60_000)
    # Into command mode, and from there into the cell, whichever mode it has opened in.
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")


def type_and_run(page: Any, number: int, source: str) -> Any:
    """Type a cell, key by key, run it with Shift+Enter and return its output area once it has ended."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    lines = source.splitlines()
    for n, line in enumerate(lines):
        if n:
            page.keyboard.press("Enter")
        if n and line:
            # What the editor has indented by itself gives way to what is typed.
            page.keyboard.press("Shift+Home")
        page.keyboard.type(line)
    typed = [line.rstrip() for line in cell.locator(".cm-line").all_inner_texts()]
    assert typed == [line.rstrip() for line in lines]
    page.keyboard.press("Shift+Enter")
    if number == 0 and not has_number(page, cell, 30_000):
        # Lab has lost it: its kernel was not quite there. A person clicks into the cell and runs it again.
        cell.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
    ended(page, cell)
    return cell.locator(".jp-OutputArea").first


def has_number(page: Any, cell: Any, milliseconds: float) -> bool:
    """Return whether a cell gets its number within that time."""
    try:
        ended(page, cell, milliseconds)
    except playwright.sync_api.TimeoutError:
        return False
    return True


def ended(page: Any, cell: Any, milliseconds: float = 60_000) -> None:
    """Wait until a cell has its number, which it gets when it has ended."""
    prompt = cell.locator(".jp-InputArea-prompt").first.element_handle()
    page.wait_for_function("(prompt) => /[0-9]/.test(prompt.textContent)", arg=prompt, timeout=milliseconds)


@pytest.mark.timeout(240)
def test_the_quickstart_typed_by_keyboard_in_jupyterlab(lab: Lab):
    notebook = notebook_of("quickstart")
    shown = {}
    with chromium(height=1400) as page:
        open_lab(page, lab)
        new_notebook(page)
        for number, cell in enumerate(code_of(notebook)):
            area = type_and_run(page, number, cell.source)
            assert not area.locator("[data-mime-type='application/vnd.jupyter.error']").count(), area.inner_text()
            for tag in cell.metadata.get("tags", ()):
                shown[tag] = area
        assert shown["nodes"].locator("table tr").count() == 3
        assert "hello from" in shown["one-cell"].inner_text()
        for node in ("desk", "rack"):
            assert f"[{node}] seed" in shown["fan-out"].inner_text()
        assert shown["figure"].locator("img").bounding_box()["width"] > 300
        assert "111" in shown["map"].inner_text()
        assert "ran on" in shown["why"].inner_text()
        assert "285" in shown["delayed"].inner_text()


def test_output_that_a_reloaded_page_has_missed_can_be_had_again(lab: Lab):
    """jupyterhub#1211, jupyter/notebook#641, nbclassic#213: what is printed while nobody looks is lost."""
    with chromium() as page:
        open_lab(page, lab)
        new_notebook(page)
        page.keyboard.type("%%mesh")
        page.keyboard.press("Enter")
        page.keyboard.type("import time")
        page.keyboard.press("Enter")
        page.keyboard.type("for n in range(30): print('line', n, flush=True); time.sleep(0.1)")
        page.keyboard.press("Shift+Enter")
        line = page.locator(".jp-OutputArea", has_text="line 3")
        try:
            line.wait_for(timeout=30_000)
        except playwright.sync_api.TimeoutError:
            page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
            page.keyboard.press("Shift+Enter")
            line.wait_for()
        page.on("dialog", lambda dialog: dialog.accept())
        page.reload()
        page.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-content", timeout=60_000)
        # The notebook was never saved, so the page starts with an empty cell; the kernel is the same.
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").last.click()
        again = type_and_run(page, 0, "_mesh.result(); print(_mesh.output())")
        lines = [line for line in again.inner_text().splitlines() if line.startswith("line")]
        assert lines == [f"line {n}" for n in range(30)]
