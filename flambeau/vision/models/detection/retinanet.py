"""RetinaNet (Lin et al., 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn

from ...ops import boxes as box_ops
from ...ops._losses import sigmoid_focal_loss
from ...ops.feature_pyramid_network import LastLevelP6P7
from ...ops.misc import Conv2dNormActivation, Layer
from .._api import weights_enums
from .._utils import initialise
from ..resnet import ResNet50_Weights
from ._builders import Start, detector, resnet50_body
from ._single_stage import SingleStageDetector, Target, detections, level_candidates
from ._utils import BoxCoder, Matcher, box_loss, check_backbone, sum_of
from .anchor_utils import AnchorGenerator
from .rpn import permute_and_flatten
from .transform import GeneralizedRCNNTransform

__all__ = [
    "RetinaNet", "RetinaNet_ResNet50_FPN_V2_Weights", "RetinaNet_ResNet50_FPN_Weights", "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2",
]  # fmt: skip


def _default_anchorgen() -> AnchorGenerator:
    sizes = tuple((x, int(x * 2 ** (1.0 / 3)), int(x * 2 ** (2.0 / 3))) for x in (32, 64, 128, 256, 512))
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


def init_convs(module: nn.Module) -> None:
    initialise(module, partial(nn.init.normal_, std=0.01))


class _ConvStack(nn.Module):
    """Four convolutions, under the name `conv`."""

    _version = 2

    def __init__(self, in_channels: int, norm_layer: Layer | None, fill: bool = True):
        super().__init__()
        self.conv = nn.Sequential(
            *(Conv2dNormActivation(in_channels, in_channels, norm_layer=norm_layer) for _ in range(4))
        )
        if fill:
            init_convs(self.conv)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, local_metadata: dict, *rest: Any) -> None:
        if (local_metadata.get("version") or 1) < 2:  # convolutions and activations used to alternate
            for i in range(4):
                for kind in ("weight", "bias"):
                    old = f"{prefix}conv.{2 * i}.{kind}"
                    if old in state_dict:
                        state_dict[f"{prefix}conv.{i}.0.{kind}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class RetinaNetClassificationHead(_ConvStack):
    """Compute class logits for each anchor."""

    def __init__(
        self,
        in_channels: int,
        num_anchors: int,
        num_classes: int,
        prior_probability: float = 0.01,
        norm_layer: Layer | None = None,
    ):
        super().__init__(in_channels, norm_layer)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, kernel_size=3, stride=1, padding=1)
        nn.init.normal_(self.cls_logits.weight, std=0.01)
        nn.init.constant_(self.cls_logits.bias, -math.log((1 - prior_probability) / prior_probability))
        self.num_classes, self.num_anchors = num_classes, num_anchors

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], matched_idxs: list[Tensor]
    ) -> Tensor:
        losses = []
        for target, logits, matched in zip(targets, head_outputs["cls_logits"], matched_idxs):
            objects = matched >= 0
            wanted = flambeau.zeros_like(logits)
            wanted[objects, target["labels"][matched[objects]]] = 1.0
            counted = matched != Matcher.BETWEEN_THRESHOLDS
            loss = sigmoid_focal_loss(logits[counted], wanted[counted], reduction="sum")
            losses.append(loss / max(1, int(objects.sum())))
        return sum_of(losses) / len(targets)

    def forward(self, x: list[Tensor]) -> Tensor:
        return flambeau.cat([permute_and_flatten(self.cls_logits(self.conv(f)), self.num_classes) for f in x], dim=1)


class RetinaNetRegressionHead(_ConvStack):
    """Compute box offsets for each anchor."""

    def __init__(self, in_channels: int, num_anchors: int, norm_layer: Layer | None = None):
        super().__init__(in_channels, norm_layer, fill=False)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=3, stride=1, padding=1)
        init_convs(self.bbox_reg)
        init_convs(self.conv)
        self.box_coder = BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self._loss_type = "l1"

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], anchors: list[Tensor], matched_idxs: list[Tensor]
    ) -> Tensor:
        losses = []
        for target, codes, boxes, matched in zip(targets, head_outputs["bbox_regression"], anchors, matched_idxs):
            objects = flambeau.where(matched >= 0)[0]
            truths = target["boxes"][matched[objects]]
            loss = box_loss(self._loss_type, self.box_coder, boxes[objects], truths, codes[objects])
            losses.append(loss / max(1, objects.numel()))
        return sum_of(losses) / max(1, len(targets))

    def forward(self, x: list[Tensor]) -> Tensor:
        return flambeau.cat([permute_and_flatten(self.bbox_reg(self.conv(f)), 4) for f in x], dim=1)


class RetinaNetHead(nn.Module):
    """The classification and regression heads of RetinaNet."""

    def __init__(self, in_channels: int, num_anchors: int, num_classes: int, norm_layer: Layer | None = None):
        super().__init__()
        self.classification_head = RetinaNetClassificationHead(
            in_channels, num_anchors, num_classes, norm_layer=norm_layer
        )
        self.regression_head = RetinaNetRegressionHead(in_channels, num_anchors, norm_layer=norm_layer)

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], anchors: list[Tensor], matched_idxs: list[Tensor]
    ) -> dict[str, Tensor]:
        return {
            "classification": self.classification_head.compute_loss(targets, head_outputs, matched_idxs),
            "bbox_regression": self.regression_head.compute_loss(targets, head_outputs, anchors, matched_idxs),
        }

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        return {"cls_logits": self.classification_head(x), "bbox_regression": self.regression_head(x)}


class RetinaNet(SingleStageDetector):
    """Detector with anchors and the focal loss. Called like FasterRCNN."""

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
        proposal_matcher: Matcher | None = None,
        score_thresh: float = 0.05,
        nms_thresh: float = 0.5,
        detections_per_img: int = 300,
        fg_iou_thresh: float = 0.5,
        bg_iou_thresh: float = 0.4,
        topk_candidates: int = 1000,
        **kwargs: Any,
    ):
        super().__init__()
        check_backbone(backbone)
        self.backbone = backbone
        anchors = anchor_generator or _default_anchorgen()
        self.anchor_generator = anchors
        self.head = head or RetinaNetHead(backbone.out_channels, anchors.num_anchors_per_location()[0], num_classes)
        self.proposal_matcher = proposal_matcher or Matcher(
            fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True
        )
        self.box_coder = BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self.transform = GeneralizedRCNNTransform(min_size, max_size, image_mean, image_std, **kwargs)
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], anchors: list[Tensor], counts: list[int]
    ) -> dict[str, Tensor]:
        matched = []
        for boxes, target in zip(anchors, targets):
            if target["boxes"].numel() == 0:
                matched.append(flambeau.full((boxes.shape[0],), -1, dtype=flambeau.int64))
            else:
                matched.append(self.proposal_matcher(box_ops.box_iou(target["boxes"], boxes)))
        return self.head.compute_loss(targets, head_outputs, anchors, matched)

    def detect(
        self, head_outputs: dict[str, Tensor], anchors: list[Tensor], shapes: list[tuple[int, int]], counts: list[int]
    ) -> list[Target]:
        found = []
        for logits, codes, boxes, shape in zip(*head_outputs.values(), anchors, shapes):
            levels = [
                level_candidates(
                    s.sigmoid(), c, b, self.box_coder.decode_single, shape, self.score_thresh, self.topk_candidates
                )
                for s, c, b in zip(logits.split(counts), codes.split(counts), boxes.split(counts))
            ]
            found.append(detections(levels, self.nms_thresh, self.detections_per_img))
        return found


RetinaNet_ResNet50_FPN_Weights, RetinaNet_ResNet50_FPN_V2_Weights = weights_enums(
    "RetinaNet_ResNet50_FPN", "RetinaNet_ResNet50_FPN_V2"
)


def p6p7_body(start: Start, width: int = 256, frozen: bool = True) -> Any:
    """Return a ResNet-50 with a pyramid of its last three feature maps and two more computed from the one of this width."""
    more: dict[str, Any] = {"returned_layers": [2, 3, 4], "extra_blocks": partial(LastLevelP6P7, width, 256)}
    return resnet50_body(start, frozen, **more)


@detector(RetinaNet_ResNet50_FPN_Weights, ResNet50_Weights, zero_eps=True)
def retinanet_resnet50_fpn(start: Start, num_classes: int, **kwargs: Any) -> RetinaNet:
    """RetinaNet on a ResNet-50 with a feature pyramid."""
    return RetinaNet(p6p7_body(start), num_classes, **kwargs)


@detector(RetinaNet_ResNet50_FPN_V2_Weights, ResNet50_Weights, pretrained=None)
def retinanet_resnet50_fpn_v2(start: Start, num_classes: int, **kwargs: Any) -> RetinaNet:
    """RetinaNet on a ResNet-50 with a feature pyramid, by the improved recipe of Zhang et al. (2020)."""
    body = p6p7_body(start, 2048, frozen=False)
    anchors = _default_anchorgen()
    norm = partial(nn.GroupNorm, 32)
    head = RetinaNetHead(body.out_channels, anchors.num_anchors_per_location()[0], num_classes, norm_layer=norm)
    head.regression_head._loss_type = "giou"
    return RetinaNet(body, num_classes, anchor_generator=anchors, head=head, **kwargs)
