"""The operators of torchvision."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import flambeau

from ...vision import ops
from ..builder import Absent, Builder, Value
from ..registry import form

_VISION: Any = ops._operators.faces()


@form(_VISION.nms, since=10)
def nms(g: Builder, dets: Value, scores: Value, iou_threshold: float) -> Value:
    boxes, marks = g.unsqueeze(dets, [0]), g.unsqueeze(scores, [0, 1])
    most = g.constant(np.array([sys.maxsize], np.int64))
    found = g.op("NonMaxSuppression", boxes, marks, most, g.constant(np.array([iou_threshold], np.float32)))
    third = g.op("Gather", found.known(flambeau.int64, (None, 3)), g.constant(np.array([2])), axis_i=1)
    return g.squeeze(third.known(flambeau.int64, (None, 1)), [1])


def _regions(g: Builder, rois: Value) -> tuple[Value, Value]:
    """Return the boxes, and the index of each box's image."""
    images = g.squeeze(g.slice(rois, [1], [0], [1]), [1])
    return g.slice(rois, [1], [1], [5]), g.cast(images, flambeau.int64)


@form(_VISION.roi_align, since=10)
def roi_align(
    g: Builder, input: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Value:  # fmt: skip
    extra = {}
    if g.opset >= 16:
        extra["coordinate_transformation_mode_s"] = "half_pixel" if aligned else "output_half_pixel"
    elif aligned:
        raise NotImplementedError("aligned=True needs opset 16 or later")
    made = g.op(
        "RoiAlign", input, *_regions(g, rois), output_height_i=pooled_height, output_width_i=pooled_width,
        sampling_ratio_i=max(sampling_ratio, 0), spatial_scale_f=spatial_scale, **extra,
    )  # fmt: skip
    return made.known(input.dtype, (rois.shape[0], input.shape[1], pooled_height, pooled_width))


@form(_VISION.roi_pool)
def roi_pool(
    g: Builder, input: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Value, Value]:
    made = g.op("MaxRoiPool", input, rois, pooled_shape_i=[pooled_height, pooled_width], spatial_scale_f=spatial_scale)
    made.known(input.dtype, (rois.shape[0], input.shape[1], pooled_height, pooled_width))
    return made, Absent("which elements were the largest")


@form(_VISION.deform_conv2d, since=19)
def deform_conv2d(
    g: Builder, input: Value, weight: Value, offset: Value, mask: Value, bias: Value, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Value:  # fmt: skip
    return g.op(
        "DeformConv", input, weight, offset, bias, mask if use_mask else None, strides_i=[stride_h, stride_w],
        pads_i=[pad_h, pad_w] * 2, dilations_i=[dilation_h, dilation_w], group_i=groups, offset_group_i=offset_groups,
        kernel_shape_i=list(weight.shape[2:]),
    ).known(input.dtype, (input.shape[0], weight.shape[0], None, None))  # fmt: skip
