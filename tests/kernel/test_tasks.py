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
        ({"checkpoint": True}, "checkpoint comes with a later release"),
        ({"replicas": True}, "replicas comes with a later release"),
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


def test_every_field_is_in_the_signature_and_documented():
    import inspect

    from computemesh import public
    from computemesh.kernel.tasks import KNOWN, task

    fields = [name for name, each in inspect.signature(task).parameters.items() if each.kind is each.KEYWORD_ONLY]
    assert set(fields) == KNOWN
    for name in fields:
        assert f"        {name}: " in task.__doc__, f"{name} is documented"
    assert set(inspect.signature(public.Task.options).parameters) - {"self"} == KNOWN
    with pytest.raises(TypeError, match="cores"):
        mesh.task(cores=3)


def test_values_that_ask_nothing_are_accepted():
    assert mesh.task(replicas=1, quorum=1, checkpoint=False)(lambda: 1).__mesh__ == {}


def test_a_decorated_function_submits_maps_and_runs_locally(mesh):
    assert plain.submit(2, cpu=5).result() == 10
    assert [future.result() for future in demanding.map([1, 2])] == [2, 3]
    assert demanding.local(1) == 2
    with pytest.raises(TypeError, match="demanding: too many positional arguments"):
        demanding.submit(1, 2)
    with pytest.raises(TypeError, match="demanding: missing a required argument"):
        demanding.local()


def test_a_variant_asks_for_something_else_and_leaves_the_original():
    variant = demanding.options(cpu=8, ram=None, timeout=None, priority=3)
    assert variant.__mesh__ == {"cpu": 8.0, "gpu": 0.5, "cuda": "12.2", "packages": ["torch>=2"], "retries": 2}
    assert spec_of(variant)["priority"] == 3
    assert demanding.__mesh__["cpu"] == 2.0
    assert variant(1) == 2
    assert variant.options(priority=None).__mesh__ == variant.__mesh__
    assert "priority" not in spec_of(variant.options(priority=None))
    assert cloudpickle.loads(cloudpickle.dumps(variant)).__mesh__ == variant.__mesh__
    with pytest.raises(BadRequirement, match="cpu='lots'"):
        demanding.options(cpu="lots")
    with pytest.raises(BadRequirement, match="'cores'"):
        demanding.options(cores=3)


def test_a_variant_runs_on_the_mesh(mesh):
    assert plain.options(retries=1).submit(3, cpu=2).result() == 6
    assert mesh.client.submit(plain.options(priority=2), 4).result() == 4


def test_local_refuses_what_cannot_travel_and_runs_on_copies():
    import threading

    import computemesh as face
    from computemesh.errors import CannotShip

    @face.task
    def grow(rows):
        rows.append(1)
        return rows

    given = [0]
    assert grow.local(given) == [0, 1]
    assert given == [0], "as on a node, the notebook's list stays as it was"
    with pytest.raises(CannotShip, match="argument number 1"):
        grow.local(threading.Lock())

    @face.task
    def locked():
        return threading.Lock()

    with pytest.raises(CannotShip, match="the result of"):
        locked.local()

    @face.task
    def several(n):
        yield from range(n)

    @face.task
    async def later():
        return 5

    assert several.local(3) == [0, 1, 2]
    assert later.local() == 5


def test_methods_static_and_class_methods(mesh):
    import computemesh as face

    class Model:
        factor = 3

        @face.task(cpu=1)
        def scaled(self, x):
            return x * self.factor

        @face.task(cpu=1)
        @staticmethod
        def doubled(x):
            return 2 * x

        @staticmethod
        @face.task(cpu=1)
        def tripled(x):
            return 3 * x

        @classmethod
        @face.task(cpu=1)
        def made(cls, x):
            return cls.factor * x

    assert face.submit(Model().scaled, 2).result() == 6
    assert Model.scaled.submit(Model(), 2).result() == 6
    assert Model.doubled.submit(2).result() == 4
    assert Model.tripled.submit(2).result() == 6
    assert face.submit(Model.made, 2).result() == 6
    assert spec_of(Model().scaled) == spec_of(Model.doubled) == spec_of(Model.made) == {"cpu": 1.0}
    with pytest.raises(TypeError, match=r"for a method use `mesh.submit\(object.scaled"):
        Model().scaled.submit(2)


def test_the_scheduler_never_reads_a_tasks_function_or_arguments(mesh, tmp_path, monkeypatch):
    """A module that only the nodes and the notebook have breaks nothing at the scheduler."""
    import computemesh as face

    class Trap:
        def __init__(self, here):
            self.here = here

        def __reduce__(self):
            return _sprung, (self.here,)

    import os

    assert face.submit(lambda trap: trap, Trap(os.getpid())).result() != os.getpid()
    assert face.map(lambda number, trap: trap, [1, 2], trap=Trap(os.getpid()))[1].result() != os.getpid()


def _sprung(pid):
    import os

    # The scheduler of the tests lives in this process.
    assert os.getpid() != pid, "unpickled at the scheduler"
    return os.getpid()


def test_what_cannot_travel_is_named(mesh):
    import threading

    import computemesh as face
    from computemesh.errors import CannotShip

    lock = threading.Lock()
    with pytest.raises(CannotShip, match=r"argument number 2 of `pow`, a lock"):
        face.submit(pow, 2, lock)
    with pytest.raises(CannotShip, match=r"argument x of `.*<lambda>`, a lock"):
        face.submit(lambda x: x, x=lock)
    with pytest.raises(CannotShip, match=r"the argument `x` of"):
        face.map(lambda _, x: x, [1], x=lock)
    with pytest.raises(CannotShip, match="Cannot send the function"):
        face.submit(lambda: lock)


def test_presets_are_known_settings_that_calls_count_over(mesh):
    import computemesh as face
    from computemesh.kernel.presets import PRESETS

    with pytest.raises(BadRequirement, match="'many-small'"):
        face.preset("fast")
    for name, settings in PRESETS.items():
        with face.preset(name):
            assert {key: dask.config.get(key) for key in settings} == settings
            assert face.submit(pow, 2, 3).result() == 8
    assert dask.config.get("computemesh.tasks.retries", 0) == 0
    with face.preset("io"):
        tries = face.submit(_fails_twice, str(id(tries_of := object())))
        assert tries.result() == 3, "retried as the preset says"
        with pytest.raises(ZeroDivisionError):
            face.submit(lambda: 1 / 0, retries=0).result()
    del tries_of


def _fails_twice(name):
    import tempfile
    from pathlib import Path

    file = Path(tempfile.gettempdir()) / f"mesh-test-{name}"
    count = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(count))
    if count < 3:
        raise OSError("not yet")
    file.unlink()
    return count


def test_an_edit_is_noticed_with_autoreload(notebook, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "auto_helper.py").write_text("def f():\n    return 1\n")
    notebook.value("%load_ext autoreload")
    notebook.value("%autoreload 2")
    notebook.value("import auto_helper, computemesh as mesh")
    assert notebook.value("mesh.submit(auto_helper.f).result()") == 1
    assert notebook.value("%%mesh\nauto_helper.f()") == 1
    (tmp_path / "auto_helper.py").write_text("def f():\n    return 22  # another length\n")
    assert notebook.value("mesh.submit(auto_helper.f).result()") == 22
    assert notebook.value("%%mesh\nauto_helper.f()") == 22
    notebook.value("%autoreload 0")
    sys.modules.pop("auto_helper", None)
