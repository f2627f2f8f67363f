"""DLPack: exchange of tensors with other libraries without a copy."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .. import ops
from ..core.tensor import Tensor

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]

from_dlpack = ops.namespace("torch")["from_dlpack"]


class DLDeviceType(IntEnum):
    """The device numbers of the DLPack standard."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def to_dlpack(tensor: Tensor) -> Any:
    """Return a capsule that another library can consume, once."""
    return tensor.__dlpack__()
