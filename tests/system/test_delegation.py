"""A task or notebook that itself uses the mesh does so as its user, for an hour, and never waits for its own slot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from computemesh.certificates import key_pem, new_key, new_request
from computemesh.driver_client import renew
from computemesh.errors import Refused
from computemesh.identity import HOME_VARIABLE, Identity, Role, save_identity

from .conftest import House, client_of, mesh

FOUR = "import computemesh as mesh\nprint(sorted(mesh.gather(mesh.map(lambda x: x * x, range(4)))))"


@pytest.fixture(scope="module")
def ann(shared_house: House, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ann's home: a user of the mesh, and no administrator."""
    home = tmp_path_factory.mktemp("ann")
    token = shared_house.token("user", name="ann")
    done = mesh("login", shared_house.address, "--token", token["token"], "--ca", token["ca"], "--home", str(home))
    assert done.returncode == 0, done.stderr
    return home


def ran(home: Path, code: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a script as whoever's home it is."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, HOME_VARIABLE: str(home)},
    )  # fmt: skip


def test_tasks_in_all_slots_that_each_wait_for_tasks_of_their_own_all_end(shared_house: House, ann: Path):
    script = """
import computemesh as mesh
@mesh.task(executor="capsule")
def outer(n):
    import computemesh as mesh
    inner = mesh.map(lambda x: x + n, range(3))
    return sum(mesh.gather(inner)), mesh.connect().identity.name
print(mesh.gather(mesh.map(outer, range(6))))
"""
    done = ran(ann, script)
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == [(3 + 3 * n, "ann") for n in range(6)]


def test_notebooks_in_all_slots_that_each_use_the_mesh_all_end(shared_house: House, ann: Path, tmp_path: Path):
    names = [f"{number}.ipynb" for number in range(4)]
    for name in names:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FOUR)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, tmp_path / name)
    out = tmp_path / "out"
    done = mesh("batch", *(str(tmp_path / name) for name in names), "--out", str(out), "--home", str(ann), timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names:
        assert nbformat.read(out / name, as_version=4).cells[0].outputs[0]["text"] == "[0, 1, 4, 9]\n"


def test_dasks_own_get_client_works_in_a_capsule(shared_house: House, ann: Path):
    script = """
import computemesh as mesh
from distributed import get_client, worker_client
@mesh.task(executor="capsule")
def outer():
    with worker_client() as client:
        return get_client().submit(sum, [1, 2]).result() + client.submit(sum, [3]).result()
print(mesh.submit(outer).result())
"""
    done = ran(ann, script)
    assert done.stdout == "6\n", done.stderr


def test_a_cell_on_a_node_uses_the_mesh_as_its_user(shared_house: House, ann: Path):
    script = """
import computemesh as mesh
source = '''
import computemesh as mesh
total = mesh.submit(sum, [1, 2, 3]).result()
who = mesh.connect().identity
lent, name = who.delegated, who.name
'''
mesh.run(source)
print(total, lent, name)
"""
    done = ran(ann, script)
    assert done.stdout == "6 True ann\n", done.stderr


def test_what_was_lent_is_gone_with_its_task_and_cannot_be_renewed(shared_house: House, ann: Path, tmp_path: Path):
    script = """
import computemesh as mesh
@mesh.task(executor="capsule")
def lent():
    import computemesh as mesh
    identity = mesh.connect().identity
    files = (identity.authority, identity.certificate, identity.key)
    return str(identity.folder), identity.driver, [file.read_text() for file in files]
print(mesh.submit(lent).result())
"""
    done = ran(ann, script)
    assert done.returncode == 0, done.stderr
    folder, driver, (authority, certificate, key) = eval(done.stdout)
    assert not Path(folder).exists()
    stolen = Identity(tmp_path / "user", Role.USER, "ann", driver)
    save_identity(stolen, authority.encode(), certificate.encode(), key.encode())
    with pytest.raises(Refused, match="lent to a task"):
        renew(stolen)
    [event] = [event for event in shared_house.events("certificate-issued") if event["data"].get("delegated")][-1:]
    assert "Certificate of ann for the task" in event["text"]
    assert event["data"]["expires"] - event["time"] < 3700


def test_a_node_gets_no_right_for_a_task_that_it_does_not_run(shared_house: House):
    request = new_request(new_key(), "ann").decode()
    assert key_pem(new_key())

    async def ask(key, dask_worker):
        return await dask_worker.scheduler.mesh_delegate(key=key, request=request)

    with client_of(shared_house) as client:
        for answer in client.run(ask, "lent-1").values():
            assert answer["error"] == "lent-1 does not run on this node"
            assert "certificate" not in answer


def test_a_thread_task_is_told_to_take_a_process_of_its_own(shared_house: House, ann: Path):
    script = """
import computemesh as mesh
def outer():
    import computemesh as mesh
    return mesh.submit(sum, [1]).result()
mesh.submit(outer).result()
"""
    done = ran(ann, script)
    assert done.returncode != 0
    assert '@mesh.task(executor="capsule")' in done.stderr


def test_a_shuffle_between_nodes_works_under_the_guard(shared_house: House, ann: Path):
    script = """
import computemesh as mesh, pandas as pd, dask, dask.dataframe as dd
with mesh.connect(), dask.config.set({"dataframe.shuffle.method": "p2p"}):
    frame = dd.from_pandas(pd.DataFrame({"k": range(1000), "v": range(1000)}), npartitions=8)
    print(int(frame.shuffle("k", npartitions=6).v.sum().compute()))
"""
    done = ran(ann, script)
    assert done.stdout.strip() == "499500", done.stderr
