"""`torch.accelerator`: the device besides the CPU, if there is one."""

from __future__ import annotations

from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

from . import cuda as _cuda
from .backends.nvidia import pinned as _pinned
from .core import naming as _naming
from .core.backend import has_backend as _has_backend
from .core.device import device as _device
from .core.dtype import ALL_DTYPES as _ALL_DTYPES

__path__ = ()  # modules of gathered names are found below this one
_CUDA = _device("cuda")
# Also `torch.Stream` and `torch.Event`: of the one kind of accelerator there is.
Stream, Event = _cuda.Stream, _cuda.Event


def is_available() -> bool:
    """Return whether there is a GPU that Flambeau can use."""
    return _has_backend(_CUDA)


def device_count() -> int:
    """Return the number of accelerators of the current kind; 0 without one."""
    return _cuda.device_count()


def current_accelerator(check_available: bool = False) -> _device | None:
    """Return the type of the accelerator, or None."""
    return _CUDA if is_available() else None


def _there() -> Any:
    if not is_available():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return _cuda


def current_device_index() -> int:
    """Return the index of this thread's current device."""
    return _there().current_device()


current_device_idx = current_device_index


def set_device_index(device: Any, /) -> None:
    """Choose a device for this thread."""
    _there().set_device(device)


set_device_idx = set_device_index


class device_index:
    """Context manager: select another device; None changes nothing."""

    def __init__(self, device: int | None, /):
        self.idx = device

    def __enter__(self) -> None:
        if self.idx is not None:
            self.before = _there().current_device()
            _cuda.set_device(self.idx)

    def __exit__(self, *exc: Any) -> None:
        if self.idx is not None:
            _cuda.set_device(self.before)


def current_stream(device: Any = None, /) -> Any:
    """Return the calling thread's current stream on a device."""
    return _there().current_stream(device)


def set_stream(stream: Any) -> None:
    """Choose this thread's stream."""
    _there().set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Wait until everything that was started on a device is done."""
    _there().synchronize(device)


def empty_cache() -> None:
    """Free cached memory that no tensor uses."""
    _there().empty_cache()


def memory_allocated(device_index: Any = None, /) -> int:
    """Return the bytes of device memory that tensors use."""
    return _there().memory_allocated(device_index)


def max_memory_allocated(device_index: Any = None, /) -> int:
    """Return the most bytes that tensors used at once."""
    return _there().max_memory_allocated(device_index)


def memory_reserved(device_index: Any = None, /) -> int:
    """Return the bytes that were allocated from the device."""
    return _there().memory_reserved(device_index)


def max_memory_reserved(device_index: Any = None, /) -> int:
    """Return the most bytes that were allocated from the device at once."""
    return _there().max_memory_reserved(device_index)


def memory_stats(device_index: Any = None, /) -> Any:
    """Return statistics of the device's caching allocator."""
    return _there().memory_stats(device_index)


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """Return the free and total bytes of the device."""
    return _there().mem_get_info(device_index)


def reset_peak_memory_stats(device_index: Any = None, /) -> None:
    """Reset the peak statistics."""
    _there().reset_peak_memory_stats(device_index)


def reset_accumulated_memory_stats(device_index: Any = None, /) -> None:
    """Reset the counts of allocated and freed bytes."""
    _there().reset_accumulated_memory_stats(device_index)


def empty_host_cache() -> None:
    """Free page-locked memory of the host that no tensor uses."""
    _there()
    _pinned.empty_cache()


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """Return the capabilities of an accelerator: the dtypes that it computes with."""
    _there()
    return {"supported_dtypes": set(_ALL_DTYPES)}


if TYPE_CHECKING:
    memory: _ModuleType
else:

    def __getattr__(name: str) -> Any:
        return _naming.submodule(__name__, name)
