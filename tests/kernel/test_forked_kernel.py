"""A notebook's kernel on a node is forked from the task that runs it, and knows nothing of that task."""

from __future__ import annotations

import subprocess
import sys

import pytest

from computemesh.kernel.forked_kernel import Forked, forkable

TASK = """
import json, os, sys
import nbformat
import numpy as np
import computemesh.output
from computemesh.kernel.notebook_job import NotebookJob, run_notebook

class Channel:
    def emit(self, topic, message):
        pass

secret_of_the_task = open({file!r})
computemesh.output.install(Channel().emit)
np.random.seed(1)
print("task", np.random.random())
cells = [nbformat.v4.new_code_cell(source) for source in {cells!r}]
job = NotebookJob(nbformat.writes(nbformat.v4.new_notebook(cells=cells)), "run", "topic", "python3")
done = nbformat.reads(run_notebook(job).notebook, as_version=4)
for cell in done.cells:
    for output in cell.outputs:
        print(output.get("text") or output.get("evalue") or output["data"]["text/plain"], end="")
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
"""


def told(cells: list[str], tmp_path) -> list[str]:
    file = tmp_path / "task's own"
    file.write_text("", "utf-8")
    script = TASK.format(cells=cells, file=str(file))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_it_runs_cells_in_order_and_ends_with_its_notebook(tmp_path):
    lines = told(["a = 1", "a += 1\nprint(a)", "a * 21"], tmp_path)
    assert lines[1:] == ["2", "42no child is left"]


def test_it_is_a_fork_and_yet_has_nothing_of_the_task(tmp_path):
    lines = told(
        [
            "import sys\nprint('nbclient' in sys.modules)",
            "import computemesh.output\nprint(computemesh.output._process_emitter)",
            "import psutil\nprint([file.path for file in psutil.Process().open_files() if 'task' in file.path])",
            "import numpy as np\nprint(np.random.random())",
            "import os\nprint(os.getsid(0) == os.getpid(), __name__, sys.argv[0])",
            "import __main__\nx = 5\nprint(__main__.x, hasattr(__main__, 'Channel'))",
            "import asyncio\nprint(await asyncio.sleep(0, 'awaited'))",
            "import subprocess\nprint(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout)",
        ],
        tmp_path,
    )
    task, forked, emitter, files, number, *rest = lines
    assert forked == "True"
    assert emitter == "None"
    assert files == "[]"
    assert number != task.split()[1]
    assert rest == ["True __main__ ipykernel_launcher", "5 False", "awaited", "child", "", "no child is left"]


def test_a_kernel_that_exits_ends_the_notebook_with_that(tmp_path):
    with pytest.raises(AssertionError, match="DeadKernelError"):
        told(["import os; os._exit(7)"], tmp_path)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["python", "-m", "ipykernel_launcher", "-f", "c.json"], ["-f", "c.json"]),
        (
            [sys.executable, "-m", "ipykernel_launcher", "--ext=computemesh", "-f", "c"],
            ["--ext=computemesh", "-f", "c"],
        ),
        (["python3", "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "c"], ["-f", "c"]),
        (["/elsewhere/bin/python", "-m", "ipykernel_launcher", "-f", "c"], None),
        (["python", "-m", "bash_kernel", "-f", "c"], None),
        (["R", "--slave"], None),
        ([], None),
    ],
)
def test_only_this_interpreters_own_kernel_is_forked(command, arguments):
    assert forkable(command) == arguments


def test_a_forked_process_is_waited_for_like_any_other():
    import os

    pid = os.fork()
    if pid == 0:
        os._exit(3)
    process = Forked(pid)
    assert process.wait(timeout=30) == 3
    assert process.poll() == 3
    process.kill()  # it has ended: no error
