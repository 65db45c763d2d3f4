"""What the agent sees of the machine: samples, battery, GPU, input. Real where this machine has it, else recorded."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from computemesh.node import GpuFacts, GpuSample
from computemesh.node_agent.accounting import Accounting
from computemesh.node_agent.activity import (
    LogindSource,
    X11Source,
    has_desktop,
    least_age,
    terminal_source,
)
from computemesh.node_agent.battery import Battery, read_battery
from computemesh.node_agent.benchmark import core_speed, measure
from computemesh.node_agent.facts import cpu_model, installed_packages, node_facts
from computemesh.node_agent.gpu import Gpus, find_gpus
from computemesh.node_agent.pacing import make_quota_group, take_turns
from computemesh.node_agent.processes import children_of, kill_tree, peak_memory, times_of
from computemesh.node_agent.sampler import Sampler
from computemesh.node_agent.share import share_of

from .waiting import BOUND, eventually, needed

# ---------------------------------------------------------------- samples


def test_samples_hold_what_the_machine_did(tmp_path: Path) -> None:
    accounting = Accounting()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        accounting.follow(child.pid)
        sampler = Sampler(accounting, Gpus(None), [lambda: 5.0, lambda: None, lambda: 3.0], tmp_path)
        first = sampler.sample()
        began = time.monotonic()
        used = times_of(child.pid)
        assert used is not None
        while (now := times_of(child.pid)) is not None and now.cpu - used.cpu < 0.5:
            time.sleep(0.05)
            assert time.monotonic() - began < BOUND
        sample = sampler.sample()
        assert {member.pid for member in sampler.members} == {child.pid}
    finally:
        child.kill()
        child.wait()
    assert first.net_in is None
    assert sample.cpu_ours > 0
    assert 0 < sample.cpu <= 100
    assert 0 < sample.ram_free < psutil.virtual_memory().total
    assert sample.disk_free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert sample.net_in is not None
    assert sample.net_in >= 0
    assert sample.input_age == 3.0
    assert sample.gpus == ()


def test_process_figures_are_the_systems_own() -> None:
    child = subprocess.Popen([sys.executable, "-c", "x = bytearray(50_000_000); input()"], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + BOUND
        while (seen := times_of(child.pid)) is None or seen.memory < 50_000_000:
            assert time.monotonic() < deadline
        assert seen.memory == pytest.approx(psutil.Process(child.pid).memory_info().rss, rel=0.1)
        assert seen.group == os.getpgid(child.pid)
        assert peak_memory(child.pid) >= 50_000_000
        assert child.pid in children_of(os.getpid())
    finally:
        child.kill()
        child.communicate()
    assert times_of(child.pid) is None
    assert peak_memory(child.pid) == 0


def test_kill_tree_reaches_stopped_and_detached_descendants() -> None:
    code = """
        import subprocess, time
        for detached in (False, True):
            subprocess.Popen(["sleep", "600"], start_new_session=detached)
        print(flush=True)
        time.sleep(600)
    """
    root = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert root.stdout is not None
    root.stdout.readline()
    tree = psutil.Process(root.pid).children(recursive=True)
    assert len(tree) == 2
    tree[0].suspend()
    kill_tree(root.pid)
    assert root.wait(BOUND) == -9
    _, alive = psutil.wait_procs(tree, timeout=BOUND)
    assert not alive
    root.stdout.close()


# ---------------------------------------------------------------- battery


def supply(root: Path, name: str, **entries: object) -> None:
    folder = root / "class" / "power_supply" / name
    folder.mkdir(parents=True)
    for entry, value in entries.items():
        (folder / entry).write_text(f"{value}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="sysfs is Linux's")
@pytest.mark.parametrize(
    ("supplies", "expected"),
    [
        ({}, None),
        ({"AC": {"type": "Mains", "online": 1}}, None),
        ({"BAT0": {"type": "Battery", "capacity": 73, "status": "Discharging"}}, Battery(73, False)),
        ({"BAT0": {"type": "Battery", "capacity": 73, "status": "Charging"}}, Battery(73, True)),
        ({"BAT0": {"type": "Battery", "capacity": 100, "status": "Full"}}, Battery(100, True)),
        (
            {
                "AC": {"type": "Mains", "online": 1},
                "BAT0": {"type": "Battery", "capacity": 40, "status": "Not charging"},
            },
            Battery(40, True),
        ),
        (
            {
                "BAT0": {"type": "Battery", "capacity": 40, "status": "Discharging"},
                "BAT1": {"type": "Battery", "capacity": 80, "status": "Unknown"},
            },
            Battery(60, False),
        ),
        (
            {"BAT0": {"type": "Battery", "energy_now": 30, "energy_full": 60, "status": "Discharging"}},
            Battery(50, False),
        ),
        ({"mouse": {"type": "Battery", "capacity": 5, "status": "Discharging", "scope": "Device"}}, None),
        ({"BAT0": {"type": "Battery", "capacity": "what?"}}, None),
    ],
)
def test_battery_from_sysfs(tmp_path: Path, supplies: dict[str, dict[str, object]], expected: Battery | None) -> None:
    for name, entries in supplies.items():
        supply(tmp_path, name, **entries)
    assert read_battery(tmp_path) == expected


# ---------------------------------------------------------------- GPU


class RecordedNvml:
    """Answers as NVML 12 gave them for two boards, of which the second does not tell its load."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return "NVIDIA H100 80GB HBM3" if handle == 0 else b"Tesla K80"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        total = (85_520_809_984, 11_997_020_160)[handle]
        return SimpleNamespace(total=total, free=total - 1_000, used=1_000)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if handle == 1:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=37, memory=12)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        assert sensor == 0
        return 44 + handle

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 12040


