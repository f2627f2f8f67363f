"""Quantized tensors: integers (their *codes*) that represent (code - zero point) * scale.

They are tensors to users, but a strided kernel would take codes for values: code for strided memory that reads one of these raises
`QuantizedOperand` before it can touch anything. The operator's public face catches that and asks for the quantized form of the operator, as
it does for sparse tensors, so that other calls pay nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import dtype as dt
from . import naming
from .absent import unreadable
from .dtype import dtype
from .overrides import disabled_torch_function
from .settings import may_change
from .sparse import SparseOperand
from .tensor import Tensor

_new_object = object.__new__


class qscheme:
    """A mapping of values to codes: with one scale or one for each channel. There is one object per scheme."""

    __slots__ = ("name", "number")

    def __init__(self, name: str, number: int):
        self.name, self.number = name, number

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (scheme_by_name, (self.name,))

    def __copy__(self) -> qscheme:
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> qscheme:
        return self


SCHEMES = {
    name: qscheme(name, number)
    for number, name in enumerate(
        (
            "per_tensor_affine",
            "per_channel_affine",
            "per_tensor_symmetric",
            "per_channel_symmetric",
            "per_channel_affine_float_qparams",
        )
    )
}
per_tensor_affine, per_channel_affine, per_tensor_symmetric, per_channel_symmetric, per_channel_float = SCHEMES.values()


def scheme_by_name(name: str) -> qscheme:
    """Return the scheme called `name`, for unpickling."""
    return SCHEMES[name]


@may_change
class Engine:
    """The settings of `torch.backends.quantized` (its names are PyTorch's)."""

    name = "x86"
    supported = ("qnnpack", "onednn", "x86", "fbgemm")


# The plain dtypes of the codes of quantized dtypes.
CODE_DTYPES = {d: d.codes for d in dt.QUANTIZED_DTYPES if d.codes is not None}
# Several codes to a byte, in files and as `int_repr` shows them; here each has a byte of its own.
PER_BYTE = {d: d.per_byte for d in CODE_DTYPES if d.per_byte > 1}
CODE_RANGES = {d: (-1 << bits - 1, (1 << bits - 1) - 1) if codes.is_signed else (0, (1 << bits) - 1)
               for d, codes in CODE_DTYPES.items() for bits in [8 * codes.itemsize // d.per_byte]}  # fmt: skip


def in_bytes(codes: np.ndarray[Any, Any], per_byte: int) -> np.ndarray[Any, Any]:
    """Pack codes of less than 8 bits, the first lowest; every row (last dimension) begins with a byte."""
    columns = codes.shape[-1] if codes.ndim else 1
    rows = codes.reshape(-1, columns)
    whole = np.zeros((rows.shape[0], -(-columns // per_byte) * per_byte), np.uint8)
    whole[:, :columns] = rows
    bits = 8 // per_byte
    parts = [whole[:, i::per_byte] << (bits * i) for i in range(per_byte)]
    return np.bitwise_or.reduce(parts).reshape(-1)


def from_bytes(packed: np.ndarray[Any, Any], shape: tuple[int, ...], per_byte: int) -> np.ndarray[Any, Any]:
    """Unpack codes of less than a byte, `per_byte` in each, to one code per element."""
    columns = shape[-1] if shape else 1
    bits, mask = 8 // per_byte, (1 << 8 // per_byte) - 1
    width = -(-columns // per_byte)
    rows = math.prod(shape[:-1])
    held = packed[: rows * width].reshape(rows, width)
    apart = np.stack([held >> (bits * i) & mask for i in range(per_byte)], -1)
    return apart.reshape(rows, width * per_byte)[:, :columns].reshape(shape)


class Quantizer:
    """Scale and zero point: two numbers, or along the dimension `axis` a tensor of each."""

    __slots__ = ("scheme", "scale", "zero_point", "axis")

    def __init__(self, scheme: qscheme, scale: Any, zero_point: Any, axis: int | None = None):
        self.scheme, self.scale, self.zero_point, self.axis = scheme, scale, zero_point, axis

    @property
    def per_tensor(self) -> bool:
        return self.axis is None

    def along(self, axis: int) -> Quantizer:
        return Quantizer(self.scheme, self.scale, self.zero_point, axis)


class QuantizedOperand(SparseOperand):
    """Raised when code for plain tensors reads a quantized one."""


class QuantizedRefusal(QuantizedOperand):
    """Raised by an operator that has no form for quantized tensors."""

    def __init__(self, message: str):
        super().__init__(message)
        self.reason = message


for _kind in (QuantizedOperand, QuantizedRefusal):
    _kind.__name__ = _kind.__qualname__ = "NotImplementedError"  # what a traceback shows
    _kind.__module__ = "builtins"


def _of_codes(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._codes, name)(*args, **kwargs)

    call.__name__ = name
    return call


class QuantizedTensor(Tensor):
    """A quantized tensor: `_codes` is the plain tensor of integers, `_quantizer` their meaning."""

    __slots__ = ("_codes", "_quantizer")
    __torch_function__ = disabled_torch_function
    _prints_as_tensor = True
    is_quantized = True

    _codes: Tensor
    _quantizer: Quantizer

    _strides, _offset, _contig = unreadable(
        lambda t, what: QuantizedOperand(f"the {what} of a quantized tensor is that of its codes")
    )

    data_ptr = const_data_ptr = _of_codes("data_ptr")
    stride = _of_codes("stride")
    storage_offset = _of_codes("storage_offset")
    untyped_storage = _of_codes("untyped_storage")
    is_contiguous = _of_codes("is_contiguous")
    is_shared = _of_codes("is_shared")
    is_pinned = _of_codes("is_pinned")
    dim_order = _of_codes("dim_order")

    def _array(self) -> Any:
        raise QuantizedOperand("a quantized tensor is no array of numbers")

    def _view(self, shape: Any, strides: tuple[int, ...], offset: int) -> Tensor:
        raise QuantizedOperand("a view of a quantized tensor is one of its codes")

    def _take(self, codes: Tensor, quantizer: Quantizer, d: dtype) -> None:
        self._codes, self._quantizer, self.dtype = codes, quantizer, d
        self._storage, self.shape, self.device = codes._storage, codes.shape, codes.device

    def _adopt(self, other: Tensor) -> None:
        if not isinstance(other, QuantizedTensor):
            raise RuntimeError("Attempted to set a quantized tensor's data to a tensor that is not quantized")
        self._take(other._codes, other._quantizer, other.dtype)

    def _bare_alias(self) -> Tensor:
        return wrap(self._codes._bare_alias(), self._quantizer, self.dtype)


QuantizedTensor.__name__ = QuantizedTensor.__qualname__ = "Tensor"


def wrap(codes: Tensor, quantizer: Quantizer, d: dtype) -> QuantizedTensor:
    """Return the quantized tensor with these codes, without checks."""
    naming.above("ops.late")  # its methods
    t = _new_object(QuantizedTensor)
    t._autograd = t._base = None
    t._take(codes, quantizer, d)
    return t


def per_tensor(codes: Tensor, scale: float, zero_point: int, d: dtype) -> QuantizedTensor:
    return wrap(codes, Quantizer(per_tensor_affine, scale, zero_point), d)
