"""Losses of detection: boxes against boxes, and the focal loss."""

from __future__ import annotations

import math

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F

from ._utils import _loss_inter_union, _upcast_non_float


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean() if loss.numel() > 0 else 0.0 * loss.sum()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(
        f"Invalid Value for arg 'reduction': '{reduction} \n Supported reduction modes: 'none', 'mean', 'sum'"
    )


def _pairwise_geometry(boxes1: Tensor, boxes2: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return, row by row: union, intersection over union, the corners and sides of the enclosing box."""
    boxes1, boxes2 = _upcast_non_float(boxes1), _upcast_non_float(boxes2)
    common, union = _loss_inter_union(boxes1, boxes2)
    hull = flambeau.max(boxes1[..., 2:], boxes2[..., 2:]) - flambeau.min(boxes1[..., :2], boxes2[..., :2])
    return boxes1, boxes2, union, common / (union + eps), hull


def generalized_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """Return 1 - generalized intersection over union, row by row (Rezatofighi et al., 2019)."""
    _, _, union, iou, hull = _pairwise_geometry(boxes1, boxes2, eps)
    area = hull[..., 0] * hull[..., 1]
    return _reduce(1 - (iou - (area - union) / (area + eps)), reduction)


def _centre_distance(boxes1: Tensor, boxes2: Tensor, hull: Tensor, iou: Tensor, eps: float) -> Tensor:
    between = (boxes2[..., :2] + boxes2[..., 2:]) / 2 - (boxes1[..., :2] + boxes1[..., 2:]) / 2
    return 1 - iou + (between**2).sum(-1) / ((hull**2).sum(-1) + eps)


def distance_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """Return 1 - intersection over union + squared distance of the centres over that of the enclosing box (Zheng et al., 2020)."""
    boxes1, boxes2, _, iou, hull = _pairwise_geometry(boxes1, boxes2, eps)
    return _reduce(_centre_distance(boxes1, boxes2, hull, iou, eps), reduction)


def complete_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """Return `distance_box_iou_loss` plus a penalty for different aspect ratios."""
    boxes1, boxes2, _, iou, hull = _pairwise_geometry(boxes1, boxes2, eps)
    angle1, angle2 = (flambeau.atan((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])) for b in (boxes1, boxes2))
    unlike = 4 / math.pi**2 * (angle2 - angle1) ** 2
    with flambeau.no_grad():
        weight = unlike / (1 - iou + unlike + eps)
    return _reduce(_centre_distance(boxes1, boxes2, hull, iou, eps) + weight * unlike, reduction)


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> Tensor:
    """Return the focal loss: cross entropy weighted down for well-classified examples (Lin et al., 2017). alpha < 0: no balancing."""
    if not (0 <= alpha <= 1) and alpha != -1:
        raise ValueError(f"Invalid alpha value: {alpha}. alpha must be in the range [0,1] or -1 for ignore.")
    p = flambeau.sigmoid(inputs)
    right = p * targets + (1 - p) * (1 - targets)
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none") * (1 - right) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    if reduction == "mean":
        return loss.mean()
    return _reduce(loss, reduction)
