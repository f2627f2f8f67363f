"""Layers: matrix products, convolutions, normalisations, resizing, losses, quantization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ...core.tensor import Tensor
from ...nn import functional as F  # noqa: N812
from ...ops.nn.windows import pooled_size
from ...vision.ops import deform_conv2d
from ...vision.ops import roi_align as pooled
from ..dtypes import DTYPE, NUMBER, tensor_of
from .elementwise import cast
from .sampling import resized
from .table import Call, node, numbers


@node("Gemm")
def gemm(
    call: Call,
    a: Tensor,
    b: Tensor,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    **old: Any,  # noqa: N803
) -> Tensor:
    left, right = a.t() if transA else a, b.t() if transB else b
    if c is not None and alpha == 1 and beta == 1 and c.dim() == 1 and c.shape[0] == right.shape[1]:
        return F.linear(left, right.t(), c)
    made = left @ right
    if alpha != 1:
        made = made * alpha
    return made if c is None else made + (c if beta == 1 else c * beta)


def spread(
    kernel: list[int], x: Tensor, strides: Any, dilations: Any, pads: Any, auto_pad: str
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return strides, dilations, and padding before and after, of a window."""
    n = len(kernel)
    strides, dilations = list(strides or [1] * n), list(dilations or [1] * n)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations):
            total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
            small = total // 2
            before.append(small if auto_pad == "SAME_UPPER" else total - small)
            after.append(total - before[-1])
        return strides, dilations, before, after
    pads = list(pads or [0] * 2 * n) if auto_pad != "VALID" else [0] * 2 * n
    return strides, dilations, pads[:n], pads[n:]


def padded(x: Tensor, before: list[int], after: list[int], value: float = 0.0) -> Tensor:
    widths = [w for b, a in reversed(list(zip(before, after))) for w in (b, a)]
    return F.pad(x, widths, value=value) if any(widths) else x


