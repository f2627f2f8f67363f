"""NVIDIA's driver: its functions through ctypes, their errors as exceptions, and the devices it knows.

Nothing is loaded before a device is first used."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from ...core.errors import AcceleratorError

_u64, _i32, _u32, _size, _ptr = ctypes.c_uint64, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle: the handle with which another process opens an allocation."""

    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


# Every function of the driver that is used, under its newest name, with its arguments.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_u32,),
    "cuDriverGetVersion": (_ptr,),
    "cuDeviceGetCount": (_ptr,),
    "cuDeviceGet": (_ptr, _i32),
    "cuDeviceGetName": (_ptr, _i32, _i32),
    "cuDeviceGetUuid_v2": (_ptr, _i32),
    "cuDeviceTotalMem_v2": (_ptr, _i32),
    "cuDeviceGetAttribute": (_ptr, _i32, _i32),
    "cuDeviceCanAccessPeer": (_ptr, _i32, _i32),
    "cuDevicePrimaryCtxRetain": (_ptr, _i32),
    "cuCtxSetCurrent": (_ptr,),
    "cuCtxSynchronize": (),
    "cuCtxEnablePeerAccess": (_ptr, _u32),
    "cuCtxGetStreamPriorityRange": (_ptr, _ptr),
    "cuMemGetInfo_v2": (_ptr, _ptr),
    "cuMemAlloc_v2": (_ptr, _size),
    "cuMemAllocManaged": (_ptr, _size, _u32),
    "cuMemFree_v2": (_u64,),
    "cuMemHostAlloc": (_ptr, _size, _u32),
    "cuMemFreeHost": (_ptr,),
    "cuMemHostRegister_v2": (_ptr, _size, _u32),
    "cuMemHostUnregister": (_ptr,),
    "cuMemHostGetDevicePointer_v2": (_ptr, _ptr, _u32),
    "cuMemcpyHtoDAsync_v2": (_u64, _ptr, _size, _u64),
    "cuMemcpyDtoHAsync_v2": (_ptr, _u64, _size, _u64),
    "cuMemcpyDtoDAsync_v2": (_u64, _u64, _size, _u64),
    "cuMemcpyPeerAsync": (_u64, _ptr, _u64, _ptr, _size, _u64),
    "cuMemsetD8Async": (_u64, ctypes.c_ubyte, _size, _u64),
    "cuModuleLoadData": (_ptr, ctypes.c_char_p),
    "cuModuleGetFunction": (_ptr, _ptr, ctypes.c_char_p),
    "cuModuleGetGlobal_v2": (_ptr, _ptr, _ptr, ctypes.c_char_p),
    "cuFuncSetAttribute": (_ptr, _i32, _i32),
    "cuFuncGetAttribute": (_ptr, _i32, _ptr),
    "cuLaunchKernel": (_ptr, _u32, _u32, _u32, _u32, _u32, _u32, _u32, _u64, _ptr, _ptr),
    "cuStreamCreateWithPriority": (_ptr, _u32, _i32),
    "cuStreamDestroy_v2": (_u64,),
    "cuStreamSynchronize": (_u64,),
    "cuStreamQuery": (_u64,),
    "cuStreamGetPriority": (_u64, _ptr),
    "cuStreamWaitEvent": (_u64, _u64, _u32),
    "cuStreamBeginCapture_v2": (_u64, _i32),
    "cuStreamEndCapture": (_u64, _ptr),
    "cuStreamIsCapturing": (_u64, _ptr),
    "cuThreadExchangeStreamCaptureMode": (_ptr,),
    "cuEventCreate": (_ptr, _u32),
    "cuEventDestroy_v2": (_u64,),
    "cuEventRecord": (_u64, _u64),
    "cuEventRecordWithFlags": (_u64, _u64, _u32),
    "cuEventSynchronize": (_u64,),
    "cuEventQuery": (_u64,),
    "cuEventElapsedTime": (_ptr, _u64, _u64),
    "cuGraphInstantiateWithFlags": (_ptr, _u64, ctypes.c_ulonglong),
    "cuGraphLaunch": (_u64, _u64),
    "cuGraphDestroy": (_u64,),
    "cuGraphExecDestroy": (_u64,),
    "cuGraphGetNodes": (_u64, _ptr, _ptr),
    "cuGraphGetRootNodes": (_u64, _ptr, _ptr),
    "cuGraphNodeGetType": (_u64, _ptr),
    "cuGraphNodeGetDependencies": (_u64, _ptr, _ptr),
    "cuGraphNodeGetDependentNodes": (_u64, _ptr, _ptr),
    "cuGraphAddDependencies": (_u64, _ptr, _ptr, _size),
    "cuGraphDestroyNode": (_u64,),
    "cuGraphMemsetNodeGetParams": (_u64, _ptr),
    "cuGraphAddMemsetNode": (_ptr, _u64, _ptr, _size, _ptr, _ptr),
    "cuStreamGetCaptureInfo_v2": (_u64, _ptr, _ptr, _ptr, _ptr, _ptr),
    "cuGraphKernelNodeGetParams_v2": (_u64, _ptr),
    "cuGraphExecKernelNodeSetParams_v2": (_u64, _u64, _ptr),
    "cuGraphMemcpyNodeGetParams": (_u64, _ptr),
    "cuGraphExecMemcpyNodeSetParams": (_u64, _u64, _ptr, _ptr),
    "cuIpcGetMemHandle": (_ptr, _u64),
    "cuIpcOpenMemHandle_v2": (_ptr, IpcHandle, _u32),
    "cuIpcCloseMemHandle": (_u64,),
    "cuPointerGetAttribute": (_ptr, _i32, _u64),
    "cuProfilerStart": (),
    "cuProfilerStop": (),
    "cuGetErrorName": (_i32, _ptr),
    "cuGetErrorString": (_i32, _ptr),
}

