"""Convolutions on NVIDIA GPUs, by cuDNN.

The library requires all tensors in one format, contiguous or channels last, and the same padding on both sides of a dimension; other tensors
are copied. Complex convolutions are composed of real ones."""

from __future__ import annotations

from typing import Any

from ....core.layout import channels_last_strides, is_channels_last
from ....core.tensor import Tensor, empty, empty_strided
from ....ops.creation.filled import fill_raw
from ....ops.machinery.dtype_rules import unsupported
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.together import in_place_of
from ....ops.nn.conv import conv_forward, conv_grads, conv_input_grad, conv_transpose_forward, conv_weight_grad
from ....ops.nn.conv_arguments import Window
from .. import cudnn_conv, cudnn_graph
from . import conv32

# -- formats --------------------------------------------------------------------------------------------------------------


def _lies(t: Tensor, last: bool) -> bool:
    """Return whether a tensor is dense in the given format: channels last or contiguous."""
    return is_channels_last(t.shape, t._strides) if last else t._contig


def _new(shape: tuple[int, ...], like: Tensor, last: bool) -> Tensor:
    if last:
        return empty_strided(shape, channels_last_strides(shape), like.dtype, like.device)
    return empty(shape, like.dtype, like.device)


def _formatted(t: Tensor, last: bool) -> Tensor:
    if _lies(t, last):
        return t
    copy = _new(t.shape, t, last)
    raw_copy(copy, t)
    return copy


def _uneven(
    window: Window, sizes: tuple[int, ...], kernel: tuple[int, ...], results: tuple[int, ...]
) -> tuple[Any, ...]:
    """Return (padding for both sides, more at the low sides, more at the high sides). If the stride would skip what is missing at the high
    side, nothing more is needed."""
    stride, pads, dilation, _ = window
    both, lows, highs = [], [], []
    for n, k, s, (low, high), d, m in zip(sizes, kernel, stride, pads, dilation, results):
        even = low >= 0 and (n + 2 * low - d * (k - 1) - 1) // s + 1 == m
        both.append(low if even else max(min(low, high), 0))
        lows.append(0 if even else low - both[-1])
        highs.append(0 if even else high - both[-1])
    return tuple(both), lows, highs


def _padded(x: Tensor, lows: list[int], highs: list[int], last: bool) -> Tensor:
    """Return x with zeros around it (or cropped, where a number is negative)."""
    shape = (*x.shape[:2], *(n + a + b for n, a, b in zip(x.shape[2:], lows, highs)))
    wide = _new(shape, x, last)
    fill_raw(wide, 0)
    raw_copy(_inside(wide, lows, highs), _inside(x, [-n for n in lows], [-n for n in highs]))
    return wide


def _inside(wide: Tensor, lows: list[int], highs: list[int]) -> Tensor:
    """Return the part of a padded tensor that is not padding."""
    shape, offset = list(wide.shape), wide._offset
    for i, (low, high) in enumerate(zip(lows, highs), 2):
        shape[i] -= max(low, 0) + max(high, 0)
        offset += max(low, 0) * wide._strides[i]
    return wide._view(tuple(shape), wide._strides, offset)


# -- the three operations ---------------------------------------------------------------------------------------------------


def _convolve(kind: str, x: Tensor, w: Tensor, y: Tensor, window: Window) -> None:
    """Compute y, x or w, whichever `kind` names, from the other two."""
    if conv32.takes(kind, x, w, y, window):
        conv32.convolve(kind, x, w, y, window)
        return
    if cudnn_conv.run_known(kind, x, w, y, window):
        return
    result = {"forward": y, "input": x, "weight": w}[kind]
    if result.dtype not in cudnn_graph.DATA_TYPES:
        raise unsupported("convolution_cuda", result.dtype)
    stride, _, dilation, _ = window
    last = any(_lies(t, True) and not t._contig for t in ((x, y) if kind == "weight" else (x, w, y)))
    padding, lows, highs = _uneven(window, x.shape[2:], w.shape[2:], y.shape[2:])
    even = not any(lows) and not any(highs)
    tensors = {"input": x, "weight": w, "forward": y}
    for name, t in tensors.items():
        if name != kind:
            tensors[name] = _formatted(t, last)
        elif not _lies(t, last):
            tensors[name] = _new(t.shape, t, last)
    if not even and kind == "input":
        shape = (*x.shape[:2], *(n + a + b for n, a, b in zip(x.shape[2:], lows, highs)))
        tensors["input"] = _new(shape, x, last)
    elif not even:
        tensors["input"] = _padded(tensors["input"], lows, highs, last)
    found = tensors["input"], tensors["weight"], tensors["forward"]
    plan = cudnn_conv.convolve(kind, *found, stride, padding, dilation, last)
    if found[0] is x and found[1] is w and found[2] is y:
        cudnn_conv.keep(kind, x, w, y, window, plan)
    made = tensors[kind]
    if not even and kind == "input":
        if any(n < 0 for n in (*lows, *highs)):
            fill_raw(result, 0)
        raw_copy(_inside(result, [-n for n in lows], [-n for n in highs]), _inside(made, lows, highs))
    elif made is not result:
        raw_copy(result, made)


