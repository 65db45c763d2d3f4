"""A lock is held by one process, and given back however its holder ends."""

import subprocess
import sys
import threading
import time

import pytest

from computemesh.locks import HeldElsewhere, held

HOLD = (
    "import sys, pathlib, time\nfrom computemesh.locks import held\n"
    "with held(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "lock"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_another_process_is_named(holder, tmp_path):
    with pytest.raises(HeldElsewhere) as refused, held(tmp_path / "lock"):
        pytest.fail("held twice")
    assert refused.value.holder == str(holder.pid)


def test_a_killed_holder_gives_it_back_and_who_waits_gets_it(holder, tmp_path):
    threading.Timer(0.3, holder.kill).start()
    begun = time.monotonic()
    with held(tmp_path / "lock", wait=True):
        assert holder.wait(10) != 0
    assert time.monotonic() - begun > 0.2


def test_it_can_be_taken_again_after_release(tmp_path):
    for _ in range(2):
        with held(tmp_path / "lock"):
            pass
