"""`torch.cuda` where there is no CUDA device: it says so, and everything that would need one raises PyTorch's error.

>>> flambeau.cuda.is_available()
False
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NoReturn

from ..compat.legacy import CUDA_TENSOR_TYPES
from ..core.absent import raising
from ..core.errors import OutOfMemoryError as OutOfMemoryError
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


_NEEDS_DEVICE = raising(
    """init current_device set_device synchronize current_stream default_stream get_device_name get_device_capability
    get_device_properties can_device_access_peer mem_get_info reset_peak_memory_stats get_rng_state set_rng_state initial_seed
    ipc_collect""",
    AssertionError,
    _NO_CUDA + ": cuda.{}() needs a CUDA device",
)
globals().update(_NEEDS_DEVICE)


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
        _NEEDS_DEVICE["set_rng_state"](state)


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


class _NeedsDevice:
    def __init__(self, *args: Any, **kwargs: Any):
        raise RuntimeError(f"torch.cuda.{type(self).__name__} requires CUDA support")


class Stream(_NeedsDevice):
    """A queue of kernels; needs a device."""


class Event(_NeedsDevice):
    """A mark in a stream; needs a device."""


class CUDAGraph(_NeedsDevice):
    """A recorded sequence of kernels; needs a device."""


class graph(_NeedsDevice):
    """Records kernels into a CUDAGraph; needs a device."""


class StreamContext:
    """Inside, kernels would be queued on another stream; with None, nothing changes."""

    def __init__(self, stream: Stream | None):
        if stream is not None:
            raise AssertionError(f"{_NO_CUDA}: streams need a CUDA device")
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        """Nothing was changed."""


def stream(stream: Stream | None) -> StreamContext:
    return StreamContext(stream)


class device:
    """Selects a device for the length of a `with` block; needs one."""

    def __init__(self, device: Any):
        self.device = device

    def __enter__(self) -> NoReturn:
        raise RuntimeError(f"{_NO_CUDA}: cuda.device({self.device!r}) needs a CUDA device")

    def __exit__(self, *exc: Any) -> None:
        return None


globals().update(CUDA_TENSOR_TYPES)  # FloatTensor and its kin: programs compare with them