def test_gpus_as_nvml_tells() -> None:
    gpus = Gpus(RecordedNvml())
    assert gpus.facts() == (GpuFacts("NVIDIA H100 80GB HBM3", 85_520_809_984), GpuFacts("Tesla K80", 11_997_020_160))
    assert gpus.cuda() == (12, 4)
    assert gpus.samples() == (GpuSample(85_520_808_984, 37.0, 44.0), GpuSample(11_997_019_160, 0.0, 45.0))


def test_no_gpu_is_a_normal_state() -> None:
    gpus = Gpus(None)
    assert (gpus.facts(), gpus.cuda(), gpus.samples()) == ((), (0, 0), ())
    if not Path("/proc/driver/nvidia").exists():
        assert find_gpus().facts() == ()


# ---------------------------------------------------------------- input


def test_x11_input_is_seen(display: str) -> None:
    source = X11Source(display)

    def press() -> None:
        subprocess.run(["xdotool", "key", "a"], env={**os.environ, "DISPLAY": display}, check=True)

    press()
    age = source()
    assert age is not None
    deadline = time.monotonic() + BOUND
    while (age := source()) is not None and age < 1.5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert age is not None
    press()
    fresh = source()
    assert fresh is not None
    assert fresh < age


def test_x_server_that_goes_does_not_take_the_agent_with_it() -> None:
    needed("Xvfb")
    code = """
        import os, subprocess, sys
        from computemesh.node_agent.activity import X11Source
        read, write = os.pipe()
        server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-nolisten", "tcp"], pass_fds=[write], stderr=subprocess.DEVNULL
        )
        name = ":" + os.read(read, 16).decode().strip()
        source = X11Source(name)
        assert source() is not None
        server.terminate()
        server.wait()
        assert source() is None
        assert source() is None
        print("alive")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=BOUND
    )
    assert ran.stdout == "alive\n", ran.stderr


def test_missing_x_server_is_an_error_at_once() -> None:
    needed("Xvfb")  # its package brings the libraries
    with pytest.raises(OSError, match="no X server"):
        X11Source(":987")


LOGIND = """
import sys
from jeepney import HeaderFields, MessageType, new_error, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

idle, since = sys.argv[2] == "idle", int(sys.argv[3])
connection = open_dbus_connection(sys.argv[1])
connection.send_and_get_reply(message_bus.RequestName("org.freedesktop.login1"))
print("ready", flush=True)
while True:
    call = connection.receive()
    if call.header.message_type is not MessageType.method_call:
        continue
    if call.header.fields[HeaderFields.path] != "/org/freedesktop/login1":
        connection.send(new_error(call, "org.freedesktop.DBus.Error.UnknownObject"))
        continue
    name = call.body[1]
    value = ("b", idle) if name == "IdleHint" else ("t", since)
    connection.send(new_method_return(call, "v", (value,)))
