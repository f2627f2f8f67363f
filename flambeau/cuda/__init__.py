"""`torch.cuda`: NVIDIA GPUs. Without one `is_available()` is False, and functions that need one raise PyTorch's error.

>>> flambeau.cuda.device_count() >= 0
True
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from ..backends.nvidia import driver, sharing, streams, threads
from ..backends.nvidia.driver import CudaError as CudaError
from ..backends.nvidia.graphs import is_capturing as _is_capturing
from ..compat import legacy as _legacy
from ..core import absent as _absent
from ..core import backend as _backend
from ..core import naming as _naming
from ..core.device import device as _Device
from ..core.errors import AcceleratorError as AcceleratorError
from ..core.errors import OutOfMemoryError as OutOfMemoryError
from . import amp as amp

_NO_CUDA = "Torch not compiled with CUDA enabled"
_CUDA = _Device("cuda")
DeferredCudaCallError = type("DeferredCudaCallError", (Exception,), {"__doc__": "An error of a call that was put off."})
has_half, has_magma = True, False


def is_available() -> bool:
    """Return whether there is a GPU that Flambeau can use."""
    return _backend.has_backend(_CUDA)


def _require_backend(name: str, error: type[Exception] = AssertionError) -> Any:
    """Return the backend; raises PyTorch's error if there is none."""
    if not _backend.has_backend(_CUDA):
        raise error(f"{_NO_CUDA}: cuda.{name}() needs a CUDA device ({_backend.why_absent('cuda')})")
    return _backend.backend_of(_CUDA)


def _index(where: Any, optional: bool = True) -> int:
    """Return the index of a device; None, or "cuda" alone, means the current one."""
    if where is None:
        return threads.mine.chosen
    found = _Device(where)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    if found.index is None and not optional:
        raise ValueError(f'Expected a torch.device with a specified index or an integer, but got:"{found}"')
    return _backend.backend_of(_CUDA).indexed(found).index or 0


def init() -> None:
    """Start CUDA now instead of at the first use."""
    _require_backend("init")


def is_initialized() -> bool:
    """Return whether CUDA has been started."""
    return driver.loaded() is not None and _backend.has_backend(_CUDA)


def device_count() -> int:
    """Return the number of GPUs."""
    return _backend.backend_of(_CUDA).device_count if is_available() else 0


def current_device() -> int:
    """Return the index of the device that "cuda" means in this thread."""
    _require_backend("current_device")
    return threads.mine.chosen


def set_device(device: Any) -> None:
    """Choose the device that "cuda" means in this thread."""
    _require_backend("set_device")
    if _index(device) >= 0:
        threads.choose(_index(device))


def synchronize(device: Any = None) -> None:
    """Wait until everything that was started on a device is done."""
    _require_backend("synchronize").synchronize(_Device("cuda", _index(device)))


# -- facts ------------------------------------------------------------------------------------------------------------


