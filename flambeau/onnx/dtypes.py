"""ONNX's numbers for dtypes, and tensors as NumPy arrays of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau

from ..core.dtype import RECORDS, dtype
from ..core.tensor import Tensor


class _Numbers(dict[dtype, int]):
    def __missing__(self, d: dtype) -> int:
        raise TypeError(f"ONNX has no element type for {d}: convert such tensors before the model is exported")


NUMBER = _Numbers({d: d.onnx for d in RECORDS if d.onnx is not None})
DTYPE = {number: d for d, number in NUMBER.items()}
_SMALL = {d: d.name for d in NUMBER if not d.has_numpy}  # ml_dtypes' names


def array_of(tensor: Tensor) -> np.ndarray:
    """Return a tensor's values as a NumPy array; dtypes that NumPy lacks are those of ml_dtypes."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype in _SMALL:
        import ml_dtypes  # noqa: PLC0415  it comes with onnx

        bits = flambeau.int16 if tensor.dtype.itemsize == 2 else flambeau.uint8
        return tensor.view(bits).numpy().view(getattr(ml_dtypes, _SMALL[tensor.dtype]))
    return tensor.numpy()


def tensor_of(array: Any) -> Tensor:
    """Return a new tensor with an array's values."""
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
