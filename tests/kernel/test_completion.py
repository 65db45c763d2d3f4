"""Tab completes options, pools, nodes and names, and never waits for a mesh."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from computemesh.kernel.completion import Known, MeshWords, completions

KNOWN = Known(("big", "gpu"), ("anna", "bert"), ("berlin",))


def complete(text: str) -> list[str]:
    token = "" if text[-1:].isspace() else text.split()[-1]
    return list(completions(text, token, {"data": 1, "_hidden": 2}, lambda: KNOWN) or ())


def test_options():
    assert complete("%%mesh --p") == ["--progress-after", "--pool", "--packages"]
    assert "--no-wait" in complete("%%mesh for x in y --n")


def test_pools_nodes_names_and_commands():
    assert complete("%%mesh --pool ") == ["big", "gpu"]
    assert complete("%%mesh --pool g") == ["gpu"]
    assert complete("%%mesh --ship d") == ["data"]
    assert complete("%%mesh --where si") == ["site"]
    assert "'anna'" in complete("%%mesh --where name == ")
    assert complete("%mesh ca") == ["cancel"]


def test_other_lines_are_left_alone():
    assert completions("x = --p", "--p", {}, lambda: KNOWN) is None
    assert completions("%%mesh --p\nx = y.fo", "y.fo", {}, lambda: KNOWN) is None
    assert completions("%%mesh for x in da", "da", {}, lambda: KNOWN) is None


def test_ipython_asks_us(notebook):
    _, found = notebook.shell.complete("--p", "%%mesh --p", 10)
    assert {"--pool", "--packages"} <= set(found)
    _, found = notebook.shell.complete("da", "data.to_cs", 10)
    assert not any(each.startswith("--") for each in found)


def test_a_mesh_that_does_not_answer_holds_nobody_up():
    answer = threading.Event()

    def ask() -> Known:
        answer.wait(30)
        return KNOWN

    words = MeshWords(ask)
    start = time.monotonic()
    assert words.now() == Known()
    assert time.monotonic() - start < 5
    answer.set()
    deadline = time.monotonic() + 10
    while words.now() != KNOWN:
        assert time.monotonic() < deadline


def test_no_mesh_means_no_words():
    def ask() -> Known:
        raise OSError("nobody")

    assert MeshWords(ask).now() == Known()


def test_loading_the_extension_does_not_load_dasks_client():
    script = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'computemesh')\nshell.run_cell('x = 1')\n"
        "print(sorted({'distributed', 'numpy', 'tornado'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
