"""One look at the machine a second. What this platform cannot say is None."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from computemesh.node import GpuSample, Sample

from .accounting import Accounting, Member
from .activity import Source, least_age
from .battery import SYSFS, Battery, read_battery
from .gpu import Gpus

SLOW_SECONDS = 10.0
"""How often slowly changing things are read: disk space, battery, temperature, users."""


@dataclass(frozen=True, slots=True)
class _Slow:
    disk_free: int | None
    battery: Battery | None
    temperature: float | None
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Counters:
    """Ever-growing counts, of which a sample shows the rate."""

    time: float
    ours: float
    disk_read: int | None
    disk_write: int | None
    net_in: int | None
    net_out: int | None


class Sampler:
    """Takes samples. Each compares with the one before, so the first knows no rates."""

    def __init__(
        self,
        accounting: Accounting,
        gpus: Gpus,
        sources: Sequence[Source],
        disk: Path,
        sysfs: Path = SYSFS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`disk` is a folder on the disk whose free space counts."""
        self._accounting = accounting
        self._gpus = gpus
        self._sources = sources
        self._disk = disk
        self._sysfs = sysfs
        self._clock = clock
        self._cores = psutil.cpu_count() or 1
        self._slow: _Slow | None = None
        self._slow_due = 0.0
        self._before: _Counters | None = None
        self._number = 0
        self.members: list[Member] = []
        """Our processes at the last sample."""
        psutil.cpu_percent()

    def sample(self) -> Sample:
        """Look at the machine."""
        now = self._clock()
        if self._slow is None or now >= self._slow_due:
            self._slow, self._slow_due = self._look_slowly(), now + SLOW_SECONDS
        slow, before = self._slow, self._before
        self._number += 1
        cpu = psutil.cpu_percent()
        after = self._before = self._count(now)
        return Sample(
            time=time.time(),
            cpu=cpu,
            cpu_ours=cpu_percent(before.ours, after.ours, after.time - before.time, self._cores) if before else 0.0,
            ram_free=int(psutil.virtual_memory().available),
            disk_free=slow.disk_free,
            disk_read=_rate(before, after, "disk_read"),
            disk_write=_rate(before, after, "disk_write"),
            net_in=_rate(before, after, "net_in"),
            net_out=_rate(before, after, "net_out"),
            gpus=self._gpu_samples(),
            battery=slow.battery.charge if slow.battery else None,
            charging=slow.battery.charging if slow.battery else None,
            temperature=slow.temperature,
            input_age=least_age(self._sources),
            users=slow.users,
            number=self._number,
            seconds=after.time - before.time if before else 0.0,
        )

    def _gpu_samples(self) -> tuple[GpuSample, ...]:
        return self._gpus.samples()

    def _count(self, now: float) -> _Counters:
        ours, self.members = self._accounting.look()
        disk, net = psutil.disk_io_counters(), psutil.net_io_counters()
        return _Counters(
            now,
            ours,
            disk.read_bytes if disk else None,
            disk.write_bytes if disk else None,
            net.bytes_recv if net else None,
            net.bytes_sent if net else None,
        )

    def _look_slowly(self) -> _Slow:
        try:
            disk_free = psutil.disk_usage(str(self._disk)).free
        except OSError:
            disk_free = None
        users = tuple(sorted({user.name for user in psutil.users()}))
        return _Slow(disk_free, read_battery(self._sysfs), hottest(), users)


def cpu_percent(before: float, after: float, seconds: float, cores: int) -> float:
    """Return CPU seconds spent between two looks as percent of the machine, within 0 to 100."""
    if seconds <= 0:
        return 0.0
    return min(100.0, max(0.0, 100 * (after - before) / seconds / cores))


def _rate(before: _Counters | None, after: _Counters, name: str) -> float | None:
    """Return a counter's rate; a counter that went back was reset, so nothing is known."""
    if before is None:
        return None
    old, new, seconds = getattr(before, name), getattr(after, name), after.time - before.time
    if old is None or new is None or new < old or seconds <= 0:
        return None
    return float(new - old) / seconds


def hottest() -> float | None:
    """Return the hottest sensor in °C; None where there is none or the platform does not tell."""
    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return None
    try:
        sensors = read()
    except OSError:
        return None
    # Some boards report absent sensors as 0 or below, or as far above what silicon survives.
    found = [entry.current for entries in sensors.values() for entry in entries if 0 < (entry.current or 0) < 150]
    return max(found, default=None)