NOT_READY = 600
OUT_OF_MEMORY = 2
PEER_ACCESS_ALREADY_ENABLED = 704

# What programs ask for, by the numbers of CUdevice_attribute.
ATTRIBUTES = {
    "max_threads_per_block": 1, "shared_memory_per_block": 8, "warp_size": 10, "clock_rate": 13, "multi_processor_count": 16,
    "is_integrated": 18, "pci_bus_id": 33, "pci_device_id": 34, "memory_clock_rate": 36, "memory_bus_width": 37,
    "L2_cache_size": 38, "max_threads_per_multi_processor": 39, "pci_domain_id": 50, "major": 75, "minor": 76,
    "shared_memory_per_multiprocessor": 81, "regs_per_multiprocessor": 82, "is_multi_gpu_board": 84,
    "shared_memory_per_block_optin": 97,
}  # fmt: skip


class CudaError(AcceleratorError):
    """Raised when the driver refuses a call; made from its status, or from a message."""

    def __init__(self, problem: int | str, what: str = ""):
        super().__init__(problem if isinstance(problem, str) else _sentence(problem, what))
        self.error_code = problem if isinstance(problem, int) else None


class NoDevice(RuntimeError):
    """Raised with the reason, a sentence, why there is no GPU to use here."""


def _sentence(status: int, what: str) -> str:
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    functions = loaded()
    if functions is None or functions.cuGetErrorString(status, ctypes.byref(text)):
        return f"CUDA error: status {status}{f' from {what}' if what else ''}"
    functions.cuGetErrorName(status, ctypes.byref(name))
    return (
        f"CUDA error: {(text.value or b'').decode()} ({(name.value or b'').decode()}{f' from {what}' if what else ''})."
        " Kernels run some time after they are started: with the environment variable CUDA_LAUNCH_BLOCKING=1 each one is waited"
        " for, and the line that is named is the one that failed."
    )


class Functions:
    """The driver's functions as attributes; each returns its status."""

    def __init__(self, library: Any):
        for name, arguments in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for type checkers; what is there is found before
        raise AttributeError(f"the CUDA driver has no function {name!r} that is used here")


_loaded: list[Any] = []


def loaded() -> Any:
    """Return the functions if the driver was found already, else None."""
    return _loaded[0] if _loaded else None


def use(functions: Any) -> None:
    """Replace the driver's functions by these (another implementation, or a test's)."""
    _loaded[:] = [functions]
    device_count.cache_clear()
    attribute.cache_clear()
    context.cache_clear()


def functions() -> Any:
    """Return the driver's functions; raise NoDevice if there is no driver."""
    if not _loaded:
        for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
            try:
                library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            raise NoDevice("there is no NVIDIA driver (libcuda.so.1) on this machine")
        found = Functions(library)
        status = found.cuInit(0)
        if status:
            raise NoDevice(
                f"the NVIDIA driver does not start (status {status}): is there a GPU, and may this user use it?"
            )
        _loaded.append(found)
    return _loaded[0]


def check(status: int, what: str) -> None:
    """Raise the error of a status that is not success."""
    if status:
        raise CudaError(status, what)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; raise its error."""
    status = getattr(functions(), name)(*arguments)
    if status:
        raise CudaError(status, name)


def number(name: str, *arguments: Any, kind: Any = ctypes.c_uint64) -> int:
    """Call a function that returns a number or a handle through its first argument."""
    result = kind()
    call(name, ctypes.byref(result), *arguments)
    return result.value or 0


def is_recorded(stream: int) -> bool:
    """Return whether work on a stream is being captured into a graph: it was requested, or the stream waited for a captured one."""
    status = _i32()
    call("cuStreamIsCapturing", stream, ctypes.byref(status))
    return bool(status.value)


@functools.cache
def device_count() -> int:
    """Return the number of GPUs that the driver shows."""
    return number("cuDeviceGetCount", kind=_i32)


@functools.cache
def attribute(name: str, index: int) -> int:
    """Return an attribute of a device, by its name in ATTRIBUTES."""
    return number("cuDeviceGetAttribute", ATTRIBUTES[name], _device(index), kind=_i32)


def _device(index: int) -> int:
    return number("cuDeviceGet", index, kind=_i32)


def capability(index: int) -> tuple[int, int]:
    """Return the compute capability of a device: (9, 0) is Hopper."""
    return attribute("major", index), attribute("minor", index)


def device_name(index: int) -> str:
    text = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", text, 256, _device(index))
    return text.value.decode()


def device_uuid(index: int) -> bytes:
    raw = ctypes.create_string_buffer(16)
    call("cuDeviceGetUuid_v2", raw, _device(index))
    return raw.raw


def total_memory(index: int) -> int:
    return number("cuDeviceTotalMem_v2", _device(index), kind=_size)


def can_access_peer(index: int, other: int) -> bool:
    return bool(number("cuDeviceCanAccessPeer", _device(index), _device(other), kind=_i32))


@functools.cache
def context(index: int) -> int:
    """Return the device's primary context, which libraries and other frameworks in this process use, too."""
    if index >= device_count():
        raise CudaError(
            f"CUDA error: invalid device ordinal: there is no cuda:{index}, there are {device_count()} devices"
        )
    return number("cuDevicePrimaryCtxRetain", _device(index), kind=_ptr)


def driver_version() -> int:
    """Return the driver's CUDA version: 13000 is CUDA 13.0."""
    return number("cuDriverGetVersion", kind=_i32)


BLOCKING = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
