"""Matrix products and convolutions on the CPU: by oneDNN if it is installed and accepts the operands, else by NumPy.

Operands are strided tensors (`shape`, `_strides`, `dtype`, `data_ptr()`) of any layout; results are written into the
first ones, which must not share memory with the others. Shapes and dtypes are checked; nothing is promoted.

Convolution arguments: `stride` and `dilation` are a number or one per spatial dimension; `padding` may also be one
(low, high) pair per dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.backends.cpu import blas, onednn, operands
from flambeau.backends.cpu.operands import Operand, Padding, numpy_view
from flambeau.core import dtype as dtypes

from ...core.aliases import Values

Sizes = int | Sequence[int]

_enabled = True
_use_onednn: bool | None = None  # enabled and loaded; None until the first heavy op asks


def set_onednn_enabled(enabled: bool) -> bool:
    """Switch oneDNN on or off for all later calls; return the previous setting."""
    global _enabled, _use_onednn
    previous, _enabled, _use_onednn = _enabled, bool(enabled), None
    return previous


def onednn_enabled() -> bool:
    """Return whether heavy operators use oneDNN: it is not switched off, and the library is installed."""
    global _use_onednn
    if _use_onednn is None:
        _use_onednn = _enabled and onednn.available()
    return _use_onednn


def matmul(dst: Any, a: Any, b: Any, bias: Any = None) -> None:
    """dst = a @ b (+ bias, a row added to every row); two or more dimensions each, batch dimensions broadcast."""
    if (_use_onednn or onednn_enabled()) and (onednn.try_matmul(dst, a, b, bias) or _matmul_copies(dst, a, b, bias)):
        return
    blas.matmul(dst, a, b, bias)


def packed(b: Any, rows: int, times: int) -> Any:
    """Return the matrix `b` in a layout for `matmul`, where it is the right operand of `times` products with `rows` rows each: converted once
    for all of them, or b itself."""
    return onednn.packed(b, rows, times) if _use_onednn or onednn_enabled() else b


def known_product(form: str, a: Any, b: Any, bias: Any) -> Any:
    """Return the product of operands like those of an earlier `keep_product`, or None."""
    return onednn.known_product(form, a, b, bias) if _use_onednn else None


def keep_product(form: str, a: Any, b: Any, bias: Any, result: Any, made: Values) -> None:
    """Cache the plan of `matmul(*made, bias)`, so that `known_product(form, a, b, bias)` computes a result like this one directly."""
    if _use_onednn:
        onednn.keep_product(form, a, b, bias, result, made)


def _matmul_copies(dst: Any, a: Any, b: Any, bias: Any) -> bool:
    """Try oneDNN again, with dense copies of the operands whose layout it does not accept."""
    if dst.dtype not in onednn.DATA_TYPES or 0 in dst.shape or 0 in a.shape:
        return False
    left, right = (x if onednn.takes_matrix(x) else _dense(x) for x in (a, b))
    if onednn.takes_matrix(dst) and left is a and right is b and bias is None:
        return False  # it refused them for another reason than their layout
    row = None if bias is None else _dense(bias)
    result = Operand(np.empty(tuple(dst.shape), dst.dtype.numpy), dst.dtype)
    if not onednn.try_matmul(result, left, right, row):
        return False
    numpy_view(dst)[...] = result.array
    return True


def accumulate(dst: Any, a: Any, b: Any, alpha: complex = 1, beta: complex = 1) -> None:
    """dst = beta * dst + alpha * a @ b. One library call for float32 matrices."""
    real = isinstance(alpha, (int, float)) and isinstance(beta, (int, float))
    if real and (_use_onednn or onednn_enabled()) and onednn.try_gemm(dst, a, b, float(alpha), float(beta)):  # type: ignore[arg-type]
        return
    blas.accumulate(dst, a, b, alpha, beta)


def conv_forward(
    dst: Any, x: Any, w: Any, bias: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> None:
    """dst (N, O, *) = convolution of x (N, C, *) with w (O, C / groups, *) (+ bias (O,) unless None)."""
    window = (stride, padding, dilation, groups)
    _dispatch(onednn.try_conv_forward, blas.conv_forward, 1, (dst, x, w, bias), window)


def conv_backward_input(
    dx: Any, dy: Any, w: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> None:
    """dx = gradient of a convolution with w with respect to its input, from dy, that of its output."""
    conv_backward(dx, None, None, dy, None, w, stride, padding, dilation, groups)


def conv_backward_weight(
    dw: Any, db: Any, dy: Any, x: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> None:
    """dw, and db unless None = gradients of a convolution of x with respect to its weight and bias."""
    conv_backward(None, dw, db, dy, x, None, stride, padding, dilation, groups)


def conv_backward(
    dx: Any, dw: Any, db: Any, dy: Any, x: Any, w: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> None:
    """Compute all gradients of a convolution that are not None, which is cheaper than one by one. dx needs w; dw and db need x."""
    window = (stride, padding, dilation, groups)
    _dispatch(onednn.try_conv_backward, _blas_backward, 3, (dx, dw, db, dy, x, w), window)


def _blas_backward(dx: Any, dw: Any, db: Any, dy: Any, x: Any, w: Any, *window: Any) -> None:
    operands.check_conv_backward(dx, dw, db, dy, x, w, operands.geometry(len(dy.shape) - 2, *window))
    if dx is not None:
        blas.conv_backward_input(dx, dy, w, *window)
    if dw is not None:
        blas.conv_backward_weight(dw, db, dy, x, *window)


def transposed_padding(dims: int, padding: Padding, output_padding: Sizes) -> tuple[tuple[int, int], ...]:
    """Return the padding of the convolution that a transposed one is the gradient of: output padding shortens the high end."""
    extra = operands.per_dimension("output_padding", output_padding, dims, 0)
    window = operands.geometry(dims, 1, padding, 1, 1)
    return tuple((low, high - more) for low, high, more in zip(window.before, window.after, extra, strict=True))


def _dispatch(
    native: Callable[..., bool], general: Callable[..., None], results: int, tensors: Values, window: Values
) -> None:
    """Run `native`, or `general` if that declines; the first `results` tensors are written."""
    if (_use_onednn or onednn_enabled()) and (native(*tensors, *window) or _retry(native, results, tensors, window)):
        return
    general(*tensors, *window)


def _retry(native: Callable[..., bool], results: int, tensors: Values, window: Values) -> bool:
    """Try oneDNN again on dense copies, in float32 if the CPU has no native half-width arithmetic."""
    given = [tensor for tensor in tensors if tensor is not None]
    dtype = given[0].dtype
    if dtype not in onednn.DATA_TYPES or any(0 in tensor.shape for tensor in given):
        return False
    wide = dtypes.opmath(dtype) is not dtype
    if not wide and not any(operands.overlaps(tensor.shape, tensor._strides) for tensor in given):
        return False
    copies = [None if tensor is None else Operand(np.array(blas.load(tensor))) for tensor in tensors]
    if not native(*copies, *window):
        return False
    for tensor, copy in zip(tensors[:results], copies[:results], strict=True):
        if tensor is not None and copy is not None:
            blas.store(tensor, copy.array)
    return True


def _dense(operand: Any) -> Operand:
    return Operand(np.array(numpy_view(operand), order="C"), operand.dtype)
