"""NVIDIA GPUs through NVML: what they are and what they do. A machine without one is the normal case.

Everything goes through the module `pynvml` as an argument, so that the reading is tested with recorded answers.
"""

from __future__ import annotations

import logging
from typing import Any

from computemesh.node import GpuFacts, GpuSample

logger = logging.getLogger("computemesh.node_agent")

TEMPERATURE_GPU = 0
"""NVML's name for the sensor on the GPU's die."""


class Gpus:
    """The machine's GPUs; `nvml` is an initialised `pynvml`, or None when there is none."""

    def __init__(self, nvml: Any | None) -> None:
        self._nvml: Any = nvml
        self._handles: list[Any] = []
        self._silent: set[tuple[int, str]] = set()
        if nvml is not None:
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def facts(self) -> tuple[GpuFacts, ...]:
        """Return names and memory."""
        return tuple(GpuFacts(self._name(handle), int(self._memory(handle).total)) for handle in self._handles)

    def cuda(self) -> tuple[int, int]:
        """Return the newest CUDA version that the driver supports; (0, 0) without one."""
        if not self._handles:
            return (0, 0)
        version = int(self._nvml.nvmlSystemGetCudaDriverVersion_v2())
        return version // 1000, version % 1000 // 10

    def samples(self) -> tuple[GpuSample, ...]:
        """Return what each GPU does now. What one of them cannot say is left out, not guessed."""
        return tuple(self._sample(index, handle) for index, handle in enumerate(self._handles))

    def _sample(self, index: int, handle: Any) -> GpuSample:
        load = self._ask(index, "nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask(index, "nvmlDeviceGetMemoryInfo", handle)
        temperature = self._ask(index, "nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU)
        return GpuSample(
            vram_free=int(memory.free) if memory is not None else 0,
            load=float(load.gpu) if load is not None else 0.0,
            temperature=float(temperature) if temperature is not None else None,
        )

    def _ask(self, index: int, function: str, *arguments: Any) -> Any:
        """Call NVML; None when this GPU does not support the question, or is lost."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            if (index, function) not in self._silent:
                self._silent.add((index, function))
                logger.warning("GPU %d does not answer %s: %s", index, function, error)
            return None

    def _name(self, handle: Any) -> str:
        name = self._nvml.nvmlDeviceGetName(handle)
        return name.decode() if isinstance(name, bytes) else str(name)

    def _memory(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetMemoryInfo(handle)


def find_gpus() -> Gpus:
    """Return this machine's GPUs, none when NVML or its driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        return Gpus(None)
    except pynvml.NVMLError as error:
        logger.debug("no NVIDIA GPU here: %s", error)
        return Gpus(None)
    return Gpus(pynvml)
