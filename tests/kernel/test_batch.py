"""mesh batch: many notebooks, each as papermill runs it, with a table, a summary and an exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from click.testing import CliRunner

from computemesh.errors import BadConfiguration
from computemesh.kernel.batch import Batch, Row, Wishes, done_before, plans_of
from computemesh.kernel.batch_page import in_words, page, plain_rows
from computemesh.kernel.batch_run import parameters_of, run_batch
from computemesh.kernel.batch_screen import line
from computemesh.kernel.commands import commands

from .test_papermill import written
from .test_papermill_resume import next_cell


def states(out):
    found = json.loads((out / "summary.json").read_text())["notebooks"]
    return {row["name"]: row["state"] for row in found}


def test_each_is_executed_and_one_that_fails_fails_the_batch_but_no_other(mesh, tmp_path, capsys):
    out = tmp_path / "out"
    notebooks = [
        written(tmp_path / "good.ipynb", "print('n is', n)"),
        written(tmp_path / "bad.ipynb", "{}['missing']", "print('never')"),
        written(tmp_path / "late.ipynb", "n + 1"),
    ]
    assert run_batch(notebooks, out, Wishes(parameters={"n": 5}, at_once=2), resume=False) == 1
    assert states(out) == {"good.ipynb": "done", "bad.ipynb": "failed", "late.ipynb": "done"}
    assert nbformat.read(out / "good.ipynb", as_version=4).cells[-1].outputs[0]["text"] == "n is 5\n"
    said = capsys.readouterr().out
    assert "bad.ipynb: failed on worker" in said
    assert "KeyError: 'missing'" in said
    assert "3 notebooks: 2 done, 1 failed" in said
    assert 'href="bad.ipynb"' in (out / "index.html").read_text()


def test_a_resumed_batch_runs_what_is_not_done_or_has_changed(mesh, tmp_path, capsys):
    out, log, flag = tmp_path / "out", tmp_path / "log", tmp_path / "flag"
    once = written(tmp_path / "once.ipynb", f"open({str(log)!r}, 'a').write('once ')")
    flaky = written(tmp_path / "flaky.ipynb", f"import os\nassert os.path.exists({str(flag)!r})")
    assert run_batch([once, flaky], out, Wishes(), resume=False) == 1
    flag.touch()
    assert run_batch([once, flaky], out, Wishes(), resume=True) == 0
    assert log.read_text() == "once "
    assert states(out) == {"once.ipynb": "done", "flaky.ipynb": "done"}
    assert run_batch([once], out, Wishes(parameters={"n": 2}), resume=True) == 0
    assert log.read_text() == "once once "


def test_one_that_failed_is_run_again_as_often_as_was_asked(mesh, tmp_path):
    count = tmp_path / "count"
    flaky = written(
        tmp_path / "flaky.ipynb",
        f"open({str(count)!r}, 'a').write('x')\nassert len(open({str(count)!r}).read()) > 1",
    )
    assert run_batch([flaky], tmp_path / "out", Wishes(retries=1), resume=False) == 0
    assert count.read_text() == "xx"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_saves_them_and_a_resumed_batch_ends_them(cluster, mesh, tmp_path, number, code):
    out, go, log = tmp_path / "out", tmp_path / "go", tmp_path / "log"
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.05)"
    notebooks = [
        written(tmp_path / f"{name}.ipynb", f"open({str(log)!r}, 'a').write('{name} ')", wait) for name in "ab"
    ]
    script = (
        "import computemesh as mesh\nfrom pathlib import Path\n"
        "from computemesh.kernel.batch import Wishes\nfrom computemesh.kernel.batch_run import run_batch\n"
        f"mesh.connect({cluster.scheduler_address!r})\n"
        f"raise SystemExit(run_batch([Path(p) for p in {[str(n) for n in notebooks]!r}], Path({str(out)!r}), "
        "Wishes(checkpoint=True), resume=True))"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    kept = [out / f"{name}.ipynb.mesh-state" for name in "ab"]
    deadline = time.monotonic() + 60
    while [next_cell(file) for file in kept] != [2, 2]:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "2 stopped" in said
    go.touch()
    assert subprocess.run([sys.executable, "-c", script], timeout=120, check=False).returncode == 0
    assert sorted(log.read_text().split()) == ["a", "b"]


def test_bad_input_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "a").mkdir()
    first, second = written(tmp_path / "x.ipynb", "1"), written(tmp_path / "a" / "x.ipynb", "2")
    with pytest.raises(BadConfiguration, match="would both be written to"):
        plans_of([first, second], tmp_path / "out", {})
    with pytest.raises(BadConfiguration, match="overwritten by its own output"):
        plans_of([first], tmp_path, {})
    (tmp_path / "no.ipynb").write_text("hello")
    with pytest.raises(BadConfiguration, match=r"no\.ipynb is no notebook"):
        plans_of([tmp_path / "no.ipynb"], tmp_path / "out", {})
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(BadConfiguration, match="holds no parameters"):
        parameters_of([], tmp_path / "list.yaml")
    assert CliRunner().invoke(commands, ["batch", str(tmp_path / "none.ipynb"), "--out", "o"]).exit_code == 2


def test_parameters_are_read_as_papermill_reads_them(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("n: 1\nwords: [a, b]\n")
    given = [("n", "5"), ("x", "1e-3"), ("on", "True"), ("none", "None"), ("text", "five")]
    assert parameters_of(given, file) == {
        "n": 5,
        "words": ["a", "b"],
        "x": 1e-3,
        "on": True,
        "none": None,
        "text": "five",
    }


def test_the_page_shows_what_was_raised_as_text(tmp_path):
    rows = [Row("a <b>.ipynb", "a <b>.ipynb", state="failed", error="ValueError: <script>alert(1)</script>")]
    text = page(rows)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert 'href="a%20%3Cb%3E.ipynb"' in text
    assert in_words(rows) == "1 notebook: 1 failed"
    assert line(rows[0]) == "a <b>.ipynb: failed after 0.0 s: ValueError: <script>alert(1)</script>"


def test_what_an_earlier_batch_did_counts_only_with_its_output(tmp_path):
    plan = plans_of([written(tmp_path / "x.ipynb", "1")], tmp_path / "out", {})[0]
    batch = Batch([plan], Wishes(), tmp_path / "out", {}, lambda: None)
    batch.rows[0].state = "done"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "summary.json").write_text(json.dumps({"notebooks": plain_rows(batch.rows)}))
    assert done_before(tmp_path / "out", [plan]) == {}
    plan.target.write_text("{}")
    assert done_before(tmp_path / "out", [plan])[plan.target].state == "done"
    (tmp_path / "out" / "summary.json").write_text("damaged")
    assert done_before(tmp_path / "out", [plan]) == {}
