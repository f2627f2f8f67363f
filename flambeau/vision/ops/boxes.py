"""Boxes: (x1, y1, x2, y2) rows with x1 < x2 and y1 < y2 unless a format says otherwise."""

from __future__ import annotations

import math

import flambeau
from flambeau import Tensor
from flambeau.kernels.library import regions as kernels

from ._box_formats import box_convert as box_convert
from ._box_formats import to_corners
from ._operators import operator
from ._utils import _upcast, _upcast_non_float

__all__ = [
    "batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image", "complete_box_iou", "distance_box_iou",
    "generalized_box_iou", "masks_to_boxes", "nms", "remove_small_boxes",
]  # fmt: skip


@operator("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", reads_values=True)
def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    n = boxes.shape[0]
    keep, kept = flambeau.empty(max(n, 1), dtype=flambeau.int64), flambeau.zeros(1, dtype=flambeau.int64)
    order = scores.detach().sort(stable=True, descending=True)[1]
    wide = flambeau.float64 if boxes.dtype is flambeau.float64 else flambeau.float32
    alive = flambeau.ones(max(n, 1), dtype=wide)
    kernels.suppress(keep, kept, alive, boxes.detach()[order].to(wide).contiguous(), n, float(iou_threshold))
    return order[keep[: int(kept.item())]]


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return indices of boxes to keep, best score first: each box that overlaps a better kept one by more than the threshold (intersection
    over union) is dropped.

    >>> import flambeau
    >>> boxes = flambeau.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    >>> nms(boxes, flambeau.tensor([0.8, 0.9, 0.3]), 0.5)
    tensor([1, 2])
    """
    if boxes.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {boxes.dim()}D")
    if boxes.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {boxes.shape[1]}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if boxes.shape[0] != scores.shape[0]:
        raise RuntimeError(
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{boxes.shape[0]} and {scores.shape[0]}"
        )
    if boxes.dtype is not scores.dtype:
        raise RuntimeError(f"dets should have the same type as scores, got {boxes.dtype} and {scores.dtype}")
    if not boxes.is_floating_point():
        raise NotImplementedError(f"\"nms_kernel\" not implemented for '{boxes.dtype}'")
    return _nms(boxes, scores, float(iou_threshold))


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Apply non-maximum suppression within each category; return the indices to keep."""
    # Moving many boxes apart costs more comparisons than going category by category, which no trace can follow.
    if boxes.numel() > 4000 and not flambeau.jit.is_tracing():
        return _nms_by_category(boxes, scores, idxs, iou_threshold)
    if boxes.numel() == 0:
        return flambeau.empty((0,), dtype=flambeau.int64, device=boxes.device)
    apart = idxs.to(boxes) * (boxes.max() + flambeau.tensor(1).to(boxes))
    return nms(boxes + apart[:, None], scores, iou_threshold)


def _nms_by_category(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    keep = flambeau.zeros_like(scores, dtype=flambeau.bool)
    for category in flambeau.unique(idxs):
        members = flambeau.where(idxs == category)[0]
        keep[members[nms(boxes[members], scores[members], iou_threshold)]] = True
    kept = flambeau.where(keep)[0]
    return kept[scores[kept].sort(descending=True)[1]]


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """Return indices of boxes whose sides are both at least `min_size`."""
    wide, high = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return flambeau.where((wide >= min_size) & (high >= min_size))[0]


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Clip boxes to an image of size (height, width)."""
    height, width = size
    x, y = boxes[..., 0::2].clamp(min=0, max=width), boxes[..., 1::2].clamp(min=0, max=height)
    return flambeau.stack((x, y), dim=boxes.dim()).reshape(boxes.shape)


def box_area(boxes: Tensor, fmt: str = "xyxy") -> Tensor:
    """Return the areas of boxes in the format xyxy, xywh or cxcywh."""
    boxes = _upcast(boxes)
    if fmt == "xyxy":
        return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    if fmt in ("xywh", "cxcywh"):
        return boxes[..., 2] * boxes[..., 3]
    raise ValueError(f"Unsupported Bounding Box area for given format {fmt}")


def _box_inter_union(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> tuple[Tensor, Tensor]:
    area1, area2 = box_area(boxes1, fmt), box_area(boxes2, fmt)
    boxes1, boxes2 = to_corners(boxes1, fmt), to_corners(boxes2, fmt)
    near = flambeau.max(boxes1[..., :, None, :2], boxes2[..., None, :, :2])
    far = flambeau.min(boxes1[..., :, None, 2:], boxes2[..., None, :, 2:])
    sides = _upcast(far - near).clamp(min=0)
    common = sides[..., 0] * sides[..., 1]
    return common, area1[..., None] + area2[..., None, :] - common


def box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Return the intersection over union of every pair: (N, M)."""
    common, union = _box_inter_union(boxes1, boxes2, fmt)
    return common / union


def _hull_sides(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Return width and height of the smallest box around each pair."""
    near = flambeau.min(boxes1[..., :, None, :2], boxes2[..., None, :, :2])
    far = flambeau.max(boxes1[..., :, None, 2:], boxes2[..., None, :, 2:])
    return _upcast(far - near).clamp(min=0)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Return intersection over union, less the part of the enclosing box that neither box covers (Rezatofighi et al., 2019)."""
    common, union = _box_inter_union(boxes1, boxes2)
    sides = _hull_sides(boxes1, boxes2)
    hull = sides[..., 0] * sides[..., 1]
    return common / union - (hull - union) / hull


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return intersection over union, less the squared distance of the centres over the enclosing box's squared diagonal (Zheng et al.)."""
    boxes1, boxes2 = _upcast_non_float(boxes1), _upcast_non_float(boxes2)
    sides = _hull_sides(boxes1, boxes2)
    diagonal = sides[..., 0] ** 2 + sides[..., 1] ** 2 + eps
    centres1, centres2 = (boxes1[..., :2] + boxes1[..., 2:]) / 2, (boxes2[..., :2] + boxes2[..., 2:]) / 2
    between = _upcast(centres1[..., :, None, :] - centres2[..., None, :, :])
    return box_iou(boxes1, boxes2) - (between[..., 0] ** 2 + between[..., 1] ** 2) / diagonal


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return `distance_box_iou`, less a penalty for different aspect ratios."""
    boxes1, boxes2 = _upcast_non_float(boxes1), _upcast_non_float(boxes2)
    angle1, angle2 = (flambeau.atan((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])) for b in (boxes1, boxes2))
    unlike = 4 / math.pi**2 * (angle1[..., :, None] - angle2[..., None, :]) ** 2
    with flambeau.no_grad():
        weight = unlike / (1 - box_iou(boxes1, boxes2) + unlike + eps)
    return distance_box_iou(boxes1, boxes2, eps) - weight * unlike


def masks_to_boxes(masks: Tensor) -> Tensor:
    """Return the boxes (N, 4) around the non-zero elements of masks (N, H, W); zeros for an empty mask."""
    if masks.numel() == 0:
        return flambeau.zeros((0, 4), device=masks.device, dtype=flambeau.float)
    columns, rows = (masks != 0).any(dim=1), (masks != 0).any(dim=2)
    boxes = flambeau.zeros((masks.shape[0], 4), device=masks.device, dtype=flambeau.float)
    for i, hit in enumerate((columns, rows)):
        whole = hit.int()
        boxes[:, i] = whole.argmax(dim=1).float()
        boxes[:, i + 2] = (hit.shape[1] - 1 - whole.flip(1).argmax(dim=1)).float()
    boxes[~rows.any(dim=1)] = 0
    return boxes
