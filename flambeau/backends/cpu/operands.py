"""Checks of the operands of matrix products and convolutions before native code: shapes, dtypes, geometry, NumPy views.

An operand is anything with `shape` and `_strides` (tuples, strides in elements), `dtype` and `data_ptr()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flambeau.core import dtype as dtypes
from flambeau.core import watching

Padding = int | Sequence[int] | Sequence[tuple[int, int]]


class Shaped:
    """Layout of a tensor without memory, which is all that a plan reads of it."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: dtypes.dtype = dtypes.float32):
        self.shape, self._strides, self.dtype = shape, strides, dtype


class Operand:
    """The simplest operand: a NumPy array with the attributes of a tensor, for temporaries and array arguments."""

    __slots__ = ("array", "shape", "_strides", "dtype")

    def __init__(self, array: np.ndarray, dtype: dtypes.dtype | None = None):
        self.array = array
        self.dtype = dtypes.FROM_NUMPY[array.dtype] if dtype is None else dtype
        self.shape = array.shape
        self._strides = tuple(step // array.itemsize for step in array.strides)

    def data_ptr(self) -> int:
        return self.array.ctypes.data


class _ArrayInterface:
    __slots__ = ("__array_interface__",)

    def __init__(self, interface: dict[str, Any]):
        self.__array_interface__ = interface


def check_memory(*tensors: Any) -> None:
    """Raise for operands that have elements but no memory, before a native call reads them."""
    for t in tensors:
        if t is not None and not t.data_ptr() and 0 not in t.shape:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, cpu and"
                f" {getattr(t, 'device', 'none')}! (A tensor on the meta device has no values.)"
            )


def numpy_view(operand: Any) -> np.ndarray:
    """Return the operand's memory as a NumPy array (bfloat16 as uint16 bits), valid while the operand exists."""
    dtype = operand.dtype.numpy
    shape = tuple(operand.shape)
    if 0 in shape:
        return np.empty(shape, dtype)
    check_memory(operand)
    if watching.active:
        watching.tell_looked()
    strides = tuple(step * dtype.itemsize for step in operand._strides)
    interface = {"shape": shape, "typestr": dtype.str, "data": (operand.data_ptr(), False), "strides": strides}
    return np.asarray(_ArrayInterface({**interface, "descr": dtype.descr, "version": 3}))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two indices may share an element. Errs on the side of True, as oneDNN's own check does."""
    end = 1
    for size, step in zip(reversed(shape), reversed(strides)):
        if step != end:
            break
        end *= size
    else:
        return False  # row-major, the common case
    end = 0
    for step, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if step < end or step <= 0:
                return True
            end = step * size
    return False


def check_dtypes(op: str, **operands: Any) -> None:
    """Raise a RuntimeError unless all operands that are given have one dtype, and one that arithmetic is defined for."""
    given = {name: operand.dtype for name, operand in operands.items() if operand is not None}
    first = next(iter(given.values()))
    if any(dtype is not first for dtype in given.values()):
        listed = ", ".join(f"{name}: {dtype.name}" for name, dtype in given.items())
        raise RuntimeError(f"{op}: expected operands of one dtype, got {listed}")
    if first is dtypes.bool_:
        raise NotImplementedError(f"\"{op}\" not implemented for 'Bool'")


def check_matmul(dst: Any, a: Any, b: Any, bias: Any = None) -> None:
    if _is_plain_product(dst, a, b, bias):
        return
    check_dtypes("matmul", dst=dst, a=a, b=b, bias=bias)
    a_shape, b_shape, dst_shape = tuple(a.shape), tuple(b.shape), tuple(dst.shape)
    given = f"got {a_shape} @ {b_shape} -> {dst_shape}"
    if min(len(a_shape), len(b_shape)) < 2:
        raise RuntimeError(f"matmul: expected operands of two or more dimensions, {given}")
    if a_shape[-1] != b_shape[-2]:
        raise RuntimeError(f"matmul: inner sizes {a_shape[-1]} and {b_shape[-2]} differ, {given}")
    try:
        batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    except ValueError:
        raise RuntimeError(f"matmul: batch dimensions do not broadcast, {given}") from None
    if dst_shape != (*batch, a_shape[-2], b_shape[-1]):
        raise RuntimeError(f"matmul: expected a result of shape {(*batch, a_shape[-2], b_shape[-1])}, {given}")
    if bias is not None and tuple(bias.shape) != b_shape[-1:]:
        raise RuntimeError(f"matmul: expected a bias of shape {b_shape[-1:]}, got {tuple(bias.shape)}, {given}")


def _is_plain_product(dst: Any, a: Any, b: Any, bias: Any) -> bool:
    """Return whether these are float matrices that fit together: the common case, found without the general checks."""
    kind = dst.dtype
    return (
        kind.is_floating_point
        and kind is a.dtype
        and kind is b.dtype
        and len(a.shape) == len(b.shape) == len(dst.shape) == 2
        and a.shape[1] == b.shape[0]
        and dst.shape[0] == a.shape[0]
        and dst.shape[1] == b.shape[1]
        and (bias is None or (bias.dtype is kind and tuple(bias.shape) == (b.shape[1],)))
    )


