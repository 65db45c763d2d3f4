"""From the owner's key to everything of the mesh on the machine standing still, with every core busy for the mesh.

A real driver, a real agent with its worker, busy capsules with a child process each and a busy thread; real keys on a
real X server. The clock starts before the program that presses the key is started, and ends when every process below
the agent is stopped. Again and again: the tasks go on in place in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from computemesh.node_agent.reins import state_of

from .result import Direction, Result, median, spread_of

GOAL = 0.250
POLICY = 'idle = "2 s"\nresume = "2 s"\nevict = "1 h"\nothers-cpu = "100 %"\nkeep-disk = "0 B"\nkeep-ram = "0 B"\n'
BUSY = """
import subprocess, time
child = subprocess.Popen(["sleep", "100000"])
while True:
    sum(range(100_000))
"""


def busy_in_a_capsule() -> None:
    """Compute for ever, with a child process."""
    exec(BUSY, {})


def busy_in_a_thread() -> None:
    """Compute for ever in long calls that hold the interpreter."""
    while True:
        sum(range(300_000))


@contextlib.contextmanager
def screen() -> Iterator[str]:
    """Give an X server without a screen.

    Raises:
        SystemExit: the programs are missing.
    """
    for program in ("Xvfb", "xdotool"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is needed for real input and is not here: `make test` installs it")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-nolisten", "tcp", "-screen", "0", "64x64x24"],
        pass_fds=[write], stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read) as number:
        name = f":{number.readline().strip()}"
    try:
        yield name
    finally:
        server.terminate()
        server.wait()


def mesh(*words: str) -> str:
    """Run a command of ours and return what it prints."""
    ran = subprocess.run([sys.executable, "-m", "computemesh", *words], capture_output=True, text=True, check=True)
    return ran.stdout


@contextlib.contextmanager
def house(display: str) -> Iterator[tuple[Path, int]]:
    """Give a mesh of one machine that has an owner: the driver's home, and the agent's process."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home, laptop = Path(folder, "driver"), Path(folder, "laptop")
        laptop.mkdir()
        Path(laptop, "policy.toml").write_text(POLICY, "utf-8")
        ports = [_free_port(), _free_port()]
        stack.enter_context(
            _running("up", "--home", str(home), "--host", "127.0.0.1", "--port", str(ports[0]),
                     "--scheduler-port", str(ports[1]))
        )  # fmt: skip
        _until(lambda: Path(home, "admin", "identity.json").exists())
        made = _until(lambda: _token(home))
        agent = stack.enter_context(
            _running("join", f"127.0.0.1:{ports[0]}", "--token", made["token"], "--ca", made["ca"], "--name", "laptop",
                     "--service", "--home", str(laptop), DISPLAY=display)
        )  # fmt: skip
        _until(lambda: any(node["worker"] for node in json.loads(mesh("nodes", "--json", "--home", str(home)))))
        yield home, agent


def _token(home: Path) -> Any:
    with contextlib.suppress(subprocess.CalledProcessError):
        return json.loads(mesh("token", "create", "--json", "--home", str(home)))
    return None


@contextlib.contextmanager
def _running(*words: str, **environment: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "computemesh", *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until(condition: Any, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise RuntimeError("the mesh did not come up")
        time.sleep(0.05)
    return found


def below(agent: int) -> list[int]:
    return [process.pid for process in psutil.Process(agent).children(recursive=True)]


def moving(processes: list[int]) -> list[int]:
    """Return which processes are not stopped."""
    return [process for process in processes if state_of(process) not in "TtZX"]


def one_key(agent: int, display: str) -> float:
    """Press a key; return the seconds until nothing below the agent moves, then wait until all goes on."""
    begun = time.perf_counter()
    subprocess.Popen(["xdotool", "key", "a"], env={**os.environ, "DISPLAY": display})
    while True:
        left = below(agent)
        while left := moving(left):
            time.sleep(0.001)
            if time.perf_counter() - begun > 30:
                raise RuntimeError("the machine was never given back")
        took = time.perf_counter() - begun
        if not moving(below(agent)):
            break
    _until(lambda: not any(state_of(process) == "T" for process in below(agent)))
    time.sleep(0.4)
    return took


def run(quick: bool) -> Result:
    """Measure."""
    import dask

    import computemesh

    inputs = 5 if quick else 100
    with screen() as display, house(display) as (home, agent):
        connected = computemesh.connect(home=home)
        client = connected.client
        with dask.annotate(mesh={"executor": "capsule"}):
            tasks = [client.submit(busy_in_a_capsule, pure=False)]
        with dask.annotate(mesh={"executor": "thread"}):
            tasks.append(client.submit(busy_in_a_thread, pure=False))
        _until(lambda: len(below(agent)) >= 5)
        processes = len(below(agent))
        took = sorted(one_key(agent, display) for _ in range(inputs))
        for task in tasks:
            task.cancel()
        client.close()
    p99 = took[min(len(took) - 1, round(0.99 * len(took)) - 1)] if len(took) > 1 else took[0]
    return Result(
        name="reaction, 99th percentile",
        figure=p99,
        unit="s",
        spread=spread_of(took),
        goal=GOAL,
        direction=Direction.AT_MOST,
        compared_with="nothing: it is a promise to the owner",
        detail={"inputs": inputs, "median": f"{median(took):.3f} s", "processes frozen": processes},
    )
