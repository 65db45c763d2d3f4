"""What users of papermill and Jupyter have reported elsewhere goes right here; other reports stand at their tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import papermill


def written(path: Path, *sources: str) -> str:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    return str(path)


def run(source: str, target: Path, **options):
    return papermill.execute_notebook(source, str(target), engine_name="mesh", progress_bar=False, **options)


def streams(notebook, name: str) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output["text"] for output in outputs if output.get("name") == name)


def test_a_bar_of_tqdm_with_log_output_is_logged_and_saved(mesh, tmp_path, caplog):
    """nteract/papermill#765: tqdm with --log-output."""
    source = written(tmp_path / "in.ipynb", "from tqdm import tqdm\nfor n in tqdm(range(5), desc='bar'): print('n', n)")
    with caplog.at_level("INFO", logger="papermill"):
        made = run(source, tmp_path / "out.ipynb", log_output=True)
    assert "5/5" in streams(made, "stderr")
    assert streams(made, "stdout") == "".join(f"n {n}\n" for n in range(5))
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "n 4" in logged
    assert "5/5" in logged


def test_notebooks_that_run_at_once_in_one_process_all_end_with_their_own_outputs(mesh, tmp_path):
    """nteract/papermill#239, #329, #776, #583: many at once in one process, kernels that do not respond in time."""
    files = [written(tmp_path / f"in-{n}.ipynb", f"print('book', {n})") for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda file: run(file, tmp_path / Path(file).name.replace("in", "out")), files))
    assert [streams(notebook, "stdout") for notebook in made] == [f"book {n}\n" for n in range(4)]