def _complex_parts(t: Tensor) -> tuple[Tensor, Tensor]:
    pairs: Any = t._bare_alias()
    return pairs.real.contiguous(), pairs.imag.contiguous()


def _compute(kind: str, x: Tensor, w: Tensor, y: Tensor, window: Window) -> None:
    """Convolve, also complex numbers: (a + ib)(c + id) by four real operations."""
    result = {"forward": y, "input": x, "weight": w}[kind]
    if not result.dtype.is_complex:
        _convolve(kind, x, w, y, window)
        return
    parts = {name: _complex_parts(t) for name, t in (("input", x), ("weight", w), ("forward", y)) if name != kind}
    (a, b), (c, d) = parts.values()
    names = list(parts)

    def one(first: Tensor, second: Tensor) -> Any:
        made = empty(result.shape, result.dtype.to_real(), result.device)
        given = {kind: made, names[0]: first, names[1]: second}
        _convolve(kind, given["input"], given["weight"], given["forward"], window)
        return made

    whole: Any = result._bare_alias()
    raw_copy(whole.real, one(a, c) - one(b, d))
    raw_copy(whole.imag, one(a, d) + one(b, c))


def _add_bias(out: Any, bias: Any) -> None:
    if bias is not None:
        out.add_(bias._bare_alias().reshape(-1, *(1,) * (len(out.shape) - 2)))


# -- kernels ----------------------------------------------------------------------------------------------------------------


def _with_bias(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor, window: Window) -> bool:
    """Compute a convolution with its bias at once if that saves time: on tensor cores, with channels last."""
    stride, pads, dilation, groups = window
    tensors = (out, input, weight)
    if len(out.shape) != 4 or groups != 1 or 0 in input.shape or 0 in weight.shape or not cudnn_conv.rounds(out.dtype):
        return False
    if out._contig or input._contig or not all(_lies(t, True) for t in tensors):
        return False
    if out.dtype not in cudnn_graph.DATA_TYPES or not bias._contig or any(low != high for low, high in pads):
        return False
    return cudnn_conv.convolve_and_add(input, weight, out, bias, stride, tuple(low for low, _ in pads), dilation)


@conv_forward.on("cuda")
def _(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None, window: Window) -> None:
    if bias is not None and _with_bias(out, input, weight, bias, window):
        return
    if 0 in input.shape or 0 in weight.shape:
        fill_raw(out, 0)
    else:
        _compute("forward", input, weight, out, window)
    _add_bias(out, bias)


@conv_grads.on("cuda")
def _(
    out: list[Tensor], dy: Tensor, input: Tensor, weight: Tensor, window: Window, wants: tuple[bool, bool, bool]
) -> None:
    dx, dw, db = in_place_of(wants, out)
    if dx is not None:
        _compute("input", dx, weight, dy, window)
    if dw is not None:
        _compute("weight", input, dw, dy, window)
    if db is not None:
        raw_copy(db, dy._bare_alias().sum([0, *range(2, len(dy.shape))]))


@conv_input_grad.on("cuda")
def _(out: Tensor, dy: Tensor, weight: Tensor, shape: tuple[int, ...], window: Window) -> None:
    _compute("input", out, weight, dy, window)


@conv_weight_grad.on("cuda")
def _(out: Tensor, input: Tensor, dy: Tensor, shape: tuple[int, ...], window: Window) -> None:
    _compute("weight", input, out, dy, window)


@conv_transpose_forward.on("cuda")
def _(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None, shape: tuple[int, ...], window: Window) -> None:
    if 0 in input.shape or 0 in weight.shape:
        fill_raw(out, 0)
    else:
        _compute("input", out, weight, input, window)
    _add_bias(out, bias)
