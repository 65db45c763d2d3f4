"""A real Dask cluster of two worker processes, and a real IPython shell to type cells into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import pytest
from distributed import LocalCluster
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


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with (
        dask.config.set({"distributed.scheduler.validate": True, "distributed.worker.validate": True}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as made,
    ):
        yield made


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.reset(new_session=True)
    load_ipython_extension_into(shell)
    yield shell
    unload_ipython_extension_from(shell)
    shell.reset(new_session=True)


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
