"""ONNX's numbers for dtypes, and tensors as NumPy arrays of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau

from ..core.dtype import dtype
from ..core.tensor import Tensor

NUMBER: dict[dtype, int] = {
    flambeau.float32: 1, flambeau.uint8: 2, flambeau.int8: 3, flambeau.uint16: 4, flambeau.int16: 5,
    flambeau.int32: 6, flambeau.int64: 7, flambeau.bool: 9, flambeau.float16: 10, flambeau.float64: 11,
    flambeau.uint32: 12, flambeau.uint64: 13, flambeau.complex64: 14, flambeau.complex128: 15, flambeau.bfloat16: 16,
    flambeau.float8_e4m3fn: 17, flambeau.float8_e4m3fnuz: 18, flambeau.float8_e5m2: 19, flambeau.float8_e5m2fnuz: 20,
}  # fmt: skip
DTYPE = {number: d for d, number in NUMBER.items()}

_NAMES = {
    flambeau.float32: "Float", flambeau.float64: "Double", flambeau.float16: "Half", flambeau.bfloat16: "BFloat16",
    flambeau.uint8: "Byte", flambeau.int8: "Char", flambeau.int16: "Short", flambeau.int32: "Int",
    flambeau.int64: "Long", flambeau.bool: "Bool", flambeau.complex64: "ComplexFloat",
    flambeau.complex128: "ComplexDouble",
}  # fmt: skip
_SMALL = {
    flambeau.bfloat16: "bfloat16",
    flambeau.float8_e4m3fn: "float8_e4m3fn",
    flambeau.float8_e4m3fnuz: "float8_e4m3fnuz",
    flambeau.float8_e5m2: "float8_e5m2",
    flambeau.float8_e5m2fnuz: "float8_e5m2fnuz",
}


def scalar_name(which: dtype) -> str:
    """The dtype as PyTorch's `scalarType()` names it."""
    return _NAMES.get(which, str(which).removeprefix("torch."))


def array_of(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers; dtypes that NumPy lacks are those of ml_dtypes."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype in _SMALL:
        import ml_dtypes  # noqa: PLC0415  it comes with onnx

        bits = flambeau.int16 if tensor.dtype.itemsize == 2 else flambeau.uint8
        return tensor.view(bits).numpy().view(getattr(ml_dtypes, _SMALL[tensor.dtype]))
    return tensor.numpy()


def tensor_of(array: Any) -> Tensor:
    """A tensor of its own with an array's numbers."""
    array = np.array(array, copy=True, order="C")
    for which, name in _SMALL.items():
        if array.dtype.name == name:
            bits = np.int16 if which.itemsize == 2 else np.uint8
            return flambeau.from_numpy(array.view(bits)).view(which)
    return flambeau.from_numpy(array)


def dtype_of_array(array: np.ndarray) -> dtype:
    for which, name in _SMALL.items():
        if array.dtype.name == name:
            return which
    return flambeau.from_numpy(np.empty(0, array.dtype)).dtype
