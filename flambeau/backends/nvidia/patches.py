"""Updates of a captured graph between runs: addresses of copies, and numbers passed to kernels.

The captured graph stays unchanged; its executable form gets the new values. Runs that were started before keep theirs."""

from __future__ import annotations

import ctypes
from typing import Any

from . import driver

_size, _ptr, _u32, _u64 = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint64


def _side(name: str) -> list[tuple[str, Any]]:
    return [
        (f"{name}X", _size), (f"{name}Y", _size), (f"{name}Z", _size), (f"{name}LOD", _size), (f"{name}MemoryType", _u32),
        (f"{name}Host", _ptr), (f"{name}Device", _u64), (f"{name}Array", _ptr), (f"{name}Reserved", _ptr),
        (f"{name}Pitch", _size), (f"{name}Height", _size),
    ]  # fmt: skip


class CopyParameters(ctypes.Structure):
    """The C struct CUDA_MEMCPY3D_v2."""

    _fields_ = [*_side("src"), *_side("dst"), ("width", _size), ("height", _size), ("depth", _size)]


class KernelParameters(ctypes.Structure):
    """The C struct CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", _ptr), ("grid", _u32 * 3), ("block", _u32 * 3), ("shared", _u32), ("arguments", ctypes.POINTER(_ptr)),
        ("extra", _ptr), ("kernel", _ptr), ("context", _ptr),
    ]  # fmt: skip


class CopyPatch:
    """A copy between two places on the device, either of which may change."""

    def __init__(self, node: int, index: int):
        self.node = node
        self.parameters = CopyParameters()
        driver.call("cuGraphMemcpyNodeGetParams", node, ctypes.byref(self.parameters))
        self.at = ctypes.byref(self.parameters)
        self.context = driver.context(index)
        self.source, self.target = self.parameters.srcDevice, self.parameters.dstDevice

    def move(self, executable: int, source: int, target: int) -> None:
        """Set source and target of the copy, from the next run on."""
        if source == self.source and target == self.target:
            return
        self.parameters.srcDevice, self.parameters.dstDevice = source, target
        driver.call("cuGraphExecMemcpyNodeSetParams", executable, self.node, self.at, self.context)
        self.source, self.target = source, target


class WideCopy:
    """A copy by a kernel (target, source, count of 16 bytes), for large sizes: the driver's copy nodes copy four bytes at a time after a
    move."""

    def __init__(self, node: int, target: int, source: int):
        self.node, self.source, self.target = node, source, target
        self.parameters = KernelParameters()
        driver.call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(self.parameters))
        self.values = (_u64 * 2)(target, source)
        places = [ctypes.addressof(self.values), ctypes.addressof(self.values) + 8, self.parameters.arguments[2]]
        self.places = (_ptr * 3)(*places)
        self.parameters.arguments = ctypes.cast(self.places, ctypes.POINTER(_ptr))
        self.at = ctypes.byref(self.parameters)

    def move(self, executable: int, source: int, target: int) -> None:
        """Set source and target of the copy, multiples of 16 bytes, from the next run on."""
        if source == self.source and target == self.target:
            return
        self.values[:] = [target, source]
        driver.call("cuGraphExecKernelNodeSetParams_v2", executable, self.node, self.at)
        self.source, self.target = source, target


class KernelPatch:
    """A kernel whose last arguments are doubles that change; the `fixed` ones before them stay."""

    def __init__(self, node: int, fixed: int, numbers: tuple[float, ...]):
        self.node = node
        self.parameters = KernelParameters()
        driver.call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(self.parameters))
        self.numbers = tuple(map(float, numbers))
        self.values = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        places = [self.parameters.arguments[i] for i in range(fixed)]  # the graph owns what these point to
        places += [ctypes.addressof(self.values) + 8 * k for k in range(len(numbers))]
        self.places = (_ptr * len(places))(*places)
        self.parameters.arguments = ctypes.cast(self.places, ctypes.POINTER(_ptr))
        self.at = ctypes.byref(self.parameters)

    def set(self, executable: int, numbers: tuple[float, ...]) -> None:
        """Set the numbers that the kernel gets, from the next run on."""
        if numbers == self.numbers:
            return
        self.values[:] = list(numbers)
        driver.call("cuGraphExecKernelNodeSetParams_v2", executable, self.node, self.at)
        self.numbers = numbers
