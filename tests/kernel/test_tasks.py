"""@mesh.task checks its values where they are written and leaves an ordinary function behind."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys

import cloudpickle
import dask
import pytest

import computemesh as mesh
from computemesh.errors import BadRequirement, Interrupted
from computemesh.kernel.tasks import spec_of, split_keywords
from computemesh.task_spec import task_spec_from


@mesh.task(cpu=2, ram="8GB", gpu=0.5, cuda="12.2", packages=["torch>=2"], timeout="1 min", retries=2)
def demanding(x):
    return x + 1


@mesh.task
def plain(x, cpu=1):
    return x * cpu


def test_what_was_asked_stands_on_the_function_as_plain_data():
    assert demanding.__mesh__ == {
        "cpu": 2.0,
        "ram": 8_000_000_000,
        "gpu": 0.5,
        "cuda": "12.2",
        "packages": ["torch>=2"],
        "timeout": 60.0,
        "retries": 2,
        "executor": "capsule",
    }
    assert task_spec_from(demanding.__mesh__).to_spec() == demanding.__mesh__, "the plugin reads it back"


def test_the_function_stays_an_ordinary_function():
    assert demanding(1) == 2
    assert demanding.__name__ == "demanding"
    assert pickle.loads(pickle.dumps(demanding)) is demanding
    by_value = {}
    exec("import computemesh as mesh\n@mesh.task(cpu=3, priority=4)\ndef f(x): return x", by_value)
    copy = cloudpickle.loads(cloudpickle.dumps(by_value["f"]))
    assert (copy(1), copy.__mesh__) == (1, {"cpu": 3.0})
    assert spec_of(copy) == {"cpu": 3.0, "priority": 4}
    assert spec_of(functools.partial(demanding, 1))["cpu"] == 2.0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cpu": "lots"}, "cpu='lots'"),
        ({"cpu": 0}, "cpu=0"),
        ({"ram": "64GG"}, "ram='64GG'"),
        ({"cuda": "new"}, "cuda='new'"),
        ({"retries": -1}, "retries=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"priority": "high"}, "priority='high'"),
        ({"executor": "gpu"}, "executor='gpu'"),
        ({"timeout": 5, "executor": "thread"}, "timeout=5"),
        ({"replicas": 2}, "replicas comes with a later release"),
        ({"quorum": 2}, "quorum comes with a later release"),
        ({"checkpoint": "5 min"}, "checkpoint comes with a later release"),
        ({"cores": 3}, "'cores'"),
    ],
)
def test_nonsense_is_refused_at_decoration_with_the_value_named(asked, said):
    with pytest.raises(BadRequirement) as caught:
        mesh.task(**asked)
    assert said in str(caught.value)


@pytest.mark.parametrize("target", [len, int, 5])
def test_what_cannot_be_decorated_is_refused(target):
    with pytest.raises(BadRequirement):
        mesh.task(cpu=1)(target)


def test_keywords_of_the_function_are_its_own():
    assert split_keywords(plain, {"cpu": 3, "ram": "1GB", "other": 1}) == ({"ram": "1GB"}, {"cpu": 3, "other": 1})


def test_submit_map_gather_as_completed(mesh):
    import computemesh as face

    assert face.submit(plain, 2, cpu=5).result() == 10
    futures = face.map(demanding, range(4), cpu=1)
    assert face.gather(futures) == [1, 2, 3, 4]
    assert face.gather({"a": futures[0], "b": [futures[1]]}) == {"a": 1, "b": [2]}
    assert sorted(result for _, result in face.as_completed(futures, with_results=True)) == [1, 2, 3, 4]
    assert face.submit(demanding, futures[3]).result() == 5, "futures arrive as their values"
    assert list(face.as_completed([])) == []


def test_methods_coroutines_and_generators(mesh):
    import computemesh as face

    class Model:
        @face.task(cpu=1)
        def predict(self, x):
            return x + 1

    async def later(x):
        return x

    def several(n):
        yield from range(n)

    async def endless():
        yield 1

    assert face.submit(Model().predict, 1).result() == 2
    assert face.submit(later, 3).result() == 3
    assert face.submit(several, 3).result() == [0, 1, 2]
    with pytest.raises(BadRequirement, match="async generator"):
        face.submit(endless)


def test_it_works_in_delayed_and_in_dasks_own_submit(mesh):
    assert dask.delayed(demanding)(1).compute(scheduler=mesh.client) == 2
    assert mesh.client.submit(demanding, 2).result() == 3
    import dask.array as da

    assert da.ones(4, chunks=2).map_blocks(demanding).sum().compute(scheduler=mesh.client) == 8


def test_a_failed_task_raises_what_it_raised(mesh):
    import computemesh as face

    with pytest.raises(ZeroDivisionError):
        face.submit(lambda: 1 / 0).result()


def test_cancelled_futures_say_so(mesh):
    import time

    import computemesh as face

    futures = face.map(time.sleep, [0.5] * 6)
    face.cancel(futures)
    with pytest.raises(Interrupted, match="cancelled"):
        futures[-1].result(timeout=10)


def test_why_and_nodes_of_a_plain_dask_cluster(mesh):
    import computemesh as face

    nodes = face.nodes()
    assert nodes.names == ("worker 0", "worker 1")
    assert nodes["worker 0"].available
    assert "takes tasks" in repr(nodes)
    assert nodes._repr_html_().count("<tr>") == 3
    future = face.submit(plain, 1)
    future.result()
    assert "chosen by Dask alone" in repr(face.why(future))
    with pytest.raises(KeyError, match="nowhere"):
        nodes["nowhere"]


def test_decorating_imports_nothing_heavy():
    code = "import computemesh as mesh, sys\nmesh.task(cpu=1)(lambda: 1)\nassert 'distributed' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_face_has_all_its_names():
    from computemesh.kernel import api

    for name in api.__all__:
        assert getattr(api, name) is not None
    assert set(mesh.__all__) - {"__version__"} <= set(api.__all__)