def get_device_name(device: Any = None) -> str:
    """Return the name of a GPU."""
    _require_backend("get_device_name")
    return driver.device_name(_index(device))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return the compute capability of a GPU: (9, 0) for Hopper."""
    _require_backend("get_device_capability")
    return driver.capability(_index(device))


class _CudaDeviceProperties:
    """Properties of a GPU."""

    name: str

    def __init__(self, index: int):
        facts = {name: driver.attribute(name, index) for name in driver.ATTRIBUTES}
        self.__dict__.update(facts, name=driver.device_name(index), total_memory=driver.total_memory(index))
        self.is_integrated, self.is_multi_gpu_board = bool(facts["is_integrated"]), bool(facts["is_multi_gpu_board"])
        raw = driver.device_uuid(index).hex()
        self.uuid = "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))
        self.gcnArchName = self.name

    def __repr__(self) -> str:
        d: Any = self.__dict__
        return (
            f"_CudaDeviceProperties(name='{d['name']}', major={d['major']}, minor={d['minor']},"
            f" total_memory={d['total_memory'] >> 20}MB, multi_processor_count={d['multi_processor_count']}, uuid={d['uuid']},"
            f" pci_bus_id={d['pci_bus_id']}, pci_device_id={d['pci_device_id']}, pci_domain_id={d['pci_domain_id']},"
            f" L2_cache_size={d['L2_cache_size'] >> 20}MB)"
        )


@functools.cache
def _properties(index: int) -> _CudaDeviceProperties:
    return _CudaDeviceProperties(index)


def get_device_properties(device: Any = None) -> _CudaDeviceProperties:
    """Return name, memory, multiprocessors and other properties of a GPU."""
    _require_backend("get_device_properties")
    return _properties(_index(device))


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Return whether one GPU can read another's memory directly."""
    _require_backend("can_device_access_peer")
    return driver.can_access_peer(_index(device), _index(peer_device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the GPU computes in bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Return whether the GPU can multiply matrices in TF32."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """Return the GPU architectures that kernels are compiled for: those of the installed GPUs."""
    if not is_available():
        return []
    return sorted({"sm_{}{}".format(*driver.capability(i)) for i in range(device_count())})


def get_gencode_flags() -> str:
    """Return the architectures as options of nvcc."""
    return " ".join(f"-gencode compute=compute_{a[3:]},code={a}" for a in get_arch_list())


# -- streams, devices, graphs -----------------------------------------------------------------------------------------


class Stream(streams.Stream):
    """A queue of kernels and copies; work of different streams may run at the same time."""

    def __init__(self, device: Any = None, priority: int = 0, **known: Any):
        _require_backend("Stream", RuntimeError)
        super().__init__(device, priority, **known)


class ExternalStream(streams.ExternalStream, Stream):
    """A stream that another library has made."""


class Event(streams.Event):
    """A mark in a stream: to wait for, to query, and with enable_timing to measure time."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ):
        _require_backend("Event", RuntimeError)
        super().__init__(enable_timing, blocking, interprocess, external)


class StreamContext(streams.StreamContext):
    """Context manager: queue kernels on another stream; None changes nothing."""

    def __init__(self, stream: Any):
        if stream is not None:
            _require_backend("stream")
        super().__init__(stream)


def stream(stream: Any) -> StreamContext:
    """Return a context manager that selects a stream."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> streams.Stream:
    """Return the calling thread's current stream on a device."""
    _require_backend("current_stream")
    return streams.current_stream(device)


def default_stream(device: Any = None) -> streams.Stream:
    """Return the stream on which work runs unless another is chosen."""
    _require_backend("default_stream")
    return streams.default_stream(device)


def set_stream(stream: Any) -> None:
    """Choose this thread's stream."""
    streams.set_stream(stream)


def get_stream_from_external(data_ptr: int, device: Any = None) -> streams.Stream:
    """Return the stream of a handle that another library made."""
    _require_backend("get_stream_from_external")
    return ExternalStream(data_ptr, device)


def is_current_stream_capturing() -> bool:
    """Return whether work on the current stream is being recorded into a graph."""
    return is_initialized() and _is_capturing(threads.mine.chosen)


class device:
    """Context manager: select a device."""

    def __init__(self, device: Any):
        self.device = device
        self.idx = -1

    def __enter__(self) -> None:
        if not _backend.has_backend(_CUDA):
            raise RuntimeError(f"{_NO_CUDA}: cuda.device({self.device!r}) needs a CUDA device")
        self.idx = _index(self.device)
        self.prev_idx = threads.choose(self.idx)

    def __exit__(self, *exc: Any) -> None:
        threads.choose(self.prev_idx)


class device_of(device):
    """Context manager: select the device of a tensor, if it is on a GPU."""

    def __init__(self, obj: Any):
        super().__init__(obj.device if obj.is_cuda else None)

    def __enter__(self) -> None:
        if self.device is not None:
            super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.device is not None:
            super().__exit__(*exc)


_DeviceGuard = device


def current_blas_handle() -> int:
    """Raise an error: cuBLASLt, which is used here, has no current handle."""
    raise NotImplementedError(
        "cuda.current_blas_handle(): products go to cuBLASLt, whose handles do not belong to streams"
    )


def ipc_collect() -> None:
    """Free memory that was sent to other processes and is no longer used there."""
    _require_backend("ipc_collect")
    sharing.collect()


def get_sync_debug_mode() -> int:
    """Return 0: waiting for the device is never reported."""
    _require_backend("get_sync_debug_mode")
    return 0


def set_sync_debug_mode(debug_mode: Any) -> None:
    """Set whether operations that wait for the device are reported: only "default" (no) is supported."""
    _require_backend("set_sync_debug_mode")
    if debug_mode not in (0, "default"):
        raise NotImplementedError("cuda.set_sync_debug_mode(): operations that wait for the device are not reported")


def cudart() -> Any:
    """Raise an error: CUDA's runtime library is not used, but its driver."""
    raise NotImplementedError("cuda.cudart(): Flambeau calls the driver, not the runtime library")


from .memory import *  # noqa: E402, F403, I001 - they use what is above, and each other
from .memory import empty_cache as empty_cache  # noqa: E402
from .graphs import *  # noqa: E402, F403
from .random import *  # noqa: E402, F403
from .telemetry import *  # noqa: E402, F403

# FloatTensor and its kin: programs compare with them
(
    BoolTensor, ByteTensor, CharTensor, ShortTensor, IntTensor, LongTensor, HalfTensor, BFloat16Tensor, FloatTensor, DoubleTensor,
) = _legacy.CUDA_TENSOR_TYPES.values()  # fmt: skip
(
    BoolStorage, ByteStorage, CharStorage, ShortStorage, IntStorage, LongStorage, HalfStorage, BFloat16Storage, FloatStorage,
    DoubleStorage, ComplexFloatStorage, ComplexDoubleStorage,
) = _legacy.CUDA_STORAGE_TYPES.values()  # fmt: skip
GreenContext = _absent.absent_class("GreenContext", "cuda.GreenContext: parts of a GPU cannot be reserved")
(current_solver_handle,) = _absent.raising(
    "current_solver_handle", NotImplementedError, "cuda.{}(): cuSOLVER's handles do not belong to streams"
).values()


cudaStatus = types.SimpleNamespace(SUCCESS=0, ERROR_NOT_READY=34)  # results of calls of CUDA


def check_error(res: int) -> None:
    """Raise a `CudaError` if a call of CUDA has failed."""
    if res != cudaStatus.SUCCESS:
        raise CudaError(f"a call of CUDA failed with result {int(res)}")


if TYPE_CHECKING:
    from . import comm as comm
    from . import gds as gds
    from . import nccl as nccl
    from . import nvtx as nvtx
    from . import profiler as profiler
    from . import tunable as tunable

    default_generators: tuple[Any, ...]
    green_contexts: types.ModuleType
else:

    def __getattr__(name: str) -> Any:
        if name in ("nvtx", "profiler", "nccl", "graphs", "memory", "random", "streams", "sparse", "comm",
                    "tunable", "gds", "jiterator", "green_contexts"):  # fmt: skip
            return _naming.submodule(__name__, name)
        if name == "_initialized":
            return is_initialized()
        if name == "default_generators":
            return tuple(_backend.backend_of(_CUDA).generator(_Device("cuda", i)) for i in range(device_count()))
        raise AttributeError(f"module 'flambeau.cuda' has no attribute {name!r}")
