"""What cells print and show: warnings, bars, widgets, displays, and ten thousand lines at once."""

from __future__ import annotations

import time

import pytest

from computemesh.kernel.live_output import LiveOutput


def test_a_warning_is_shown_once_with_the_cells_line(notebook):
    ran = notebook.cell("%%mesh for i in range(6)\nimport warnings\nwarnings.warn('careful', DeprecationWarning)\ni")
    number = notebook.shell.execution_count - 1
    assert ran.err.count("DeprecationWarning: careful") == 1
    assert f"Cell In[{number}], line 3: DeprecationWarning: careful\n  warnings.warn(" in ran.err


def test_a_caught_warning_is_the_cells_own(notebook):
    ran = notebook.cell(
        "%%mesh\nimport warnings\nwith warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n    warnings.warn('x')\nlen(seen)"
    )
    assert (ran.result, ran.err) == (1, "")


def test_warnings_of_the_notebook_go_where_they_always_went(local):
    local.value("%%mesh\n1")
    with pytest.warns(UserWarning, match="mine"):
        local.cell("import warnings; warnings.warn('mine')")


def test_logging_arrives(notebook):
    ran = notebook.cell("%%mesh\nimport logging\nlogging.getLogger('mine').warning('low %d', 3)")
    assert "low 3" in ran.err


def test_bars_of_several_runs_end_as_one_line_each(notebook):
    pytest.importorskip("tqdm")
    ran = notebook.cell(
        "%%mesh for i in range(3)\nfrom tqdm.auto import tqdm\nimport time\n"
        "for _ in tqdm(range(40), desc=f'run{i}', mininterval=0): time.sleep(0.005)"
    )
    lines = [line for line in ran.err.splitlines() if line.strip()]
    assert len(lines) == 3
    assert all("40/40" in line and line.startswith("[worker") for line in lines)
    assert sorted(line.split("run")[1][0] for line in lines) == list("012")


def test_nested_bars_do_not_fill_the_screen(notebook):
    pytest.importorskip("tqdm")
    ran = notebook.cell(
        "%%mesh for i in range(2)\nfrom tqdm import tqdm\nfor a in tqdm(range(3)):\n"
        "    for b in tqdm(range(30), leave=False, mininterval=0): pass"
    )
    assert len(ran.err.splitlines()) < 12


class Page:
    def __init__(self):
        self.out = ""
        self.shown = []
        self.cleared = 0

    def text(self, stream, text):
        self.out += text

    def display(self, data, metadata, display_id, update):
        self.shown.append((data, display_id, update))

    def clear(self, wait):
        self.cleared += 1


def live(**settings) -> tuple[Page, LiveOutput]:
    page = Page()
    output = LiveOutput(page, True, **settings)
    for index in range(2):
        output.show({"index": index, "kind": "start", "node": f"n{index}"})
    return page, output


def text(index: int, text: str) -> dict:
    return {"index": index, "kind": "text", "stream": "stdout", "text": text}


def test_a_line_that_is_being_rewritten_is_a_bar_until_it_ends():
    page, output = live()
    output.show(text(0, "\r 10%"))
    output.show(text(0, "\r 20%\r 30%"))
    output.show(text(1, "\r 5%"))
    assert output.bars == {0: " 30%", 1: " 5%"}
    assert page.out == ""
    output.show(text(0, "\r100%\nnext\r\n"))
    assert output.bars == {1: " 5%"}
    assert page.out == "[n0] 100%\n[n0] next\n"
    output.finish(1)
    assert page.out.endswith("[n1]  5%\n")


def test_runs_update_their_own_displays_and_clear_nobody_elses():
    page, output = live()
    for index in range(2):
        output.show({"index": index, "kind": "display", "data": {}, "metadata": {}, "display_id": "bar"})
        output.show(
            {"index": index, "kind": "display", "data": {}, "metadata": {}, "display_id": "bar", "update": True}
        )
        output.show({"index": index, "kind": "clear", "wait": True})
    ids = [identity for _, identity, _ in page.shown]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert page.cleared == 0


def test_ten_thousand_lines_from_four_runs_are_shown_quickly(notebook):
    start = time.monotonic()
    ran = notebook.cell("%%mesh for i in range(4) --show-all\nfor k in range(2500): print('line', i, k)")
    assert len(ran.out.splitlines()) == 10_000
    assert time.monotonic() - start < 30
    for i in range(4):
        mine = [int(line.split()[-1]) for line in ran.out.splitlines() if f" line {i} " in line]
        assert mine == list(range(2500))


def test_widgets_show_as_text_and_say_so_once(notebook):
    pytest.importorskip("ipywidgets")
    ran = notebook.cell(
        "%%mesh for i in range(2)\nimport ipywidgets\nfor _ in range(2): display(ipywidgets.IntSlider(value=3))"
    )
    assert ran.error is None
    assert ran.err.count("cannot live on a node") == 1
    assert ran.out.count("IntSlider(value=3)") == 4
    ran = notebook.cell("%%mesh\nslider = ipywidgets.IntSlider(value=4)\nfine = 1\nslider")
    assert "IntSlider(value=4)" in ran.out
    assert "`slider` stayed on node" in ran.err
    assert notebook.value("fine") == 1


def test_plotly_figures_come_back(notebook):
    pytest.importorskip("plotly")
    notebook.value("import plotly.graph_objects as go")
    ran = notebook.cell("%%mesh\nfig = go.Figure(go.Scatter(y=[1, 2]))\nfig.show()\nlen(fig.data)")
    assert ran.error is None, ran.out
    assert ran.result == 1
    assert type(notebook.names["fig"]).__name__ == "Figure"


def test_what_stays_behind_is_told_once_for_all_runs(notebook):
    ran = notebook.cell("%%mesh for i in range(4)\nimport threading\nlock = threading.Lock()")
    assert ran.err.count("`lock` stayed on node") == 1
    assert "and so in 3 other runs" in ran.err


def test_a_missing_file_that_is_here_says_what_to_do(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.csv").write_text("1")
    ran = notebook.cell("%%mesh\nimport os\nos.chdir('/')\nopen('here.csv')")
    assert isinstance(ran.error, FileNotFoundError)
    assert "here.csv is on this machine and not on node worker" in ran.out
    assert "--file here.csv" in ran.out
    assert "mesh.upload('here.csv')" in ran.out
    ran = notebook.cell("%%mesh\nopen('nowhere.csv')")
    assert "mesh.upload" not in ran.out
