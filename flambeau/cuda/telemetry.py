"""Readings of a GPU as `nvidia-smi` shows them, through NVIDIA's package nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backends.nvidia import driver
from . import _index, _require_backend

__all__ = ["clock_rate", "device_memory_used", "memory_usage", "power_draw", "temperature", "utilization"]


def _query(name: str, device: Any, ask: Callable[[Any, Any], int]) -> int:
    _require_backend(name)
    try:
        import pynvml  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"cuda.{name}() needs nvidia-ml-py: pip install nvidia-ml-py") from None
    uuid = driver.device_uuid(_index(device)).hex()  # numbers of devices differ where CUDA_VISIBLE_DEVICES is set
    spelled = "GPU-" + "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
    pynvml.nvmlInit()
    try:
        return ask(pynvml, pynvml.nvmlDeviceGetHandleByUUID(spelled))
    finally:
        pynvml.nvmlShutdown()


def utilization(device: Any = None) -> int:
    """Return the percentage of recent time in which a kernel ran."""
    return _query("utilization", device, lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)


def memory_usage(device: Any = None) -> int:
    """Return the percentage of recent time in which memory was read or written."""
    return _query("memory_usage", device, lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory)


def device_memory_used(device: Any = None) -> int:
    """Return the bytes in use on the device, by all programs."""
    return _query("device_memory_used", device, lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used)


def temperature(device: Any = None) -> int:
    """Return the temperature of a GPU in degrees Celsius."""
    return _query("temperature", device, lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, 0))


def power_draw(device: Any = None) -> int:
    """Return the power that a GPU draws, in milliwatts."""
    return _query("power_draw", device, lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu))


def clock_rate(device: Any = None) -> int:
    """Return the clock rate of the multiprocessors in megahertz."""
    return _query("clock_rate", device, lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 1))
