"""Type aliases, as in `torch.types`."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Union

from .core.device import device
from .core.dtype import dtype
from .core.size import Size
from .core.storage import UntypedStorage as Storage
from .core.tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Storage"]

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _size = dtype, device, Union[Size, list[int], tuple[int, ...]]
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
Number = Union[int, float, bool]
Device = Union[device, str, int, None]
FileLike = Union[str, os.PathLike]