class Geometry(NamedTuple):
    """A convolution's window, one entry per spatial dimension, and its groups."""

    stride: tuple[int, ...]
    before: tuple[int, ...]  # padding at the low end
    after: tuple[int, ...]  # padding at the high end; negative where the last input elements are never reached
    dilation: tuple[int, ...]
    groups: int

    def output_size(self, axis: int, size: int, kernel: int) -> int:
        reach = self.dilation[axis] * (kernel - 1) + 1
        return (size + self.before[axis] + self.after[axis] - reach) // self.stride[axis] + 1


def per_dimension(name: str, value: int | Sequence[int], dims: int, least: int) -> tuple[int, ...]:
    values = (value,) * dims if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= dims
    if len(values) != dims:
        raise RuntimeError(f"convolution: expected {name} of {dims} values, got {values}")
    if any(not isinstance(v, int) or v < least for v in values):
        raise RuntimeError(f"convolution: expected {name} of at least {least}, got {values}")
    return values


def geometry(
    dims: int, stride: int | Sequence[int], padding: Padding, dilation: int | Sequence[int], groups: int
) -> Geometry:
    """Return a convolution's arguments in full. Padding is one number, one per dimension, or one pair per dimension."""
    if isinstance(padding, int) or all(isinstance(p, int) for p in padding):
        before = after = per_dimension("padding", padding, dims, 0)  # type: ignore[arg-type]
    else:
        before = per_dimension("padding", [low for low, _ in padding], dims, 0)  # type: ignore[misc]
        after = tuple(high for _, high in padding)  # type: ignore[misc]
        if len(after) != dims:
            after *= dims
    if not isinstance(groups, int) or groups < 1:
        raise RuntimeError(f"convolution: expected groups of at least 1, got {groups}")
    return Geometry(
        per_dimension("stride", stride, dims, 1), before, after, per_dimension("dilation", dilation, dims, 1), groups
    )


def check_conv(op: str, x: Any, w: Any, y: Any, bias: Any, window: Geometry) -> None:
    """Check that y = convolution of x (N, C, *) with w (O, C / groups, *) has consistent shapes and one dtype."""
    check_dtypes(op, input=x, weight=w, output=y, bias=bias)
    xs, ws, ys = tuple(x.shape), tuple(w.shape), tuple(y.shape)
    problem = _shape_problem(xs, ws, ys, window)
    if problem is not None:
        raise RuntimeError(f"{op}: {problem}, got input {xs}, weight {ws}, output {ys}, {window}")
    check_bias(op, bias, y)


def _shape_problem(xs: tuple[int, ...], ws: tuple[int, ...], ys: tuple[int, ...], window: Geometry) -> str | None:
    """Describe what is wrong with the shapes of a convolution's input, weight and output, or return None."""
    if not (3 <= len(xs) <= 5 and len(xs) == len(ws) == len(ys)):
        return "expected tensors with a batch, a channel and 1 to 3 spatial dimensions"
    if ws[1] * window.groups != xs[1]:
        return f"input has {xs[1]} channels, weight expects {ws[1] * window.groups}"
    if ws[0] % window.groups:
        return f"{ws[0]} output channels do not divide into {window.groups} groups"
    if 0 in ws[2:]:
        return "expected a kernel without empty dimensions"
    sizes = tuple([window.output_size(axis, xs[2 + axis], ws[2 + axis]) for axis in range(len(xs) - 2)])
    if min(sizes) < 0 or ys != (xs[0], ws[0], *sizes):
        return f"expected an output of shape {(xs[0], ws[0], *sizes)}"
    return None


def check_bias(op: str, bias: Any, y: Any) -> None:
    check_dtypes(op, output=y, bias=bias)
    if bias is not None and tuple(bias.shape) != (y.shape[1],):
        raise RuntimeError(f"{op}: expected a bias of shape {(y.shape[1],)}, got {tuple(bias.shape)}")


def check_conv_backward(dx: Any, dw: Any, db: Any, dy: Any, x: Any, w: Any, window: Geometry) -> None:
    """Check gradients (those wanted are not None) against each other and against the operands they are computed from."""
    op = "convolution backward"
    if (dx is not None and w is None) or (dw is not None and x is None) or (db is not None and dw is None):
        raise RuntimeError(
            f"{op}: the input's gradient needs the weight, the weight's the input, the bias's the weight's"
        )
    inputs, weights = ([t for t in pair if t is not None] for pair in ((dx, x), (dw, w)))
    if not inputs or not weights:
        raise RuntimeError(f"{op}: no gradient is asked for")
    for input_like in inputs:
        for weight_like in weights:
            check_conv(op, input_like, weight_like, dy, db, window)
