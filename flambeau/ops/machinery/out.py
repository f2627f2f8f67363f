"""Results written into tensors that the caller gives: `out=` arguments are checked, resized and filled."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.device import device
from ...core.dtype import dtype
from ...core.graph import grad_mode
from ...core.layout import has_internal_overlap
from ...core.promotion import can_cast
from ...core.return_types import NamedResult
from ...core.tensor import Tensor, numel_of
from .inplace import needs_copy_before_write, raw_copy


def resize_out(out: Tensor, shape: tuple[int, ...]) -> None:
    """Resize `out` to the result's shape, as PyTorch does: silently when empty, with a warning otherwise."""
    if out.shape == tuple(shape):
        return
    if out.numel() != 0:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not"
            f" match the required output shape {list(shape)}. This behavior is deprecated, and in a future PyTorch"
            " release outputs will not be resized unless they have zero elements. You can explicitly reuse an out"
            " tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            UserWarning,
            stacklevel=4,
        )
    kept, version = (out._autograd, out._base), out._storage.version
    out._autograd = out._base = None  # a tensor that requires grad may be resized here, outside any graph
    try:
        out.resize_(shape)
    finally:
        out._autograd, out._base = kept
        out._storage.version = version  # the delivery counts as one change


def _coincide(a: Tensor, b: Tensor) -> bool:
    return a is b or (
        a._storage is b._storage and a._offset == b._offset and a.shape == b.shape and a._strides == b._strides
    )


def check_disjoint(out: Any, inputs: tuple[Any, ...]) -> None:
    """Raise if out= cannot be written without reading its own results: it overlaps itself or an input."""
    if not isinstance(out, Tensor):
        return
    if has_internal_overlap(out.shape, out._strides):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location."
            " Please clone() the tensor before performing the operation."
        )
    for x in inputs:
        if isinstance(x, Tensor) and (_coincide(x, out) or needs_copy_before_write(out, x)):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single"
                " memory location. Please clone() the tensor before performing the operation."
            )


def check_unrecorded(name: str, *tensors: Tensor) -> None:
    """Raise if one of the tensors of a call with out= requires grad."""
    if grad_mode.enabled and any(t.requires_grad for t in tensors):
        _refuse_recording(name)


def _refuse_recording(name: str) -> None:
    raise RuntimeError(
        f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the"
        " arguments requires grad."
    )


def check_out(name: str, out: Tensor, d: dtype, where: device, needs_grad: bool, exact: bool = False) -> None:
    """Raise unless a result of dtype `d` on `where` may be stored in `out`, which must have just this dtype if `exact`."""
    if grad_mode.enabled and needs_grad:
        _refuse_recording(name)
    if exact:
        check_out_dtype(out, d)
    if not can_cast(d, out.dtype):
        raise RuntimeError(
            f"result type {d.scalar_type} can't be cast to the desired output type {out.dtype.scalar_type}"
        )
    if out.device is not where:
        raise RuntimeError(f"Expected out tensor to have device {where}, but got {out.device} instead")


def check_castable(name: str, out: Any, result: Any) -> None:
    """Raise linear algebra's error if a result cannot be stored in the dtype of its out=."""
    fields = getattr(result, "_fields", ("result",))
    results, outs = (result, out) if isinstance(result, tuple) else ((result,), (out,))
    for field, value, target in zip(fields, results, outs if isinstance(outs, (tuple, list)) else ()):
        if isinstance(target, Tensor) and not can_cast(value.dtype, target.dtype):
            raise RuntimeError(
                f"{name}: Expected {field} to be safely castable from {value.dtype.scalar_type} dtype, but got {field} with"
                f" dtype {target.dtype.scalar_type}"
            )


def check_out_dtype(out: Any, wanted: dtype) -> None:
    """Raise unless out= has the result's own dtype, for operators that demand it."""
    if isinstance(out, Tensor) and out.dtype is not wanted:
        raise RuntimeError(f"Expected out tensor to have dtype {wanted.cpp}, but got {out.dtype.cpp} instead")


def _check_delivery(name: str, out: Any, result: Tensor, recorded: bool, exact: bool) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    needs_grad = recorded and (result.requires_grad or out.requires_grad)
    check_out(name, out, result.dtype, result.device, needs_grad, exact)


def write_out(name: str, out: Any, result: Any, recorded: bool = True, exact: bool = False) -> Any:
    """Copy `result` into the tensor(s) given as out=; `recorded`: the operator is differentiable; `exact`: a result is not converted."""
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(
                f"{name}(): argument 'out' must be tuple of {len(result)} Tensors, not {type(out).__name__}"
            )
        for o, r in zip(out, result):  # all of them before the first is written
            _check_delivery(name, o, r, recorded, exact)
        for o, r in zip(out, result):
            write_out(name, o, r, recorded, exact)
        return result.delivered(out) if isinstance(result, NamedResult) else tuple(out)
    _check_delivery(name, out, result, recorded, exact)
    resize_out(out, result.shape)
    check_disjoint(out, ())
    if numel_of(out.shape):
        raw_copy(out, result)
    out._bump(name)
    return out
