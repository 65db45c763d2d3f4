"""A real Dask cluster of two worker processes, and a real IPython shell to type cells into."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from computemesh.kernel import connection
from computemesh.kernel.extension import load_ipython_extension_into, unload_ipython_extension_from


@dataclass(frozen=True)
class Ran:
    """What one cell came to."""

    result: Any
    error: BaseException | None
    out: str
    err: str
    shown: list[dict[str, Any]]


class Notebook:
    """Cells typed into IPython, in this process."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns

    def cell(self, text: str) -> Ran:
        with capture_output() as captured:
            found = self.shell.run_cell(text, store_history=True)
        error = found.error_before_exec or found.error_in_exec
        shown = [output.data for output in captured.outputs]
        return Ran(found.result, error, captured.stdout, captured.stderr, shown)

    def value(self, text: str) -> Any:
        ran = self.cell(text)
        assert ran.error is None, f"{ran.error!r}\n{ran.out}\n{ran.err}"
        return ran.result


@pytest.fixture(autouse=True)
def no_home(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPUTEMESH_HOME", str(tmp_path / "home"))
    yield
    connection.disconnect()


def two_workers(threads: int) -> LocalCluster:
    return LocalCluster(
        n_workers=2,
        threads_per_worker=threads,
        processes=True,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    )


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with (
        dask.config.set({"distributed.scheduler.validate": True, "distributed.worker.validate": True}),
        two_workers(threads=1) as made,
    ):
        yield made


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    _reset(shell)
    load_ipython_extension_into(shell)
    yield shell
    unload_ipython_extension_from(shell)
    _reset(shell)


def _reset(shell: InteractiveShell) -> None:
    shell.reset(new_session=True)
    # The shell's namespace is this process's `__main__`, which starting a worker process asks for its specification.
    shell.user_ns["__spec__"] = None


@pytest.fixture
def local(shell) -> Notebook:
    """A notebook that knows no mesh."""
    return Notebook(shell)


@pytest.fixture
def mesh(cluster) -> Iterator[connection.Mesh]:
    with connection.connect(cluster.scheduler_address) as made:
        yield made


@pytest.fixture
def notebook(shell, mesh) -> Notebook:
    """A notebook connected to the cluster."""
    return Notebook(shell)


@pytest.fixture(scope="session")
def capsule_cluster() -> Iterator[LocalCluster]:
    """Two workers that run cells in capsules, and the mesh's plugin in the scheduler, as on a real mesh."""
    from computemesh.node_agent.capsules import CapsulePlugin
    from computemesh.scheduler_plugin import MeshPlugin

    with (
        dask.config.set({"distributed.worker.memory.pause": False}),
        two_workers(threads=2) as made,
        Client(made, set_as_default=False) as client,
    ):
        client.register_plugin(MeshPlugin(foreign_sampling=False))
        client.register_plugin(CapsulePlugin(1))
        deadline = time.monotonic() + 30
        while not all("capsule" in place["executors"] for place in client.sync(client.scheduler.mesh_nodes)):
            assert time.monotonic() < deadline, "the workers never told of their capsules"
            time.sleep(0.05)
        yield made


@pytest.fixture
def capsules(shell, capsule_cluster) -> Iterator[Notebook]:
    """A notebook whose cells run in capsules."""
    with connection.connect(capsule_cluster.scheduler_address):
        yield Notebook(shell)


@pytest.fixture
def interrupt_after() -> Iterator[Callable[[float], None]]:
    """Press Ctrl-C in this process after some seconds."""
    timers: list[threading.Timer] = []

    def press(seconds: float) -> None:
        main = threading.main_thread().ident
        timers.append(threading.Timer(seconds, lambda: signal.pthread_kill(main, signal.SIGINT)))
        timers[-1].start()

    # Hypothesis watches the collector in a callback, in which Python swallows an interrupt.
    watching = gc.callbacks[:]
    gc.callbacks.clear()
    yield press
    gc.callbacks.extend(watching)
    for timer in timers:
        timer.cancel()
