"""Runs inside the workers of a foreign cluster: samples the machine and reports it in Dask's own heartbeat.

The scheduler sends this module by value, so it imports nothing of ComputeMesh and works on a worker that has never
heard of it. psutil is a dependency of Dask; pynvml is used where it is installed. What cannot be found out is left
out, and the scheduler then treats it as unknown.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

NAME = "computemesh-sampler"


class Sampler(WorkerPlugin):
    """Adds `mesh` to the worker's heartbeat metrics: facts and the newest sample, at most once a second."""

    name = NAME
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Called by Dask with the worker."""
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._process.cpu_percent()
        psutil.cpu_percent()
        self._gpus = _open_gpus()
        self._before = worker.metrics.get("mesh")
        self._newest: dict[str, Any] = {}
        self._taken = 0.0
        worker.metrics["mesh"] = self._metrics

    def teardown(self, worker: Any) -> None:
        """Called by Dask when the plugin is taken off."""
        if self._before is not None:
            worker.metrics["mesh"] = self._before
        else:
            worker.metrics.pop("mesh", None)

    def _metrics(self, worker: Any) -> dict[str, Any]:
        now = time.monotonic()
        if not self._newest or now - self._taken >= 1.0:
            self._taken = now
            self._newest = {"facts": self._facts(worker), "sample": self._sample()}
        before = self._before(worker) if callable(self._before) else {}
        return {**(before or {}), "node": self._newest}

    def _facts(self, worker: Any) -> dict[str, Any]:
        memory = self._psutil.virtual_memory().total
        return {
            "name": str(worker.name),
            "hostname": socket.gethostname(),
            "os": platform.system().lower(),
            "architecture": platform.machine(),
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "cores": float(worker.state.nthreads),
            "ram": int(worker.memory_manager.memory_limit or memory),
            "gpus": [{"name": name, "vram": total} for name, total, _, _ in self._read_gpus()],
            "cuda": self._cuda(),
        }

    def _sample(self) -> dict[str, Any]:
        psutil = self._psutil
        sample: dict[str, Any] = {
            "time": time.time(),
            "cpu": psutil.cpu_percent(),
            "cpu_ours": self._process.cpu_percent() / (os.cpu_count() or 1),
            "ram_free": psutil.virtual_memory().available,
            "gpus": [{"vram_free": free, "load": load} for _, _, free, load in self._read_gpus()],
        }
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        if battery is not None:
            sample["battery"], sample["charging"] = (
                float(battery.percent),
                bool(battery.power_plugged),
            )
        return sample

    def _read_gpus(self) -> list[tuple[str, int, int, float]]:
        nvml, handles = self._gpus
        found = []
        for handle in handles:
            try:
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                name = nvml.nvmlDeviceGetName(handle)
                load = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            except nvml.NVMLError:
                continue
            text = name.decode() if isinstance(name, bytes) else str(name)
            found.append((text, int(memory.total), int(memory.free), load))
        return found

    def _cuda(self) -> list[int]:
        nvml, handles = self._gpus
        if not handles:
            return [0, 0]
        try:
            version = nvml.nvmlSystemGetCudaDriverVersion()
        except nvml.NVMLError:
            return [0, 0]
        return [version // 1000, version % 1000 // 10]


def _open_gpus() -> tuple[Any, list[Any]]:
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no module, no driver, no permission: a machine without GPUs for us
        return None, []
