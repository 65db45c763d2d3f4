"""A kernel that loads the extension waits for nothing that its first cell may not need."""

import subprocess
import sys

LOADED = """
import sys
from IPython.core.interactiveshell import InteractiveShell
import computemesh

shell = InteractiveShell.instance()
computemesh.load_ipython_extension(shell)
"""


def ran(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LOADED + code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_loading_the_extension_imports_neither_dask_nor_the_client():
    assert ran("print(sorted({'dask', 'distributed', 'numpy', 'tlz'} & set(sys.modules)))") == "[]"


def test_dask_computes_on_the_mesh_from_its_import_on():
    code = """
import importlib.util, importlib.resources
import dask.array
print(type(dask.config.get("scheduler")).__name__)
print(type(dask.__spec__.loader).__name__, type(dask.__loader__).__name__, importlib.resources.files("dask").is_dir())
"""
    assert ran(code).splitlines() == ["LazyMeshClient", "SourceFileLoader SourceFileLoader True"]


def test_dask_that_is_there_already_computes_on_the_mesh_at_once():
    code = """
computemesh.unload_ipython_extension(shell)
import dask
print(dask.config.get("scheduler", None))
computemesh.load_ipython_extension(shell)
print(type(dask.config.get("scheduler")).__name__)
"""
    assert ran(code).splitlines() == ["None", "LazyMeshClient"]


def test_unloading_before_dask_was_used_leaves_no_trace():
    code = """
before = list(sys.meta_path)
computemesh.unload_ipython_extension(shell)
print([finder for finder in before if finder not in sys.meta_path])
import dask
print(dask.config.get("scheduler", None))
"""
    gone, scheduler = ran(code).splitlines()
    assert "_Watcher" in gone
    assert scheduler == "None"


def test_a_module_that_cannot_be_imported_fails_as_ever():
    code = """
from computemesh.kernel.when_imported import when_imported
when_imported("no_such_module_here", lambda: print("acted"))
try:
    import no_such_module_here
except ModuleNotFoundError as error:
    print(error)
"""
    assert ran(code) == "No module named 'no_such_module_here'"


def test_loading_the_extension_asks_nobody_and_starts_nothing():
    """Why a kernel starts as fast with the driver down: nothing is asked before the mesh is used."""
    code = """
seen = []
watched = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.fork", "_thread.start_new_thread")
sys.addaudithook(lambda event, arguments: seen.append(event) if event in watched else None)
computemesh.unload_ipython_extension(shell)
computemesh.load_ipython_extension(shell)
shell.run_cell("1 + 1")
print(seen)
import socket
try:
    socket.create_connection(("127.0.0.1", 9), timeout=1)
except OSError:
    pass
print("socket.connect" in seen)
"""
    *_, quiet, heard = ran(code).splitlines()
    assert quiet == "[]"
    assert heard == "True"
