"""The mesh as an executor of concurrent.futures, and as a backend of joblib."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import computemesh as face
from computemesh.errors import BadRequirement, CannotShip


def test_submit_wait_and_as_completed(mesh):
    with face.Executor(retries=1) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        futures = [executor.submit(pow, 2, number) for number in range(4)]
        done, not_done = concurrent.futures.wait(futures, timeout=30)
        assert len(done) == 4
        assert not not_done
        found = {future.result() for future in concurrent.futures.as_completed(futures, timeout=30)}
        assert found == {1, 2, 4, 8}
        assert executor.submit(os.getpid).result() != os.getpid()
        assert executor.submit(dict, cpu=1).result() == {"cpu": 1}, "keywords are the function's own"
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(pow, 2, 3)


def test_a_call_raises_what_it_raised(mesh):
    with face.Executor() as executor:
        future = executor.submit(lambda: 1 / 0)
        assert isinstance(future.exception(timeout=30), ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            future.result()
        import threading

        with pytest.raises(CannotShip, match="argument number 1"):
            executor.submit(len, threading.Lock())


def test_its_futures_are_arguments_of_further_calls(mesh):
    with face.Executor() as executor:
        first = executor.submit(pow, 2, 3)
        assert executor.submit(pow, first, 2).result() == 64


def test_map_in_order_with_chunks_and_timeout(mesh):
    with face.Executor() as executor:
        assert list(executor.map(pow, [2, 3, 4], [2, 2, 2])) == [4, 9, 16]
        assert list(executor.map(abs, range(-25, 0), chunksize=10)) == list(range(25, 0, -1))
        with pytest.raises(TimeoutError):
            list(executor.map(time.sleep, [0, 1.5], timeout=0.4))
        with pytest.raises(ValueError, match="chunksize=0"):
            executor.map(abs, [1], chunksize=0)


def test_cancelling_and_shutting_down(mesh):
    executor = face.Executor()
    futures = [executor.submit(time.sleep, 0.4) for _ in range(8)]
    assert futures[-1].cancel()
    assert futures[-1].cancelled()
    concurrent.futures.wait([futures[-1]], timeout=10)
    executor.shutdown(wait=True, cancel_futures=True)
    assert all(future.done() for future in futures)
    with pytest.raises(concurrent.futures.CancelledError):
        futures[-1].result()


def test_fields_are_checked(mesh):
    with pytest.raises(BadRequirement, match="cpu='lots'"):
        face.Executor(cpu="lots")
    with pytest.raises(BadRequirement, match="'max_workers'"):
        face.Executor(max_workers=4)


# ---------------------------------------------------------------- joblib

joblib = pytest.importorskip("joblib")


def pid_after(x):
    return os.getpid()


def test_joblib_runs_on_the_mesh(mesh):
    with joblib.parallel_config(backend="mesh"):
        assert joblib.Parallel()(joblib.delayed(pow)(number, 2) for number in range(50)) == [n * n for n in range(50)]
        assert os.getpid() not in joblib.Parallel(n_jobs=-1)(joblib.delayed(pid_after)(n) for n in range(8))
        assert joblib.effective_n_jobs(-1) == 2
        assert joblib.effective_n_jobs(8) == 2


def test_joblib_says_what_failed_and_goes_on_afterwards(mesh):
    with joblib.parallel_config(backend="mesh", n_jobs=-1):
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, n) for n in range(4))
        assert joblib.Parallel()(joblib.delayed(abs)(n) for n in (-1, -2)) == [1, 2]


def test_a_shared_array_is_hashed_and_sent_once(mesh):
    big = np.random.default_rng(0).random(500_000)
    with joblib.parallel_config(backend="mesh", n_jobs=-1):
        sums = joblib.Parallel()(joblib.delayed(np.sum)(big) for _ in range(20))
    assert len(set(sums)) == 1
    assert mesh.shipped.sent == big.nbytes


def test_nested_calls_run_in_their_own_slot(mesh):
    def outer(n):
        inner = joblib.Parallel(n_jobs=-1)(joblib.delayed(os.getpid)() for _ in range(3))
        return os.getpid(), set(inner)

    with joblib.parallel_config(backend="mesh", n_jobs=-1):
        for process, inner in joblib.Parallel()(joblib.delayed(outer)(n) for n in range(4)):
            assert inner == {process}


def test_scikit_learns_search_runs_on_the_mesh(mesh):
    pytest.importorskip("sklearn")
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GridSearchCV

    x, y = make_classification(n_samples=8000, n_features=20, random_state=0)
    search = GridSearchCV(
        RandomForestClassifier(n_estimators=3, n_jobs=2, random_state=0), {"max_depth": [2, 4]}, cv=2, n_jobs=-1
    )
    with joblib.parallel_config(backend="mesh"):
        search.fit(x, y)
    here = GridSearchCV(RandomForestClassifier(n_estimators=3, random_state=0), {"max_depth": [2, 4]}, cv=2).fit(x, y)
    assert search.best_params_ == here.best_params_
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"])
    assert mesh.shipped.sent == x.nbytes, "the data once for all candidates"


@pytest.mark.parametrize(
    "code",
    [
        "import computemesh as mesh; mesh.task; assert 'joblib' not in sys.modules; import joblib",
        "import joblib; import computemesh as mesh; mesh.task",
        "import computemesh as mesh; mesh.register_joblib(); import joblib",
    ],
)
def test_the_backend_is_known_whenever_joblib_is_imported(code):
    check = (
        "from joblib.parallel import BACKENDS; assert 'mesh' in BACKENDS; import importlib; importlib.reload(joblib)"
    )
    subprocess.run([sys.executable, "-c", f"import sys; {code}; {check}"], check=True, timeout=60)
