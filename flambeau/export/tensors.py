"""Tensors and their metadata in PyTorch's files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import flambeau

from ..core.dtype import RECORDS
from ..core.layout import LAYOUTS
from ..core.tensor import Tensor
from .expressions import written
from .symbols import Expression

_LARGEST = 1 << 40  # of a tensor in a file, in bytes


def of_number(kinds: Iterable[Any], number: int) -> Any:
    """Return the dtype, layout or memory format that a number in a file stands for."""
    for kind in kinds:
        if kind.pt2 == number:
            return kind
    raise ValueError(f"the number {number!r} stands for nothing known")


def size_entry(size: Any) -> dict[str, Any]:
    """Return a size in the form of the file."""
    if isinstance(size, Expression):
        return {"as_expr": {"expr_str": written(size), "hint": {"as_int": size.hint}}}
    return {"as_int": size}


def tensor_meta(tensor: Tensor, sizes: Any = None, strides: Any = None) -> dict[str, Any]:
    """Return the description of a tensor that a file stores: dtype, sizes, strides, device, layout."""
    return {
        "dtype": tensor.dtype.pt2,
        "sizes": [size_entry(s) for s in (tensor.shape if sizes is None else sizes)],
        "requires_grad": tensor.requires_grad,
        "device": {"type": "cpu" if tensor.device.type == "meta" else tensor.device.type, "index": tensor.device.index},
        "strides": [size_entry(s) for s in (tensor.stride() if strides is None else strides)],
        "storage_offset": {"as_int": tensor.storage_offset()},
        "layout": tensor.layout.pt2,
    }


def number_in(entry: dict[str, Any]) -> int:
    """Return a size in a file as a number; for a symbolic one, its value in the example."""
    found = entry["as_int"] if "as_int" in entry else entry["as_expr"]["hint"]["as_int"]
    if type(found) is not int or not 0 <= found < _LARGEST:
        raise ValueError(f"{found!r} is no size")
    return found


def tensor_bytes(tensor: Tensor) -> bytes:
    """Return the bytes of a contiguous tensor."""
    return tensor.reshape(-1).view(flambeau.uint8).numpy().tobytes() if tensor.numel() else b""


def tensor_from_bytes(data: bytes, meta: dict[str, Any]) -> Tensor:
    """Return a tensor over a copy of these bytes."""
    dtype = of_number(RECORDS, meta["dtype"])
    sizes, strides = [number_in(s) for s in meta["sizes"]], [number_in(s) for s in meta["strides"]]
    offset = number_in(meta["storage_offset"])
    if of_number(LAYOUTS, meta["layout"]) is not flambeau.strided or len(sizes) != len(strides):
        raise ValueError("a tensor of the file is of a kind that is not known")
    if math.prod(sizes) == 0:
        return flambeau.empty(sizes, dtype=dtype)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    if (last + 1) * dtype.itemsize > len(data):
        raise ValueError(f"a tensor of the file needs {(last + 1) * dtype.itemsize} bytes and has {len(data)}")
    whole = len(data) // dtype.itemsize * dtype.itemsize
    flat = flambeau.frombuffer(bytearray(data[:whole]), dtype=flambeau.uint8).view(dtype)
    return flat.as_strided(sizes, strides, offset)


def meta_tensor(meta: dict[str, Any]) -> Tensor:
    """Return a tensor without memory of the described shape, strides and dtype."""
    sizes, strides = [number_in(s) for s in meta["sizes"]], [number_in(s) for s in meta["strides"]]
    found = flambeau.empty_strided(sizes, strides, dtype=of_number(RECORDS, meta["dtype"]), device="meta")
    return found.requires_grad_(bool(meta["requires_grad"])) if found.is_floating_point() else found
