"""Heads that work on proposed regions: classes, boxes, masks, keypoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from ...ops import boxes as box_ops
from ._utils import BalancedPositiveNegativeSampler, BoxCoder, Matcher, keep_best
from .roi_masks import keypointrcnn_inference, keypointrcnn_loss, maskrcnn_inference, maskrcnn_loss

Target = dict[str, Tensor]


def fastrcnn_loss(
    class_logits: Tensor, box_regression: Tensor, labels: list[Tensor], regression_targets: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the cross entropy of the classes, and the smooth L1 loss of the boxes of objects."""
    label, target = flambeau.cat(labels), flambeau.cat(regression_targets)
    objects = flambeau.where(label > 0)[0]
    codes = box_regression.reshape(class_logits.shape[0], -1, 4)[objects, label[objects]]
    regression = F.smooth_l1_loss(codes, target[objects], beta=1 / 9, reduction="sum") / label.numel()
    return F.cross_entropy(class_logits, label), regression


class RoIHeads(nn.Module):
    """Pools regions and applies the heads for boxes and, if given, masks and keypoints."""

    def __init__(
        self,
        box_roi_pool: nn.Module,
        box_head: nn.Module,
        box_predictor: nn.Module,
        fg_iou_thresh: float,
        bg_iou_thresh: float,
        batch_size_per_image: int,
        positive_fraction: float,
        bbox_reg_weights: tuple[float, float, float, float] | None,
        score_thresh: float,
        nms_thresh: float,
        detections_per_img: int,
        mask_roi_pool: nn.Module | None = None,
        mask_head: nn.Module | None = None,
        mask_predictor: nn.Module | None = None,
        keypoint_roi_pool: nn.Module | None = None,
        keypoint_head: nn.Module | None = None,
        keypoint_predictor: nn.Module | None = None,
    ):
        super().__init__()
        self.box_similarity = box_ops.box_iou
        self.proposal_matcher = Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=False)
        self.fg_bg_sampler = BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self.box_coder = BoxCoder(bbox_reg_weights or (10.0, 10.0, 5.0, 5.0))
        self.box_roi_pool, self.box_head, self.box_predictor = box_roi_pool, box_head, box_predictor
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img
        self.mask_roi_pool, self.mask_head, self.mask_predictor = mask_roi_pool, mask_head, mask_predictor
        self.keypoint_roi_pool, self.keypoint_head = keypoint_roi_pool, keypoint_head
        self.keypoint_predictor = keypoint_predictor

    def has_mask(self) -> bool:
        return None not in (self.mask_roi_pool, self.mask_head, self.mask_predictor)

    def has_keypoint(self) -> bool:
        return None not in (self.keypoint_roi_pool, self.keypoint_head, self.keypoint_predictor)

    def assign_targets_to_proposals(
        self, proposals: list[Tensor], gt_boxes: list[Tensor], gt_labels: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        matched_idxs, labels = [], []
        for boxes, truth, truth_labels in zip(proposals, gt_boxes, gt_labels):
            if truth.numel() == 0:
                nothing = flambeau.zeros((boxes.shape[0],), dtype=flambeau.int64)
                matched_idxs.append(nothing)
                labels.append(nothing.clone())
                continue
            matched = self.proposal_matcher(self.box_similarity(truth, boxes))
            clamped = matched.clamp(min=0)
            label = truth_labels[clamped].to(flambeau.int64)
            label[matched == Matcher.BELOW_LOW_THRESHOLD] = 0
            label[matched == Matcher.BETWEEN_THRESHOLDS] = -1
            matched_idxs.append(clamped)
            labels.append(label)
        return matched_idxs, labels

    def subsample(self, labels: list[Tensor]) -> list[Tensor]:
        return [flambeau.where(p | n)[0] for p, n in zip(*self.fg_bg_sampler(labels))]

    def check_targets(self, targets: list[Target] | None) -> None:
        needed = ["boxes", "labels", *(["masks"] if self.has_mask() else [])]
        for name in needed:
            if targets is None or not all(name in t for t in targets):
                raise ValueError(f"Every element of `targets` should have a `{name}` key")

    def select_training_samples(
        self, proposals: list[Tensor], targets: list[Target] | None
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """Return sampled proposals (ground truth included), indices of their ground truth, labels, and the codes to predict."""
        self.check_targets(targets)
        assert targets is not None
        truths = [t["boxes"].to(proposals[0].dtype) for t in targets]
        proposals = [flambeau.cat((p, t)) for p, t in zip(proposals, truths)]
        matched, labels = self.assign_targets_to_proposals(proposals, truths, [t["labels"] for t in targets])
        aims = []
        for i, sampled in enumerate(self.subsample(labels)):
            proposals[i], labels[i], matched[i] = proposals[i][sampled], labels[i][sampled], matched[i][sampled]
            truth = truths[i] if truths[i].numel() else flambeau.zeros((1, 4), dtype=truths[i].dtype)
            aims.append(truth[matched[i]])
        return proposals, matched, labels, self.box_coder.encode(aims, proposals)

    def postprocess_detections(
        self,
        class_logits: Tensor,
        box_regression: Tensor,
        proposals: list[Tensor],
        image_shapes: Sequence[tuple[int, int]],
    ) -> list[Target]:
        classes = class_logits.shape[-1]
        counts = [p.shape[0] for p in proposals]
        decoded = self.box_coder.decode(box_regression, proposals).split(counts, 0)
        probabilities = F.softmax(class_logits, -1).split(counts, 0)
        result = []
        for boxes, scores, shape in zip(decoded, probabilities, image_shapes):
            boxes = box_ops.clip_boxes_to_image(boxes, shape)[:, 1:].reshape(-1, 4)  # class 0 is the background
            labels = flambeau.arange(classes).view(1, -1).expand_as(scores)[:, 1:].reshape(-1)
            scores = scores[:, 1:].reshape(-1)
            keep = flambeau.where(scores > self.score_thresh)[0]
            boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
            keep = box_ops.remove_small_boxes(boxes, min_size=1e-2)
            boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
            found = keep_best(boxes, scores, labels, self.nms_thresh, self.detections_per_img)
            result.append({name: found[name] for name in ("boxes", "labels", "scores")})
        return result

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: Sequence[tuple[int, int]],
        targets: list[Target] | None = None,
    ) -> tuple[list[Target], dict[str, Tensor]]:
        _check_dtypes(targets, self.has_keypoint())
        result: list[Target] = []
        losses: dict[str, Tensor] = {}
        matched: list[Tensor] = []
        labels: list[Tensor] = []
        aims: list[Tensor] = []
        if self.training:
            proposals, matched, labels, aims = self.select_training_samples(proposals, targets)
        logits, codes = self.box_predictor(self.box_head(self.box_roi_pool(features, proposals, image_shapes)))
        if self.training:
            losses["loss_classifier"], losses["loss_box_reg"] = fastrcnn_loss(logits, codes, labels, aims)
        else:
            result = self.postprocess_detections(logits, codes, proposals, image_shapes)
        if not (self.has_mask() or self.has_keypoint()):
            return result, losses
        boxes = [found["boxes"] for found in result]
        if self.training:  # masks and keypoints are learnt from objects only
            objects = [flambeau.where(label > 0)[0] for label in labels]
            boxes = [p[at] for p, at in zip(proposals, objects)]
            matched = [m[at] for m, at in zip(matched, objects)]
        if self.has_mask():
            self._predict_masks(features, boxes, image_shapes, targets, matched, result, losses)
        if self.has_keypoint():
            self._predict_keypoints(features, boxes, image_shapes, targets, matched, result, losses)
        return result, losses

    def _predict_masks(
        self, features: Any, boxes: Any, shapes: Any, targets: Any, matched: Any, result: Any, losses: Any
    ) -> None:
        assert self.mask_roi_pool is not None and self.mask_head is not None and self.mask_predictor is not None
        logits = self.mask_predictor(self.mask_head(self.mask_roi_pool(features, boxes, shapes)))
        if self.training:
            masks, labels = [t["masks"] for t in targets], [t["labels"] for t in targets]
            losses["loss_mask"] = maskrcnn_loss(logits, boxes, masks, labels, matched)
            return
        for found, mask in zip(result, maskrcnn_inference(logits, [r["labels"] for r in result])):
            found["masks"] = mask

    def _predict_keypoints(
        self, features: Any, boxes: Any, shapes: Any, targets: Any, matched: Any, result: Any, losses: Any
    ) -> None:
        pool, head, predictor = self.keypoint_roi_pool, self.keypoint_head, self.keypoint_predictor
        assert pool is not None and head is not None and predictor is not None
        logits = predictor(head(pool(features, boxes, shapes)))
        if self.training:
            losses["loss_keypoint"] = keypointrcnn_loss(logits, boxes, [t["keypoints"] for t in targets], matched)
            return
        for found, points, scores in zip(result, *keypointrcnn_inference(logits, boxes)):
            found["keypoints"], found["keypoints_scores"] = points, scores


def _check_dtypes(targets: list[Target] | None, keypoints: bool) -> None:
    floating = (flambeau.float32, flambeau.float64, flambeau.float16)
    for target in targets or []:
        if target["boxes"].dtype not in floating:
            raise TypeError(f"target boxes must of float type, instead got {target['boxes'].dtype}")
        if target["labels"].dtype is not flambeau.int64:
            raise TypeError(f"target labels must of int64 type, instead got {target['labels'].dtype}")
        if keypoints and target["keypoints"].dtype is not flambeau.float32:
            raise TypeError(f"target keypoints must of float type, instead got {target['keypoints'].dtype}")
