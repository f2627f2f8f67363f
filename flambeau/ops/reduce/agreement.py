"""Comparisons of whole tensors: equal, allclose; the trace of a matrix; a hash of the bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.backend import BACKENDS
from ...core.layout import broadcast_two
from ...core.tensor import Tensor, numel_of
from ...expr import functions as f
from ..creation.convert import to
from ..machinery.arguments import need_tensors
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, lookup
from ..machinery.reduction import Reduction, reduced_dims, reduced_shape, to_bool
from .sums import sum_

_all_equal = Reduction("equal", lambda x, y: x == y, "all", rule=to_bool)
_all_close = Reduction(
    "allclose",
    lambda x, y, rtol, atol: (x == y) | (f.isfinite(f.abs_(y)) & (f.abs_(x - y) <= atol + rtol * f.abs_(y))),
    "all",
    rule=to_bool,
)
_all_close_or_nan = Reduction(
    "allclose",
    lambda x, y, rtol, atol: (
        (x == y) | (f.isfinite(f.abs_(y)) & (f.abs_(x - y) <= atol + rtol * f.abs_(y))) | ((x != x) & (y != y))
    ),
    "all",
    rule=to_bool,
)


def _tensor_pair(name: str, input: Any, other: Any) -> None:
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        need_tensors(name, input=input, other=other)
    if input.device is not other.device:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices,"
            f" {input.device} and {other.device}!"
        )
    if not BACKENDS[input.device.type].has_values:
        raise NotImplementedError(f"{name}(): tensors on the meta device have no values that could be looked at")


@composite(tells="boolean")
def equal(input: Tensor, other: Tensor) -> bool:
    """Return whether both have the same shape and elements."""
    _tensor_pair("equal", input, other)
    if input.shape != other.shape:
        return False
    if not numel_of(input.shape):
        return True
    x, y = input, other
    if x.dtype is not y.dtype:
        common = lookup("promote_types").function(input.dtype, other.dtype)
        x, y = to(x._bare_alias(), common), to(y._bare_alias(), common)
    return bool(_all_equal.over((x, y)).item())


@composite(tells="boolean")
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether |input - other| <= atol + rtol * |other| everywhere."""
    _tensor_pair("allclose", input, other)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype.scalar_type} did not match {other.dtype.scalar_type}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value:g}")
    shape = broadcast_two(input.shape, other.shape)
    x, y = input._bare_alias().expand(shape), other._bare_alias()
    if input.dtype.category < 2:
        x, y = to(x, dt.float64), to(y, dt.float64)
    reduction = _all_close_or_nan if equal_nan else _all_close
    return bool(reduction.over((x, y, float(rtol), float(atol))).item())


# -- trace -------------------------------------------------------------------------------------------------------------


def _trace_grad(g: Tensor, shape: Any) -> Tensor:
    return g * lookup("eye").function(shape[0], shape[1], dtype=g.dtype, device=g.device)


@composite(autocast="float32")
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if len(input.shape) != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {len(input.shape)}")
    if input.dtype is dt.bool_:
        raise unsupported("trace", dt.bool_)
    return trace_of(input, input.shape)


@internal(grads={"input": _trace_grad}, quirks=Quirks(label="TraceBackward0"))
def trace_of(input: Tensor, shape: Any) -> Tensor:
    n = min(input.shape)
    return sum_(input._view((n,), (input._strides[0] + input._strides[1],), input._offset))


# -- hash --------------------------------------------------------------------------------------------------------------


@composite(out="exact")
def hash_tensor(input: Tensor, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or of the elements' bits, as 64-bit numbers, over the given dimensions."""
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    if input.dtype.is_complex:
        raise unsupported("xor_sum_cpu", input.dtype)
    dims = reduced_dims(dim, len(input.shape), "hash_tensor")
    shape = reduced_shape(input.shape, dims, keepdim)
    wide = to(input._bare_alias(), dt.float64 if input.dtype.is_floating_point else dt.int64)
    return xor_of_bits(wide, dims, shape)


@internal(batching="each")
def xor_of_bits(input: Tensor, dims: tuple[int, ...], shape: tuple[int, ...]) -> NewTensor:
    """The exclusive or of the bits of elements of 64 bits over some dimensions, in a result of `shape`."""
    return shape, dt.uint64, input.device


@xor_of_bits.on("cpu")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    bits = np.ascontiguousarray(input._array()).view(np.uint64).reshape(input.shape)
    out._array()[...] = np.bitwise_xor.reduce(bits, axis=dims).reshape(shape)
