"""`torch.cuda` where there is no CUDA device: it says so, and everything that would need one raises PyTorch's error.

>>> flambeau.cuda.is_available()
False
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NoReturn

from ..core.tensor import Tensor
from . import amp as amp

_NO_CUDA = "Torch not compiled with CUDA enabled"


def is_available() -> bool:
    """Whether there is a GPU that Flambeau can use."""
    return False


def is_initialized() -> bool:
    """Whether CUDA has been started."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes in bfloat16."""
    return False


def device_count() -> int:
    """How many there are."""
    return 0


def get_arch_list() -> list[str]:
    """The GPU architectures there are kernels for."""
    return []


def _needs_device(name: str, doc: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError(f"{_NO_CUDA}: cuda.{name}() needs a CUDA device")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


init = _needs_device("init", "Start the CUDA runtime.")
current_device = _needs_device("current_device", "The index of the selected device.")
set_device = _needs_device("set_device", "Select a device.")
synchronize = _needs_device("synchronize", "Wait for the device.")
current_stream = _needs_device("current_stream", "The stream kernels are queued on.")
default_stream = _needs_device("default_stream", "The device's default stream.")
get_device_name = _needs_device("get_device_name", "The device's name.")
get_device_capability = _needs_device("get_device_capability", "The device's compute capability.")
get_device_properties = _needs_device("get_device_properties", "The device's properties.")
can_device_access_peer = _needs_device("can_device_access_peer", "Whether one device can read another's memory.")
mem_get_info = _needs_device("mem_get_info", "Free and total memory of the device.")
reset_peak_memory_stats = _needs_device("reset_peak_memory_stats", "Forget the peak of memory use.")
get_rng_state = _needs_device("get_rng_state", "The state of the device's random generator.")
set_rng_state = _needs_device("set_rng_state", "Set the state of the device's random generator.")
initial_seed = _needs_device("initial_seed", "The seed of the device's random generator.")
ipc_collect = _needs_device("ipc_collect", "Free memory shared with processes that have ended.")


# Without devices there is nothing to seed, to free or to count: these have nothing to do, as in PyTorch.


def manual_seed(seed: int) -> None:
    int(seed)


def manual_seed_all(seed: int) -> None:
    int(seed)


def seed() -> None:
    """Nothing to seed."""


def seed_all() -> None:
    """Nothing to seed."""


def empty_cache() -> None:
    """Nothing to free."""


def get_rng_state_all() -> list[Tensor]:
    return []


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    for state in new_states:
        set_rng_state(state)


def memory_allocated(device: Any = None) -> int:
    return 0


def max_memory_allocated(device: Any = None) -> int:
    return 0


def memory_reserved(device: Any = None) -> int:
    return 0


def max_memory_reserved(device: Any = None) -> int:
    return 0


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    return OrderedDict()


class Stream:
    """A queue of kernels; needs a device."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise RuntimeError("torch.cuda.Stream requires CUDA support")


class Event:
    """A mark in a stream; needs a device."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise RuntimeError("torch.cuda.Event requires CUDA support")


class OutOfMemoryError(RuntimeError):
    """The device has no more memory."""


class CUDAGraph:
    """A recorded sequence of kernels; needs a device."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise RuntimeError("torch.cuda.CUDAGraph requires CUDA support")


class StreamContext:
    """Inside, kernels would be queued on another stream; with None, nothing changes."""

    def __init__(self, stream: Stream | None):
        if stream is not None:
            raise AssertionError(f"{_NO_CUDA}: streams need a CUDA device")
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None


def stream(stream: Stream | None) -> StreamContext:
    return StreamContext(stream)


class graph:
    """Records kernels into a CUDAGraph; needs a device."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise RuntimeError("torch.cuda.graph requires CUDA support")


class device:
    """Selects a device for the length of a `with` block; needs one."""

    def __init__(self, device: Any):
        self.device = device

    def __enter__(self) -> NoReturn:
        raise RuntimeError(f"{_NO_CUDA}: cuda.device({self.device!r}) needs a CUDA device")

    def __exit__(self, *exc: Any) -> None:
        return None
