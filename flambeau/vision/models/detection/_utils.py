"""Helpers of detectors: matching of boxes with ground truth, sampling, and encoding of boxes relative to anchors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.nn.unchanged import unchanged

from ...ops import boxes as box_ops
from ...ops._losses import complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss
from ...ops.misc import FrozenBatchNorm2d


class BalancedPositiveNegativeSampler:
    """Samples random examples, of which at most a given fraction is positive (label >= 1; 0 is negative, less is ignored)."""

    def __init__(self, batch_size_per_image: int, positive_fraction: float):
        self.batch_size_per_image, self.positive_fraction = batch_size_per_image, positive_fraction

    def __call__(self, matched_idxs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        chosen: tuple[list[Tensor], list[Tensor]] = ([], [])
        for labels in matched_idxs:
            found = flambeau.where(labels >= 1)[0], flambeau.where(labels == 0)[0]
            positives = min(found[0].numel(), int(self.batch_size_per_image * self.positive_fraction))
            negatives = min(found[1].numel(), self.batch_size_per_image - positives)
            for which, candidates, count in zip(chosen, found, (positives, negatives)):
                mask = flambeau.zeros_like(labels, dtype=flambeau.uint8)
                mask[candidates[flambeau.randperm(candidates.numel())[:count]]] = 1
                which.append(mask)
        return chosen


def _box_centres(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    w, h = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return boxes[..., 0] + 0.5 * w, boxes[..., 1] + 0.5 * h, w, h


class BoxCoder:
    """Encodes a box relative to a reference: shifts of the centre in units of the reference's size, and logarithms of the size."""

    def __init__(self, weights: tuple[float, float, float, float], bbox_xform_clip: float = math.log(1000.0 / 16)):
        self.weights, self.bbox_xform_clip = weights, bbox_xform_clip

    def encode(self, reference_boxes: list[Tensor], proposals: list[Tensor]) -> list[Tensor]:
        counts = [b.shape[0] for b in reference_boxes]
        return list(self.encode_single(flambeau.cat(reference_boxes), flambeau.cat(proposals)).split(counts, 0))

    def encode_single(self, reference_boxes: Tensor, proposals: Tensor) -> Tensor:
        wx, wy, ww, wh = self.weights
        (cx, cy, w, h), (px, py, pw, ph) = _box_centres(reference_boxes), _box_centres(proposals)
        codes = wx * (cx - px) / pw, wy * (cy - py) / ph, ww * flambeau.log(w / pw), wh * flambeau.log(h / ph)
        return flambeau.stack(codes, dim=1)

    def decode(self, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
        total = sum(b.shape[0] for b in boxes)
        codes = rel_codes.reshape(total, -1) if total > 0 else rel_codes
        decoded = self.decode_single(codes, flambeau.cat(boxes))
        return decoded.reshape(total, -1, 4) if total > 0 else decoded

    def decode_single(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        boxes = boxes.to(rel_codes.dtype)
        cx, cy, w, h = (t[:, None] for t in _box_centres(boxes))
        wx, wy, ww, wh = self.weights
        x, y = rel_codes[:, 0::4] / wx * w + cx, rel_codes[:, 1::4] / wy * h + cy
        half_w = 0.5 * flambeau.exp((rel_codes[:, 2::4] / ww).clamp(max=self.bbox_xform_clip)) * w
        half_h = 0.5 * flambeau.exp((rel_codes[:, 3::4] / wh).clamp(max=self.bbox_xform_clip)) * h
        return flambeau.stack((x - half_w, y - half_h, x + half_w, y + half_h), dim=2).flatten(1)


class BoxLinearCoder:
    """Encodes a box by its distances from a reference's centre, optionally in units of the reference's size."""

    def __init__(self, normalize_by_size: bool = True):
        self.normalize_by_size = normalize_by_size

    def _size(self, reference: Tensor) -> Tensor:
        w, h = reference[..., 2] - reference[..., 0], reference[..., 3] - reference[..., 1]
        return flambeau.stack((w, h, w, h), dim=-1)

    def _centre(self, reference: Tensor) -> tuple[Tensor, Tensor]:
        return 0.5 * (reference[..., 0] + reference[..., 2]), 0.5 * (reference[..., 1] + reference[..., 3])

    def encode(self, reference_boxes: Tensor, proposals: Tensor) -> Tensor:
        x, y = self._centre(reference_boxes)
        x1, y1, x2, y2 = proposals.unbind(-1)
        codes = flambeau.stack((x - x1, y - y1, x2 - x, y2 - y), dim=-1)
        return codes / self._size(reference_boxes) if self.normalize_by_size else codes

    def decode(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        boxes = boxes.to(rel_codes.dtype)
        x, y = self._centre(boxes)
        left, top, right, bottom = (rel_codes * self._size(boxes) if self.normalize_by_size else rel_codes).unbind(-1)
        return flambeau.stack((x - left, y - top, x + right, y + bottom), dim=-1)


class Matcher:
    """Matches each prediction with the best ground truth, by a table (truths, predictions) of quality: returns its index, or
    BELOW_LOW_THRESHOLD, or BETWEEN_THRESHOLDS. With `allow_low_quality_matches`, each truth keeps its best predictions."""

    BELOW_LOW_THRESHOLD = -1
    BETWEEN_THRESHOLDS = -2

    def __init__(self, high_threshold: float, low_threshold: float, allow_low_quality_matches: bool = False):
        if low_threshold > high_threshold:
            raise ValueError(f"low_threshold {low_threshold} should not be above high_threshold {high_threshold}")
        self.high_threshold, self.low_threshold = high_threshold, low_threshold
        self.allow_low_quality_matches = allow_low_quality_matches

    def __call__(self, match_quality_matrix: Tensor) -> Tensor:
        if match_quality_matrix.numel() == 0:
            which = "ground-truth boxes" if match_quality_matrix.shape[0] == 0 else "proposal boxes"
            raise ValueError(f"No {which} available for one of the images during training")
        quality, best = match_quality_matrix.max(dim=0)
        matches = best.clone()
        matches[quality < self.low_threshold] = self.BELOW_LOW_THRESHOLD
        matches[(quality >= self.low_threshold) & (quality < self.high_threshold)] = self.BETWEEN_THRESHOLDS
        if self.allow_low_quality_matches:
            top = match_quality_matrix.max(dim=1)[0]
            kept = flambeau.where(match_quality_matrix == top[:, None])[1]
            matches[kept] = best[kept]
        return matches


class SSDMatcher(Matcher):
    """Matcher in which each ground truth gets at least its best prediction."""

    def __init__(self, threshold: float):
        super().__init__(threshold, threshold, allow_low_quality_matches=False)

    def __call__(self, match_quality_matrix: Tensor) -> Tensor:
        matches = super().__call__(match_quality_matrix)
        best = match_quality_matrix.max(dim=1)[1]
        matches[best] = flambeau.arange(best.shape[0], dtype=flambeau.int64)
        return matches


def overwrite_eps(model: nn.Module, eps: float) -> None:
    """Set the eps of frozen norms to the value that old published files were trained with."""
    for module in model.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.eps = eps


def retrieve_out_channels(model: nn.Module, size: tuple[int, int]) -> list[int]:
    """Return the channels of a backbone's feature maps for images of size (width, height)."""
    with unchanged(model, training=False), flambeau.no_grad():
        device = next(model.parameters()).device
        out = model(flambeau.zeros((1, 3, size[1], size[0]), device=device))
    return [x.shape[1] for x in (out.values() if isinstance(out, dict) else [out])]


def sum_of(losses: Sequence[Tensor]) -> Tensor:
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    return total


def box_loss(kind: str, coder: BoxCoder, anchors: Tensor, truths: Tensor, codes: Tensor) -> Tensor:
    """Return the loss between predicted codes and those of the target boxes."""
    if kind in ("l1", "smooth_l1"):
        target = coder.encode_single(truths, anchors)
        if kind == "l1":
            return F.l1_loss(codes, target, reduction="sum")
        return F.smooth_l1_loss(codes, target, reduction="sum")
    losses = {"ciou": complete_box_iou_loss, "diou": distance_box_iou_loss, "giou": generalized_box_iou_loss}
    if kind not in losses:
        raise ValueError(f"Unsupported loss {kind}")
    return losses[kind](coder.decode_single(codes, anchors), truths, reduction="sum", eps=1e-7)


def check_backbone(backbone: nn.Module, remark: str = "") -> None:
    """Raise ValueError unless the backbone has `out_channels`, for which heads are built."""
    if not hasattr(backbone, "out_channels"):
        raise ValueError(
            f"backbone should contain an attribute out_channels specifying the number of output channels{remark}"
        )


def check_targets(targets: list[dict[str, Tensor]] | None, count: int) -> list[dict[str, Tensor]]:
    """Check that targets have the entries that a detector needs, with valid boxes."""
    if targets is None:
        raise AssertionError("targets should not be none when in training mode")
    if len(targets) != count:
        raise AssertionError(f"expected one target per image, got {len(targets)} for {count} images")
    for target in targets:
        boxes = target["boxes"]
        if not isinstance(boxes, Tensor):
            raise AssertionError(f"Expected target boxes to be of type Tensor, got {type(boxes)}.")
        if boxes.dim() != 2 or boxes.shape[-1] != 4:
            raise AssertionError(f"Expected target boxes to be a tensor of shape [N, 4], got {boxes.shape}.")
    return targets


def check_sizes(targets: list[dict[str, Tensor]] | None) -> None:
    """Raise AssertionError if a box has no area after resizing."""
    for i, target in enumerate(targets or []):
        boxes = target["boxes"]
        flat = boxes[:, 2:] <= boxes[:, :2]
        if flat.any():
            first = int(flambeau.where(flat.any(dim=1))[0][0])
            raise AssertionError(
                "All bounding boxes should have positive height and width. Found invalid box "
                f"{boxes[first].tolist()} for target at index {i}."
            )


def keep_best(boxes: Tensor, scores: Tensor, labels: Tensor, threshold: float, count: int) -> dict[str, Tensor]:
    """Suppress overlapping boxes per class and keep the `count` best."""
    keep = box_ops.batched_nms(boxes, scores, labels, threshold)[:count]
    return {"boxes": boxes[keep], "scores": scores[keep], "labels": labels[keep]}
