"""Matrix products and convolutions with NumPy alone: every dtype, any strides, the same results as oneDNN.

Half-width floats compute in float32 and are rounded once, at the end. Integers wrap around, as in PyTorch.
A convolution is a matrix product over its windows laid out as columns; groups are a batch dimension of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flambeau.backends.cpu import lapack_routines, operands
from flambeau.backends.cpu.operands import Geometry, Padding, numpy_view
from flambeau.core import dtype as dtypes
from flambeau.core import float8
from flambeau.kernels.library.product import integer_product

Sizes = int | Sequence[int]

# Columns of so many bytes are made at a time, so that a large batch does not need its whole expansion at once.
_COLUMN_BYTES = 32 << 20

_SMALL = 1 << 20  # products of fewer multiplications are not worth a second thread

_ALL = (slice(None), slice(None))  # of batch and channels


def load(operand: Any) -> np.ndarray:
    """Return the operand's values in the type of arithmetic; a view if that is its own type."""
    view = numpy_view(operand)
    return view.astype(np.float32) if operand.dtype is dtypes.float16 else float8.readable(view, operand.dtype)


def store(operand: Any, values: np.ndarray) -> None:
    """Write values of the arithmetic type into the operand, rounding to its own."""
    target = numpy_view(operand)
    if not operand.dtype.has_numpy:
        target[...] = float8.storable(values, operand.dtype)
    else:
        with np.errstate(over="ignore"):  # a float16 result out of range is infinity, without a warning
            np.copyto(target, values, casting="same_kind")


def matmul(dst: Any, a: Any, b: Any, bias: Any = None) -> None:
    """dst = a @ b (+ bias, a row added to every row)."""
    operands.check_matmul(dst, a, b, bias)
    if 0 in dst.shape:
        return
    if dtypes.opmath(dst.dtype) is not dst.dtype:
        product = np.matmul(_for_blas(load(a)), _for_blas(load(b)))
        store(dst, product if bias is None else product + load(bias))
        return
    target = numpy_view(dst)
    if target.dtype.kind in "iu" and bias is None and target.flags.c_contiguous:
        _integer_product(target, numpy_view(a), numpy_view(b))
        return
    lapack_routines.use_threads(target.size * a.shape[-1] < _SMALL)
    np.matmul(_for_blas(numpy_view(a)), _for_blas(numpy_view(b)), out=target)
    if bias is not None:
        target += numpy_view(bias)


