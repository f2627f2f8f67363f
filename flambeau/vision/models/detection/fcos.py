"""FCOS (Tian et al., 2019): detection with one anchor per location, without sizes to choose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from ...ops._losses import generalized_box_iou_loss, sigmoid_focal_loss
from ...ops.misc import Layer
from .._api import weights_enums
from ..resnet import ResNet50_Weights
from ._builders import Start, detector
from ._single_stage import SingleStageDetector, Target, detections, level_candidates
from ._utils import BoxLinearCoder, check_backbone
from .anchor_utils import AnchorGenerator
from .retinanet import init_convs, p6p7_body
from .rpn import permute_and_flatten
from .transform import GeneralizedRCNNTransform

__all__ = ["FCOS", "FCOS_ResNet50_FPN_Weights", "fcos_resnet50_fpn"]


def _conv_stack(channels: int, count: int, norm_layer: Layer | None) -> Any:
    norm = norm_layer or partial(nn.GroupNorm, 32)
    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [
            nn.Conv2d(channels, channels, kernel_size=3, stride=1, padding=1, bias=True),
            norm(channels),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class FCOSClassificationHead(nn.Module):
    """Compute class logits for each location."""

    def __init__(
        self,
        in_channels: int,
        num_anchors: int,
        num_classes: int,
        num_convs: int = 4,
        prior_probability: float = 0.01,
        norm_layer: Layer | None = None,
    ):
        super().__init__()
        self.num_classes, self.num_anchors = num_classes, num_anchors
        self.conv = _conv_stack(in_channels, num_convs, norm_layer)
        init_convs(self.conv)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, kernel_size=3, stride=1, padding=1)
        nn.init.normal_(self.cls_logits.weight, std=0.01)
        nn.init.constant_(self.cls_logits.bias, -math.log((1 - prior_probability) / prior_probability))

    def forward(self, x: list[Tensor]) -> Tensor:
        return flambeau.cat([permute_and_flatten(self.cls_logits(self.conv(f)), self.num_classes) for f in x], dim=1)


class FCOSRegressionHead(nn.Module):
    """Compute distances to the sides of the box, and the centerness of each location."""

    def __init__(self, in_channels: int, num_anchors: int, num_convs: int = 4, norm_layer: Layer | None = None):
        super().__init__()
        self.conv = _conv_stack(in_channels, num_convs, norm_layer)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=3, stride=1, padding=1)
        self.bbox_ctrness = nn.Conv2d(in_channels, num_anchors * 1, kernel_size=3, stride=1, padding=1)
        for layer in (self.bbox_reg, self.bbox_ctrness, self.conv):
            init_convs(layer)

    def forward(self, x: list[Tensor]) -> tuple[Tensor, Tensor]:
        shared = [self.conv(f) for f in x]
        boxes = [permute_and_flatten(F.relu(self.bbox_reg(f)), 4) for f in shared]
        centres = [permute_and_flatten(self.bbox_ctrness(f), 1) for f in shared]
        return flambeau.cat(boxes, dim=1), flambeau.cat(centres, dim=1)


class FCOSHead(nn.Module):
    """The classification and regression heads of FCOS, with their losses."""

    def __init__(self, in_channels: int, num_anchors: int, num_classes: int, num_convs: int = 4):
        super().__init__()
        self.box_coder = BoxLinearCoder(normalize_by_size=True)
        self.classification_head = FCOSClassificationHead(in_channels, num_anchors, num_classes, num_convs)
        self.regression_head = FCOSRegressionHead(in_channels, num_anchors, num_convs)

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], anchors: list[Tensor], matched_idxs: list[Tensor]
    ) -> dict[str, Tensor]:
        logits, codes, centres = (
            head_outputs["cls_logits"],
            head_outputs["bbox_regression"],
            head_outputs["bbox_ctrness"],
        )
        labels, truths = [], []
        for target, matched in zip(targets, matched_idxs):
            if len(target["labels"]) == 0:
                labels.append(flambeau.full((len(matched),), -1, dtype=flambeau.int64))
                truths.append(target["boxes"].new_zeros((len(matched), 4)))
                continue
            at = matched.clip(min=0)
            labels.append(target["labels"][at].masked_fill(matched < 0, -1))
            truths.append(target["boxes"][at])
        label, truth, boxes = flambeau.stack(labels), flambeau.stack(truths), flambeau.stack(anchors)
        objects = label >= 0
        count = max(1, int(objects.sum()))
        wanted = flambeau.zeros_like(logits)
        wanted[objects, label[objects]] = 1.0
        decoded = self.box_coder.decode(codes, boxes)
        left, top, right, bottom = self.box_coder.encode(boxes, truth)[objects].unbind(-1)
        across = flambeau.minimum(left, right) / flambeau.maximum(left, right)
        along = flambeau.minimum(top, bottom) / flambeau.maximum(top, bottom)
        central = F.binary_cross_entropy_with_logits(
            centres.squeeze(dim=2)[objects], flambeau.sqrt(across * along), reduction="sum"
        )
        return {
            "classification": sigmoid_focal_loss(logits, wanted, reduction="sum") / count,
            "bbox_regression": generalized_box_iou_loss(decoded[objects], truth[objects], reduction="sum") / count,
            "bbox_ctrness": central / count,
        }

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        logits = self.classification_head(x)
        boxes, centres = self.regression_head(x)
        return {"cls_logits": logits, "bbox_regression": boxes, "bbox_ctrness": centres}


class FCOS(SingleStageDetector):
    """Detector in which every location predicts the box around it. Called like FasterRCNN."""

    def __init__(
        self,
        backbone: Any,
        num_classes: int,
        min_size: int | Sequence[int] = 800,
        max_size: int = 1333,
        image_mean: Sequence[float] | None = None,
        image_std: Sequence[float] | None = None,
        anchor_generator: AnchorGenerator | None = None,
        head: nn.Module | None = None,
        center_sampling_radius: float = 1.5,
        score_thresh: float = 0.2,
        nms_thresh: float = 0.6,
        detections_per_img: int = 100,
        topk_candidates: int = 1000,
        **kwargs: Any,
    ):
        super().__init__()
        check_backbone(backbone)
        self.backbone = backbone
        anchors = anchor_generator or AnchorGenerator(((8,), (16,), (32,), (64,), (128,)), ((1.0,),) * 5)
        self.anchor_generator = anchors
        per_place = anchors.num_anchors_per_location()[0]
        if per_place != 1:
            raise ValueError(f"anchor_generator.num_anchors_per_location()[0] should be 1 instead of {per_place}")
        self.head = head or FCOSHead(backbone.out_channels, per_place, num_classes)
        self.box_coder = BoxLinearCoder(normalize_by_size=True)
        self.transform = GeneralizedRCNNTransform(min_size, max_size, image_mean, image_std, **kwargs)
        self.center_sampling_radius = center_sampling_radius
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def _match(self, anchors: Tensor, truths: Tensor, counts: list[int]) -> Tensor:
        """Match each location to the smallest ground-truth box around it whose size fits its level; -1 for none."""
        if truths.numel() == 0:
            return flambeau.full((anchors.shape[0],), -1, dtype=flambeau.int64)
        middle, places = (truths[:, :2] + truths[:, 2:]) / 2, (anchors[:, :2] + anchors[:, 2:]) / 2
        size = anchors[:, 2] - anchors[:, 0]
        away = (places[:, None, :] - middle[None, :, :]).abs().max(dim=2)[0]
        fits = away < self.center_sampling_radius * size[:, None]
        near, far = places[:, None, :] - truths[None, :, :2], truths[None, :, 2:] - places[:, None, :]
        distances = flambeau.cat([near, far], dim=2)
        lower, upper = size * 4, size * 8
        lower[: counts[0]] = 0
        upper[-counts[-1] :] = float("inf")
        largest = distances.max(dim=2)[0]
        fits &= (distances.min(dim=2)[0] > 0) & (largest > lower[:, None]) & (largest < upper[:, None])
        areas = (truths[:, 2] - truths[:, 0]) * (truths[:, 3] - truths[:, 1])
        rank, matched = (fits.to(truths.dtype) * (1e8 - areas[None, :])).max(dim=1)
        return matched.masked_fill(rank < 1e-5, -1)

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], anchors: list[Tensor], counts: list[int]
    ) -> dict[str, Tensor]:
        matched = [self._match(boxes, target["boxes"], counts) for boxes, target in zip(anchors, targets)]
        return self.head.compute_loss(targets, head_outputs, anchors, matched)

    def detect(
        self, head_outputs: dict[str, Tensor], anchors: list[Tensor], shapes: list[tuple[int, int]], counts: list[int]
    ) -> list[Target]:
        found = []
        for logits, codes, centres, boxes, shape in zip(*head_outputs.values(), anchors, shapes):
            scores = flambeau.sqrt(logits.sigmoid() * centres.sigmoid())
            levels = [
                level_candidates(s, c, b, self.box_coder.decode, shape, self.score_thresh, self.topk_candidates)
                for s, c, b in zip(scores.split(counts), codes.split(counts), boxes.split(counts))
            ]
            found.append(detections(levels, self.nms_thresh, self.detections_per_img))
        return found


(FCOS_ResNet50_FPN_Weights,) = weights_enums("FCOS_ResNet50_FPN")


@detector(FCOS_ResNet50_FPN_Weights, ResNet50_Weights)
def fcos_resnet50_fpn(start: Start, num_classes: int, **kwargs: Any) -> FCOS:
    """FCOS on a ResNet-50 with a feature pyramid."""
    return FCOS(p6p7_body(start), num_classes, **kwargs)
