# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Literal, NoReturn, overload

from ... import return_types as _results
from ...core.device import device as _device
from ...core.dtype import dtype as _dtype
from ...core.generator import Generator as _Generator
from ...core.layout import layout as _layout
from ...core.layout import memory_format as _memory_format
from ...core.quantized import qscheme as _qscheme
from ...core.size import Size as _Size
from ...core.tensor import Tensor as _Tensor
from ...core.typed_storage import TypedStorage as _TypedStorage

_Number = _int | _float | _bool | _complex
_Ints = _int | Sequence[_int]
_DeviceLike = _device | _str | _int

from . import intrinsic as intrinsic
from . import qat as qat
from . import quantizable as quantizable
from . import quantized as quantized