def _integer_product(target: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Multiply integer matrices by a compiled kernel: NumPy has no fast loop for integers."""
    batch = target.shape[:-2]
    a, b = (m if m.shape[:-2] == batch or m.ndim == 2 else np.broadcast_to(m, batch + m.shape[-2:]) for m in (a, b))
    a_step, b_step = (m.shape[-2] * m.shape[-1] if m.ndim > 2 else 0 for m in (a, b))
    (rows, n), columns = a.shape[-2:], b.shape[-1]
    integer_product(
        target, np.ascontiguousarray(a), np.ascontiguousarray(b), math.prod(batch), rows, n, columns, a_step, b_step
    )


def accumulate(dst: Any, a: Any, b: Any, alpha: complex, beta: complex) -> None:
    """Compute dst = beta * dst + alpha * a @ b; the old dst is not read if beta is 0."""
    operands.check_matmul(dst, a, b)
    if 0 in dst.shape:
        return
    product = np.matmul(_for_blas(load(a)), _for_blas(load(b)))
    scale = product.dtype.type
    if alpha != 1:
        product *= scale(alpha)
    if beta != 0:
        product += load(dst) if beta == 1 else load(dst) * scale(beta)
    store(dst, product)


def _for_blas(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix, or a copy of one without dense rows or columns, for which NumPy would use a slow loop."""
    if matrix.dtype.kind not in "fc":
        return matrix
    size, (rows, columns), (row_step, column_step) = matrix.itemsize, matrix.shape[-2:], matrix.strides[-2:]
    dense_rows = column_step == size and row_step % size == 0 and row_step >= columns * size
    dense_columns = row_step == size and column_step % size == 0 and column_step >= rows * size
    return matrix if dense_rows or dense_columns else np.ascontiguousarray(matrix)


def conv_forward(
    y: Any, x: Any, w: Any, bias: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> None:
    """y = convolution of x (N, C, *) with w (O, C / groups, *) (+ bias)."""
    window = operands.geometry(len(x.shape) - 2, stride, padding, dilation, groups)
    operands.check_conv("convolution", x, w, y, bias, window)
    if 0 in y.shape:
        return
    result = np.empty(tuple(y.shape), dtypes.opmath(y.dtype).numpy)
    weight = _grouped_weight(w, groups)
    for part, columns in _column_batches(load(x), y.shape, w.shape, window):
        np.matmul(weight, columns, out=_by_group(result[part], groups))
    if bias is not None:
        result += load(bias).reshape(-1, *[1] * (len(y.shape) - 2))
    store(y, result)


def conv_backward_input(
    dx: Any, dy: Any, w: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> None:
    """dx = gradient of the convolution with w with respect to its input."""
    window = operands.geometry(len(dx.shape) - 2, stride, padding, dilation, groups)
    operands.check_conv("convolution backward", dx, w, dy, None, window)
    if 0 not in dx.shape:
        store(dx, _input_gradient(dx.shape, dy, w, window))


def conv_backward_weight(
    dw: Any, db: Any, dy: Any, x: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> None:
    """dw (and db unless None) = gradients of the convolution of x with respect to weight and bias."""
    window = operands.geometry(len(x.shape) - 2, stride, padding, dilation, groups)
    operands.check_conv("convolution backward", x, dw, dy, db, window)
    gradient = load(dy)
    if 0 not in dw.shape:
        store(dw, _weight_gradient(dw.shape, gradient, load(x), window))
    if db is not None and 0 not in db.shape:
        axes = (0, *range(2, gradient.ndim))
        store(db, gradient.sum(axis=axes, dtype=gradient.dtype))


def _input_gradient(shape: Sequence[int], dy: Any, w: Any, window: Geometry) -> np.ndarray:
    """Spread each output position's gradient, times the weight, over the input elements of its window."""
    padded_sizes = [
        size + before + max(0, after)
        for size, before, after in zip(shape[2:], window.before, window.after, strict=True)
    ]
    padded = np.zeros((*shape[:2], *padded_sizes), dtypes.opmath(dy.dtype).numpy)
    if 0 not in dy.shape:
        weight = _grouped_weight(w, window.groups).swapaxes(-1, -2)
        gradient = load(dy)
        kernel, output = w.shape[2:], dy.shape[2:]
        for part in _batch_parts(shape[0], math.prod(w.shape[1:]) * window.groups * math.prod(output), padded.itemsize):
            columns = np.matmul(weight, _by_group(gradient[part], window.groups))
            columns = columns.reshape(-1, shape[1], *kernel, *output)
            for offset in itertools.product(*map(range, kernel)):
                padded[part][_ALL + _reached(offset, output, window)] += columns[_ALL + offset]
    inside = tuple(slice(low, low + size) for low, size in zip(window.before, shape[2:], strict=True))
    return padded[_ALL + inside]


def _weight_gradient(shape: Sequence[int], dy: np.ndarray, x: np.ndarray, window: Geometry) -> np.ndarray:
    groups = window.groups
    result = np.zeros((groups, shape[0] // groups, math.prod(shape[1:])), dy.dtype)
    if dy.size:
        for part, columns in _column_batches(x, dy.shape, shape, window):
            product = np.matmul(_by_group(dy[part], groups), columns.swapaxes(-1, -2))
            result += product.sum(axis=0, dtype=dy.dtype)
    return result.reshape(tuple(shape))


def _grouped_weight(w: Any, groups: int) -> np.ndarray:
    """Reshape a weight (O, C, *kernel) to (groups, O / groups, C * kernel)."""
    return load(w).reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:]))


def _by_group(tensor: np.ndarray, groups: int) -> np.ndarray:
    """Reshape a tensor (N, O, *) to (N, groups, O / groups, positions)."""
    batch, channels, *spatial = tensor.shape
    return tensor.reshape(batch, groups, channels // groups, math.prod(spatial))


def _batch_parts(batch: int, elements_each: int, itemsize: int) -> Iterator[slice]:
    step = max(1, _COLUMN_BYTES // max(1, elements_each * itemsize))
    return (slice(start, min(start + step, batch)) for start in range(0, batch, step))


def _column_batches(
    x: np.ndarray, y_shape: Sequence[int], w_shape: Sequence[int], window: Geometry
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the windows of each part of the batch as columns: (n, groups, C / groups * kernel, positions)."""
    kernel, output = w_shape[2:], y_shape[2:]
    groups, channels = window.groups, x.shape[1]
    rows, positions = w_shape[1] * math.prod(kernel), math.prod(output)
    margins = [(low, max(0, high)) for low, high in zip(window.before, window.after, strict=True)]
    for part in _batch_parts(x.shape[0], groups * rows * positions, x.itemsize):
        padded = np.pad(x[part], [(0, 0), (0, 0), *margins])
        count = padded.shape[0]
        columns = np.empty((count, channels, *kernel, *output), x.dtype)
        for offset in itertools.product(*map(range, kernel)):
            columns[_ALL + offset] = padded[_ALL + _reached(offset, output, window)]
        yield part, columns.reshape(count, groups, rows, positions)


def _reached(offset: Sequence[int], output: Sequence[int], window: Geometry) -> tuple[slice, ...]:
    """Return the padded input elements that one kernel element is multiplied with, over all output positions."""
    starts = (index * step for index, step in zip(offset, window.dilation, strict=True))
    return tuple(
        slice(start, start + (count - 1) * step + 1, step)
        for start, count, step in zip(starts, output, window.stride, strict=True)
    )
