"""Operators of neural networks that PyTorch's graphs call by names, or with arguments, that no public function has."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ...core.dtype import float32, opmath
from ...core.numeric_limits import finfo
from ...core.tensor import Tensor
from ..machinery.aten_form import aten_only, aten_parts
from ..nn.conv import conv1d, conv2d, conv3d, convolution
from ..nn.distance import cdist, cdist_backward, pdist
from ..nn.dropout import dropout1d, dropout2d, dropout3d
from ..nn.normalization import rms_norm
from ..nn.resize import interpolate, resized
from ..nn.softmax import log_softmax, softmax
from ..pointwise.activation import exponential_unit, leaky, logsigmoid
from ..shape.padding import pad

# -- activations and dropout ----------------------------------------------------------------------------------------------

aten_only("_softmax")(lambda self, dim, widen: softmax(self, dim, dtype=float32 if widen else None))
aten_only("_log_softmax")(lambda self, dim, widen: log_softmax(self, dim, dtype=float32 if widen else None))


aten_only("elu")(exponential_unit)
aten_only("elu_", backward="elu_backward(grad, alpha, scale, input_scale, True, result)")(exponential_unit.op.inplace)
aten_only("leaky_relu_", backward="leaky_relu_backward(grad, result, negative_slope, True)")(leaky.op.inplace)


@aten_only("feature_dropout")
def _feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    return {3: dropout1d, 4: dropout2d}.get(input.dim(), dropout3d)(input, p, train)


@aten_only("feature_dropout_")
def _feature_dropout_in_place(input: Tensor, p: float, train: bool) -> Tensor:
    return input.copy_(_feature_dropout(input, p, train))


aten_parts("log_sigmoid")(lambda aten, self: aten.log_sigmoid_forward.default(self)[0])
aten_only("log_sigmoid_forward", backward="log_sigmoid_backward(grad, self, result1)")(
    lambda self: (logsigmoid(self), self.detach().abs().neg().exp())
)


@aten_only("_prelu_kernel_backward")
def _prelu_backward(grad: Tensor, self: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of input and weight, both for each element."""
    return grad.where(self > 0, weight * grad), (self * grad).masked_fill(self > 0, 0)


@aten_only("_fused_rms_norm")
def _rms_norm(input: Tensor, shape: list[int], weight: Any, eps: float | None) -> tuple[Tensor, Tensor]:
    """Return the normalised input, and 1 / its root mean square."""
    wide = input.to(opmath(input.dtype))
    mean = (wide * wide).mean(list(range(-len(shape), 0)), keepdim=True)
    return rms_norm(input, shape, weight, eps), (mean + (finfo(wide.dtype).eps if eps is None else eps)).rsqrt()


@aten_only("_trilinear")
def _trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: list[int], expand2: list[int], expand3: list[int], sums: list[int], *unroll: int
) -> Tensor:  # fmt: skip
    """Return the product of three tensors with dimensions inserted, summed over some."""
    inserted = ((i1, expand1), (i2, expand2), (i3, expand3))
    product: Any = math.prod(functools.reduce(Tensor.unsqueeze, dims, t) for t, dims in inserted)
    return product.sum(sums) if sums else product


# -- distances ------------------------------------------------------------------------------------------------------------

aten_only("_cdist_forward")(lambda x1, x2, p, compute_mode: cdist(x1, x2, p))
aten_only("_cdist_backward")(lambda grad, x1, x2, p, distances: cdist_backward(grad, x1, x2, p, distances, False))
aten_only("_pdist_forward", backward="_pdist_backward(grad, self, p, result)")(pdist)
aten_parts("pdist")(lambda aten, self, p=2.0: aten._pdist_forward.default(self, p))


# -- windows, sizes -------------------------------------------------------------------------------------------------------

aten_only("_convolution")(lambda *args: convolution(*args[:9]))  # the others are choices of a library


@aten_only("_convolution_mode")
def _convolution_mode(input: Tensor, weight: Tensor, bias: Any, stride: list[int], *window: Any) -> Tensor:
    return (conv1d, conv2d, conv3d)[len(stride) - 1](input, weight, bias, stride, *window)


def _resize(mode: str, **more: Any) -> Callable[..., Any]:
    """Return a resizing function: sizes follow as one list of factors, or one by one after the size; modes other than nearest take
    align_corners."""

    def resize(input: Tensor, size: Any, *rest: Any) -> Tensor:
        corners, scales = (None, rest) if mode.startswith("nearest") else (rest[0], rest[1:])
        if len(scales) == 1 and (isinstance(scales[0], (list, tuple)) or size is None):
            (scales,) = scales
        if size is None:
            return interpolate(input, None, [s for s in scales if s is not None], mode, corners, **more)
        factors = [None] * len(size) if not scales or scales[0] is None else scales
        return resized(input, list(size), list(factors), mode, bool(corners), bool(more))

    return resize


def _declare_resize(name: str, mode: str, rank: int, **more: Any) -> None:
    """Declare an operator that resizes, its derivative, and the form that takes sizes or factors as lists."""
    scales = {1: "scales", 2: "scales_h, scales_w", 3: "scales_d, scales_h, scales_w"}[rank]
    corners = "" if mode.startswith("nearest") else "align_corners, "
    back = f"{name}_backward(grad, output_size, shape(self), {corners}{scales})"
    aten_only(name, backward=back)(_resize(mode, **more))

    @aten_parts(f"{name}.vec")
    def _(aten: Any, input: Tensor, size: Any, *rest: Any) -> Tensor:
        *settings, factors = rest if len(rest) > bool(corners) else (*rest, None)
        sizes = [int(n * f) for n, f in zip(input.shape[2:], factors)] if size is None else list(size)
        return getattr(aten, name).default(input, sizes, *settings, *([None] * rank if factors is None else factors))


for _rank, _linear in enumerate(("linear", "bilinear", "trilinear"), 1):
    _declare_resize(f"upsample_nearest{_rank}d", "nearest", _rank)
    _declare_resize(f"_upsample_nearest_exact{_rank}d", "nearest-exact", _rank)
    _declare_resize(f"upsample_{_linear}{_rank}d", _linear, _rank)
_declare_resize("upsample_bicubic2d", "bicubic", 2)
for _mode in ("bilinear", "bicubic"):
    _declare_resize(f"_upsample_{_mode}2d_aa", _mode, 2, antialias=True)


@aten_only("max_unpool2d", "max_unpool3d")
def _max_unpool(self: Tensor, indices: Tensor, output_size: list[int], *window: Any) -> Tensor:
    rank = len(output_size)
    size = (*self.shape[: self.dim() - rank], *output_size)
    flat = self.new_zeros((*size[:-rank], math.prod(output_size)))
    return flat.scatter(-1, indices.flatten(-rank), self.flatten(-rank)).view(size)


def _padded(mode: str) -> Callable[..., Any]:
    return lambda self, padding: pad(self, padding, mode)


for _name, _mode in (("reflection", "reflect"), ("replication", "replicate")):
    for _rank in (1, 2, 3):
        _full = f"{_name}_pad{_rank}d"
        aten_only(_full, backward=f"{_full}_backward(grad, self, padding)")(_padded(_mode))