_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@node("Conv")
def conv(
    call: Call, x: Tensor, w: Tensor, b: Any = None, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None,
    pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    kernel = list(w.shape[2:])
    strides, dilations, before, after = spread(kernel, x, strides, dilations, pads, auto_pad)
    if before == after:
        return _CONVOLUTIONS[len(kernel)](x, w, b, strides, before, dilations, group)
    return _CONVOLUTIONS[len(kernel)](padded(x, before, after), w, b, strides, 0, dilations, group)


@node("ConvTranspose")
def conv_transpose(
    call: Call, x: Tensor, w: Tensor, b: Any = None, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None,
    output_padding: Any = None, output_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    n = w.dim() - 2
    kernel = list(w.shape[2:])
    strides, dilations = list(strides or [1] * n), list(dilations or [1] * n)
    extra = list(output_padding or [0] * n)
    full = [
        (s - 1) * st + d * (k - 1) + 1 + e for s, st, d, k, e in zip(x.shape[2:], strides, dilations, kernel, extra)
    ]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = (
            list(output_shape)[-n:] if output_shape is not None else [s * st for s, st in zip(x.shape[2:], strides)]
        )
        totals = [max(f - o, 0) for f, o in zip(full, wanted)]
        grow = [max(o - f, 0) for f, o in zip(full, wanted)]
        half = [t // 2 for t in totals]
        before, after = (half, [t - h for t, h in zip(totals, half)])
        if auto_pad == "SAME_LOWER" or (auto_pad == "NOTSET" and output_shape is not None and auto_pad != "SAME_UPPER"):
            before, after = after, before
    else:
        listed = list(pads or [0] * 2 * n)
        before, after, grow = listed[:n], listed[n:], [0] * n
    made = _TRANSPOSED[n](x, w, b, strides, 0, 0, group, dilations)
    widths = [(-p, e + g - a) for p, a, e, g in zip(before, after, extra, grow)]
    made = (
        F.pad(made, [v for pair in reversed(widths) for v in pair]) if any(v for pair in widths for v in pair) else made
    )
    if b is not None and any(e + g > a for e, g, a in zip(extra, grow, after)):  # the added part has no bias
        plain = _TRANSPOSED[n](x, w, None, strides, 0, 0, group, dilations)
        plain = F.pad(plain, [v for pair in reversed(widths) for v in pair])
        made = plain + b.reshape(1, -1, *([1] * n))
    return made


@node("DeformConv")
def deform_conv(
    call: Call, x: Tensor, w: Tensor, offset: Tensor, b: Any = None, mask: Any = None, dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, offset_group: int = 1, pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip

    pads, n = list(pads or [0] * 4), 2
    if pads[:n] != pads[n:]:
        x, pads = padded(x, pads[:n], pads[n:]), [0] * 4
    return deform_conv2d(
        x,
        offset,
        w,
        b,
        stride=tuple(strides or (1, 1)),
        padding=tuple(pads[:2]),
        dilation=tuple(dilations or (1, 1)),
        mask=mask,
    )


# -- normalisations -----------------------------------------------------------------------------------------------------------------


@node("BatchNormalization")
def batch_normalization(
    call: Call, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, var: Tensor, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0, spatial: int = 1, is_test: int = 1,
) -> Any:  # fmt: skip
    if not training_mode:
        scale, shift, mean, var = (v.to(x.dtype) for v in (scale, shift, mean, var))
        return F.batch_norm(x, mean, var, scale, shift, False, 0.0, epsilon)
    dims = [d for d in range(x.dim()) if d != 1]
    new_mean, new_var = x.mean(dims), x.var(dims, unbiased=False)
    made = F.batch_norm(x, None, None, scale, shift, True, 0.0, epsilon)
    return made, mean * momentum + new_mean * (1 - momentum), var * momentum + new_var * (1 - momentum)


@node("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, shift: Tensor, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=shift, eps=epsilon)


@node("LayerNormalization")
def layer_normalization(
    call: Call, x: Tensor, scale: Tensor, shift: Any = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    dims = list(range(axis % x.dim(), x.dim()))
    if call.outputs == 1 and list(scale.shape) == [x.shape[d] for d in dims]:
        return F.layer_norm(x, list(scale.shape), scale, shift, epsilon)
    mean = x.mean(dims, keepdim=True)
    inverse = 1 / ((x - mean).square().mean(dims, keepdim=True) + epsilon).sqrt()
    made = (x - mean) * inverse * scale
    return (made if shift is None else made + shift), mean, inverse


@node("GroupNormalization")
def group_normalization(
    call: Call, x: Tensor, scale: Tensor, shift: Tensor, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    if scale.shape[0] != x.shape[1]:
        times = x.shape[1] // scale.shape[0]
        scale, shift = scale.repeat_interleave(times), shift.repeat_interleave(times)
    return F.group_norm(x, num_groups, scale, shift, epsilon)


@node("LRN")
def lrn(call: Call, x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    square = x * x
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    wide = flambeau.cat(
        [square.new_zeros(x.shape[0], low, *x.shape[2:]), square, square.new_zeros(x.shape[0], high, *x.shape[2:])], 1
    )
    total = sum(wide[:, i : i + x.shape[1]] for i in range(size))
    return x / (bias + alpha / size * total) ** beta


# -- products of whole numbers, quantization ------------------------------------------------------------------------------------------


def _zero(point: Any, like: Tensor, axis: int | None = None) -> Any:
    if point is None:
        return 0
    point = point.to(flambeau.int32)
    if axis is not None and point.dim() == 1:
        point = point.reshape([-1 if d == axis % like.dim() else 1 for d in range(like.dim())])
    return point


@node("MatMulInteger")
def matmul_integer(call: Call, a: Tensor, b: Tensor, a_zero: Any = None, b_zero: Any = None) -> Tensor:
    left = a.to(flambeau.int32) - _zero(a_zero, a, -2)
    return left @ (b.to(flambeau.int32) - _zero(b_zero, b, -1))


@node("ConvInteger")
def conv_integer(call: Call, x: Tensor, w: Tensor, x_zero: Any = None, w_zero: Any = None, **window: Any) -> Tensor:
    left, right = (
        (x.to(flambeau.int32) - _zero(x_zero, x)).double(),
        (w.to(flambeau.int32) - _zero(w_zero, w, 0)).double(),
    )
    return conv(call, left, right, **window).round().to(flambeau.int32)


def _shape_scale(value: Any, like: Tensor, axis: int, block: int = 0) -> Any:
    """Return a scale in a shape that broadcasts: one for the whole tensor, one per entry of an axis, or one per block of it."""
    if value is None or value.numel() == 1 and value.dim() <= 1:
        return value if value is None else value.reshape(())
    if value.dim() == 1:
        return value.reshape([-1 if d == axis % like.dim() else 1 for d in range(like.dim())])
    return value.repeat_interleave(block, axis) if block else value


@node("QuantizeLinear")
def quantize_linear(
    call: Call, x: Tensor, scale: Tensor, zero: Any = None, axis: int = 1, block_size: int = 0, output_dtype: int = 0, saturate: int = 1,
    precision: int = 0,
) -> Tensor:  # fmt: skip
    dtype = zero.dtype if zero is not None else DTYPE[output_dtype] if output_dtype else flambeau.uint8
    point = _shape_scale(zero, x, axis, block_size)
    ratio = x.float() / _shape_scale(scale, x, axis, block_size).float()
    if dtype.is_floating_point:
        return cast(call, ratio, NUMBER[dtype], saturate)
    made = flambeau.round(ratio) + (0 if point is None else point.float())
    info = flambeau.iinfo(dtype)
    made = made.clamp(info.min, info.max)
    return tensor_of(made.numpy().astype(np.uint16)) if dtype == flambeau.uint16 else made.to(dtype)


@node("DequantizeLinear")
def dequantize_linear(
    call: Call, x: Tensor, scale: Tensor, zero: Any = None, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    point = _shape_scale(zero, x, axis, block_size)
    off = _real(x) - (0 if point is None else _real(point))
    return (off * _shape_scale(scale, x, axis, block_size).float()).to(scale.dtype)


def _real(x: Tensor) -> Tensor:
    return x.float() if x.dtype not in (flambeau.uint16, flambeau.uint32) else tensor_of(x.numpy().astype(np.float32))


@node("QLinearMatMul")
def qlinear_matmul(
    call: Call, a: Tensor, a_s: Tensor, a_z: Tensor, b: Tensor, b_s: Tensor, b_z: Tensor, y_s: Tensor, y_z: Tensor
) -> Tensor:
    left = dequantize_linear(call, a, a_s.float(), a_z, axis=-2)
    return quantize_linear(call, left @ dequantize_linear(call, b, b_s.float(), b_z, axis=-1), y_s.float(), y_z)


@node("QLinearConv")
def qlinear_conv(
    call: Call, x: Tensor, x_s: Tensor, x_z: Tensor, w: Tensor, w_s: Tensor, w_z: Tensor, y_s: Tensor, y_z: Tensor,
    b: Any = None, **window: Any,
) -> Tensor:  # fmt: skip
    made = conv(call, dequantize_linear(call, x, x_s, x_z), dequantize_linear(call, w, w_s, w_z, axis=0), **window)
    if b is not None:
        made = made + (b.float() * x_s * w_s).reshape(1, -1, *([1] * (made.dim() - 2)))
    return quantize_linear(call, made, y_s, y_z)


# -- resizing and sampling -------------------------------------------------------------------------------------------------------------


@node("GridSample")
def grid_sample(
    call: Call, x: Tensor, grid: Tensor, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    words = {
        "linear": "bilinear",
        "bilinear": "bilinear",
        "nearest": "nearest",
        "cubic": "bicubic",
        "bicubic": "bicubic",
    }
    return F.grid_sample(x, grid, mode=words[mode], padding_mode=padding_mode, align_corners=bool(align_corners))


@node("AffineGrid")
def affine_grid(call: Call, theta: Tensor, size: Tensor, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, numbers(size), align_corners=bool(align_corners))


@node("Col2Im")
def col2im(
    call: Call, x: Tensor, image: Tensor, block: Tensor, dilations: Any = None, pads: Any = None, strides: Any = None
) -> Tensor:
    sizes, kernel = numbers(image), numbers(block)
    n = len(sizes)
    dilations, strides, pads = list(dilations or [1] * n), list(strides or [1] * n), list(pads or [0] * 2 * n)
    if n == 2 and pads[:2] == pads[2:]:
        return F.fold(x, sizes, kernel, dilations, pads[:2], strides)
    return _col2im(x, sizes, kernel, dilations, pads, strides)


def _col2im(
    x: Tensor, sizes: list[int], kernel: list[int], dilations: list[int], pads: list[int], strides: list[int]
) -> Tensor:
    """Return Col2Im for any number of dimensions: elements of all columns are summed at their positions."""
    n = len(sizes)
    full = [s + pads[i] + pads[i + n] for i, s in enumerate(sizes)]
    steps = [pooled_size(f, k, st, 0, d, False) for f, d, k, st in zip(full, dilations, kernel, strides)]
    places = np.zeros((math.prod(kernel), math.prod(steps)), np.int64)
    for d in range(n):
        offset = np.indices(kernel)[d].reshape(-1, 1) * dilations[d] + np.indices(steps)[d].reshape(1, -1) * strides[d]
        places = places * full[d] + offset
    channels = x.shape[1] // math.prod(kernel)
    values = x.reshape(x.shape[0], channels, -1)
    flat = x.new_zeros(x.shape[0], channels, math.prod(full)).index_add(2, tensor_of(places.reshape(-1)), values)
    made = flat.reshape(x.shape[0], channels, *full)
    for d, s in enumerate(sizes):
        made = made.narrow(2 + d, pads[d], s)
    return made


@node("Resize", "Upsample")
def resize(
    call: Call, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str | None = None, cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
    **old: Any,
) -> Tensor:  # fmt: skip

    if call.kind == "Upsample" or call.opset < 11:
        given = old.get("scales", roi if scales is None else scales)
        factors = given if isinstance(given, list) else given.reshape(-1).tolist()
        return resized(
            x,
            factors,
            None,
            None,
            None,
            "asymmetric",
            mode.replace("bilinear", "linear"),
            "floor",
            cubic_coeff_a,
            0,
            0.0,
            0,
            "stretch",
        )
    listed = None if scales is None or not scales.numel() else [float(v) for v in scales.tolist()]
    wanted = None if sizes is None or not sizes.numel() else numbers(sizes)
    region = None if roi is None or not roi.numel() else [float(v) for v in roi.tolist()]
    where = coordinate_transformation_mode or "half_pixel"
    return resized(
        x, listed, wanted, region, axes, where, mode, nearest_mode, cubic_coeff_a, exclude_outside, extrapolation_value, antialias,
        keep_aspect_ratio_policy,
    )  # fmt: skip


@node("NonMaxSuppression")
def non_max_suppression(
    call: Call, boxes: Tensor, scores: Tensor, limit: Any = None, iou: Any = None, score: Any = None,
    center_point_box: int = 0,
) -> Tensor:  # fmt: skip
    most = 0 if limit is None else int(limit.item())
    overlap, lowest = (0.0 if iou is None else float(iou.item())), (None if score is None else float(score.item()))
    found = []
    for b in range(boxes.shape[0]):
        corners = _corners(boxes[b].numpy().astype(np.float64), center_point_box)
        for c in range(scores.shape[1]):
            found += [[b, c, i] for i in _suppress(corners, scores[b, c].numpy(), most, overlap, lowest)]
    return flambeau.tensor(found, dtype=flambeau.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, center: int) -> np.ndarray:
    if center:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    a, b = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], 1)


def _suppress(boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, lowest: float | None) -> list[int]:
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if len(kept) >= most or (lowest is not None and scores[i] <= lowest):
            break
        low, high = np.maximum(boxes[kept, :2], boxes[i, :2]), np.minimum(boxes[kept, 2:], boxes[i, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1) if kept else np.zeros(0)
        if not np.any(common / (area[kept] + area[i] - common) > overlap):
            kept.append(int(i))
    return kept


@node("RoiAlign")
def roi_align(
    call: Call, x: Tensor, rois: Tensor, batch: Tensor, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip

    if mode != "avg":
        raise NotImplementedError("RoiAlign with mode='max'")
    boxes = flambeau.cat([batch.to(rois.dtype).unsqueeze(1), rois], 1)
    aligned = coordinate_transformation_mode == "half_pixel" and call.opset >= 16
    return pooled(x, boxes, (output_height, output_width), spatial_scale, sampling_ratio, aligned)


# -- losses and optimizers ---------------------------------------------------------------------------------------------------------------


@node("NegativeLogLikelihoodLoss")
def nll_loss(
    call: Call, x: Tensor, target: Tensor, weight: Any = None, ignore_index: int | None = None, reduction: str = "mean"
) -> Tensor:
    return F.nll_loss(
        x,
        target.to(flambeau.int64),
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
    )


@node("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    call: Call, x: Tensor, target: Tensor, weight: Any = None, ignore_index: int | None = None, reduction: str = "mean"
) -> tuple:
    logs = flambeau.log_softmax(x, 1)
    return nll_loss(call, logs, target, weight, ignore_index, reduction), logs
