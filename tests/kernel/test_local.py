"""Without a mesh everything still works, on threads of this process, and says so once."""

from __future__ import annotations

import os
import time

import dask
import pytest
from distributed import Client

import computemesh as mesh
from computemesh.errors import DriverUnreachable, NoMesh
from computemesh.kernel import connection
from computemesh.kernel.extension import LazyMeshClient, unload_ipython_extension_from


def test_dask_code_runs_here_at_once_and_says_so_once(local, capsys):
    start = time.monotonic()
    ran = local.cell("import dask, os\ndask.delayed(os.getpid)().compute()")
    assert ran.result == os.getpid()
    assert time.monotonic() - start < 10, "nobody waits for a mesh that is not there"
    assert "No mesh, so this runs on local threads" in ran.err
    assert "mesh login" in ran.err
    ran = local.cell("dask.delayed(os.getpid)().compute()")
    assert ran.err == ""


def test_cells_and_the_sdk_run_here(local):
    ran = local.cell("%%mesh for i in range(3)\nprint('run', i)\ni * 2")
    assert ran.result == [0, 2, 4]
    assert "No mesh" in ran.err
    assert local.value("import computemesh as mesh\nmesh.gather(mesh.map(abs, [-1, 2]))") == [1, 2]
    nodes = local.value("mesh.nodes()")
    assert nodes[0].state == "local threads, no mesh"
    assert "no mesh" in repr(local.value("%mesh"))


def test_prints_of_the_notebook_go_where_they_always_went(local):
    local.value("%%mesh\n1")
    assert local.cell("print('here')").out == "here\n"


def test_connect_says_how_to_log_in():
    with pytest.raises(NoMesh, match="mesh login"):
        mesh.connect()


def test_connect_to_nobody_says_which_address():
    with pytest.raises(DriverUnreachable, match="tcp://127.0.0.1:1"):
        mesh.connect("tcp://127.0.0.1:1", timeout=0.5)


def test_a_client_that_is_already_there_is_used(local, cluster):
    with Client(cluster.scheduler_address):
        assert local.value("import dask, os\ndask.delayed(os.getpid)().compute()") != os.getpid()
        assert local.value("%%mesh\nimport os\nos.getpid()") != os.getpid()
        assert connection.current().client is not None
    ran = local.cell("%%mesh\nos.getpid()")
    assert ran.result == os.getpid(), "and when it is closed, cells run here again"


def test_connect_adopts_a_client_and_leaves_it_open(cluster):
    with Client(cluster.scheduler_address) as client:
        with mesh.connect(client=client) as found:
            assert found.client is client
        assert client.status == "running"


def test_unloading_puts_dask_back(shell):
    assert isinstance(dask.config.get("scheduler"), LazyMeshClient)
    unload_ipython_extension_from(shell)
    assert dask.config.get("scheduler", None) is None
    assert "mesh" not in shell.magics_manager.magics["cell"]


def test_persist_finds_the_cluster(local, mesh_address):
    local.value(f"import computemesh as mesh, dask\nmesh.connect({mesh_address!r})")
    local.value("import dask.array as da\nx = da.ones(4, chunks=2).persist()")
    assert local.value("type(next(iter(dict(x.dask).values()))).__name__") == "Future"


@pytest.fixture
def mesh_address(cluster) -> str:
    return cluster.scheduler_address