"""


@pytest.fixture
def bus() -> Iterator[str]:
    daemon = needed("dbus-daemon")
    process = subprocess.Popen(
        [daemon, "--session", "--nofork", "--print-address=1"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(BOUND)
    process.stdout.close()


@pytest.mark.parametrize(
    ("state", "since", "age"), [("active", 0, 0.0), ("idle", 1_000_000_000, 600.0), ("idle", 0, None)]
)
def test_logind_hint(bus: str, state: str, since: int, age: float | None) -> None:
    service = subprocess.Popen([sys.executable, "-c", LOGIND, bus, state, str(since)], stdout=subprocess.PIPE)
    try:
        assert service.stdout is not None
        assert service.stdout.readline() == b"ready\n"
        source = LogindSource(bus, clock=lambda: 1600.0)
        assert source() == age
        source.close()
        service.stdout.close()
    finally:
        service.kill()
        service.wait()


def test_bus_without_a_login_manager_is_an_error_at_once(bus: str) -> None:
    with pytest.raises(OSError, match="logind"):
        LogindSource(bus)


def test_terminals_count_by_their_last_input(tmp_path: Path) -> None:
    terminals = [tmp_path / "pts1", tmp_path / "pts2", tmp_path / "gone"]
    for terminal, moment in zip(terminals, (1000.0, 1300.0), strict=False):
        terminal.touch()
        os.utime(terminal, (moment, 0))
    assert terminal_source(lambda: terminals, clock=lambda: 1400.0)() == 100.0
    assert terminal_source(list, clock=lambda: 1400.0)() is None


def test_least_age_of_those_that_answer() -> None:
    assert least_age([]) is None
    assert least_age([lambda: None]) is None
    assert least_age([lambda: 9.0, lambda: None, lambda: 4.0]) == 4.0


def test_display_means_a_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_desktop()


# ---------------------------------------------------------------- facts


def test_benchmark_is_kept_for_the_same_cpu_and_python_only(tmp_path: Path) -> None:
    kept = tmp_path / "node" / "benchmark.json"
    measured: list[float] = []

    def fake() -> float:
        measured.append(1.0 + len(measured))
        return measured[-1]

    assert core_speed(kept, "CPU A", fake) == 1.0
    assert core_speed(kept, "CPU A", fake) == 1.0
    assert core_speed(kept, "CPU B", fake) == 2.0
    for broken in ("", "{}", "[]", '{"speed": -1}'):
        kept.write_text(broken)
        assert core_speed(kept, "CPU B", fake) == measured[-1]
    assert len(measured) == 6


def test_benchmark_measures() -> None:
    assert 0.1 < measure() < 1000
    # Twice as much CPU time for the same passes is half the speed.
    ticks = iter(range(1000))
    slow = measure(lambda: float(next(ticks)))
    ticks = iter(range(0, 2000, 2))
    assert measure(lambda: float(next(ticks))) == pytest.approx(slow / 2)


def test_facts_of_a_share() -> None:
    facts = node_facts("n1", share_of(8, "25%", 4), 1000, 20.0, Gpus(RecordedNvml()), "lab", ("gpu",), False)
    assert (facts.cores, facts.core_speed, facts.ram) == (4.0, 10.0, 1000)
    assert (facts.cuda, len(facts.gpus), facts.site, facts.pools) == ((12, 4), 2, "lab", ("gpu",))
    assert facts.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert facts.owner
    assert facts.packages == installed_packages()


def test_packages_are_what_imports_find() -> None:
    packages = installed_packages()
    assert packages["dask"] == importlib.metadata.version("dask")
    assert packages["nvidia-ml-py"]
    assert all(name == name.lower() and "_" not in name for name in packages)


def test_cpu_model_from_cpuinfo(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: AMD  EPYC 9B14\nflags\t: fpu\n")
    if sys.platform == "linux":
        assert cpu_model(file) == "AMD EPYC 9B14"
    assert cpu_model(tmp_path / "none")


# ---------------------------------------------------------------- pacing


@pytest.mark.parametrize("version", [1, 2])
def test_quota_group_of_either_version(tmp_path: Path, version: int) -> None:
    own = tmp_path / "own"
    if version == 2:
        own.write_text("0::/user\n")
        (tmp_path / "user").mkdir()
        (tmp_path / "user" / "cgroup.subtree_control").write_text("cpu memory\n")
        parent = tmp_path / "user"
    else:
        own.write_text("3:cpu,cpuacct:/user\n0::/\n")
        parent = tmp_path / "cpu,cpuacct" / "user"
        parent.mkdir(parents=True)
        (parent / "cpu.cfs_quota_us").write_text("-1\n")
    group = make_quota_group("ours", 0.5, tmp_path, own)
    assert group is not None
    assert group.folder == parent / "ours"
    if version == 2:
        assert (group.folder / "cpu.max").read_text() == "25000 50000"
    else:
        assert (group.folder / "cpu.cfs_quota_us").read_text() == "25000"
    group.add(123)
    assert (group.folder / "cgroup.procs").read_text() == "123"


def test_no_quota_group_without_a_controller(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/user\n")
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "cgroup.subtree_control").write_text("memory\n")
    assert make_quota_group("ours", 0.5, tmp_path, own) is None
    assert make_quota_group("ours", 0.5, tmp_path, tmp_path / "none") is None


async def test_turns_leave_everybody_running() -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        turns = asyncio.create_task(take_turns(child.pid, share_of(4, "5%", 1)))
        process = psutil.Process(child.pid)
        await eventually(lambda: process.status() == psutil.STATUS_STOPPED)
        turns.cancel()
        await asyncio.gather(turns, return_exceptions=True)
        await eventually(lambda: process.status() == psutil.STATUS_RUNNING)
    finally:
        child.kill()
        await child.wait()
