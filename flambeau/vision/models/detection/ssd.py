"""SSD (Liu et al., 2016)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from ...ops import boxes as box_ops
from .._api import weights_enums
from .._utils import initialise
from ..vgg import VGG16_Weights, vgg16
from ._builders import Start, detector
from ._single_stage import SingleStageDetector, Target
from ._utils import BoxCoder, SSDMatcher, keep_best, retrieve_out_channels
from .anchor_utils import DefaultBoxGenerator
from .backbone_utils import freeze_before
from .rpn import permute_and_flatten
from .transform import GeneralizedRCNNTransform

__all__ = ["SSD300_VGG16_Weights", "ssd300_vgg16"]


class SSDScoringHead(nn.Module):
    """Base of SSD's heads: a predictor per feature map; their outputs, `num_columns` per anchor, are concatenated."""

    def __init__(self, module_list: nn.Module, num_columns: int):
        super().__init__()
        self.module_list = module_list
        self.num_columns = num_columns

    def forward(self, x: list[Tensor]) -> Tensor:
        outputs = [module(features) for module, features in zip(self.module_list, x)]
        return flambeau.cat([permute_and_flatten(out, self.num_columns) for out in outputs], dim=1)


def _predictors(in_channels: Sequence[int], num_anchors: Sequence[int], columns: int) -> Any:
    convs = nn.ModuleList()
    for width, anchors in zip(in_channels, num_anchors):
        convs.append(nn.Conv2d(width, columns * anchors, kernel_size=3, padding=1))
    initialise(convs, nn.init.xavier_uniform_)
    return convs


class SSDClassificationHead(SSDScoringHead):
    """Compute class logits for each default box."""

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int], num_classes: int):
        super().__init__(_predictors(in_channels, num_anchors, num_classes), num_classes)


class SSDRegressionHead(SSDScoringHead):
    """Compute box offsets for each default box."""

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int]):
        super().__init__(_predictors(in_channels, num_anchors, 4), 4)


class SSDHead(nn.Module):
    """The classification and regression heads of SSD."""

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int], num_classes: int):
        super().__init__()
        self.classification_head: nn.Module = SSDClassificationHead(in_channels, num_anchors, num_classes)
        self.regression_head: nn.Module = SSDRegressionHead(in_channels, num_anchors)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        return {"bbox_regression": self.regression_head(x), "cls_logits": self.classification_head(x)}


class SSD(SingleStageDetector):
    """Detector with default boxes of several feature maps, for images of one size; mines hard negatives. Called like FasterRCNN."""

    def __init__(
        self,
        backbone: Any,
        anchor_generator: DefaultBoxGenerator,
        size: tuple[int, int],
        num_classes: int,
        image_mean: Sequence[float] | None = None,
        image_std: Sequence[float] | None = None,
        head: nn.Module | None = None,
        score_thresh: float = 0.01,
        nms_thresh: float = 0.45,
        detections_per_img: int = 200,
        iou_thresh: float = 0.5,
        topk_candidates: int = 400,
        positive_fraction: float = 0.25,
        **kwargs: Any,
    ):
        super().__init__()
        self.backbone = backbone
        self.anchor_generator = anchor_generator
        self.box_coder = BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))
        if head is None:
            widths = getattr(backbone, "out_channels", None) or retrieve_out_channels(backbone, size)
            anchors = anchor_generator.num_anchors_per_location()
            if len(widths) != len(anchors):
                raise ValueError(
                    f"The length of the output channels from the backbone ({len(widths)}) do not match the length of the "
                    f"anchor generator aspect ratios ({len(anchors)})"
                )
            head = SSDHead(widths, anchors, num_classes)
        self.head = head
        self.proposal_matcher = SSDMatcher(iou_thresh)
        options = {"size_divisible": 1, "fixed_size": size, **kwargs}
        self.transform = GeneralizedRCNNTransform(min(size), max(size), image_mean, image_std, **options)
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img
        self.topk_candidates = topk_candidates
        self.neg_to_pos_ratio = (1.0 - positive_fraction) / positive_fraction

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], anchors: list[Tensor], counts: list[int]
    ) -> dict[str, Tensor]:
        logits, total, regression, labels = head_outputs["cls_logits"], 0, [], []
        for target, codes, scores, boxes in zip(targets, head_outputs["bbox_regression"], logits, anchors):
            matched = flambeau.full((boxes.shape[0],), -1, dtype=flambeau.int64)
            if target["boxes"].numel():
                matched = self.proposal_matcher(box_ops.box_iou(target["boxes"], boxes))
            objects = flambeau.where(matched >= 0)[0]
            at = matched[objects]
            total += at.numel()
            wanted = self.box_coder.encode_single(target["boxes"][at], boxes[objects])
            regression.append(F.smooth_l1_loss(codes[objects], wanted, reduction="sum"))
            label = flambeau.zeros((scores.shape[0],), dtype=target["labels"].dtype)
            label[objects] = target["labels"][at]
            labels.append(label)
        truth = flambeau.stack(labels)
        each = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), truth.view(-1), reduction="none").view(truth.shape)
        positive = truth > 0
        most = self.neg_to_pos_ratio * positive.sum(1, keepdim=True)  # the hardest negatives, so many per object
        order = each.detach().masked_fill(positive, -float("inf")).sort(1, descending=True)[1]
        negative = order.sort(1)[1] < most
        count = max(1, total)
        return {
            "bbox_regression": flambeau.stack(regression).sum() / count,
            "classification": (each[positive].sum() + each[negative].sum()) / count,
        }

    def detect(
        self, head_outputs: dict[str, Tensor], anchors: list[Tensor], shapes: list[tuple[int, int]], counts: list[int]
    ) -> list[Target]:
        found = []
        probabilities = F.softmax(head_outputs["cls_logits"], dim=-1)
        for codes, scores, boxes, shape in zip(head_outputs["bbox_regression"], probabilities, anchors, shapes):
            boxes = box_ops.clip_boxes_to_image(self.box_coder.decode_single(codes, boxes), shape)
            kept: list[list[Tensor]] = [[], [], []]
            for label in range(1, scores.shape[-1]):
                score = scores[:, label]
                above = flambeau.where(score > self.score_thresh)[0]
                best, order = score[above].topk(flambeau.sym_min(self.topk_candidates, above.shape[0]))
                for parts, part in zip(kept, (boxes[above[order]], best, flambeau.full_like(order, label))):
                    parts.append(part)
            all_boxes, all_scores, all_labels = (flambeau.cat(parts) for parts in kept)
            found.append(keep_best(all_boxes, all_scores, all_labels, self.nms_thresh, self.detections_per_img))
        return found


def _make_extra_layer(*rows: tuple[int, int, int, dict[str, Any]]) -> Any:
    blocks = nn.ModuleList()
    for inputs, between, outputs, how in rows:
        second = nn.Conv2d(between, outputs, **how)
        first = nn.Conv2d(inputs, between, kernel_size=1)
        blocks.append(nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True)))
    return blocks


class SSDFeatureExtractorVGG(nn.Module):
    """VGG-16 with its fully connected layers converted to dilated convolutions, and further smaller feature maps."""

    def __init__(self, backbone: Any, highres: bool):
        super().__init__()
        pools = [i for i, layer in enumerate(backbone) if isinstance(layer, nn.MaxPool2d)]
        backbone[pools[2]].ceil_mode = True  # 75 -> 38, as in the paper
        self.scale_weight = nn.Parameter(flambeau.ones(512) * 20)
        self.features = nn.Sequential(*backbone[: pools[3]])
        halve = {"kernel_size": 3, "padding": 1, "stride": 2}
        last = {"kernel_size": 3}
        rows = [(1024, 256, 512, halve), (512, 128, 256, halve)]
        rows += [(256, 128, 256, halve if highres else last), (256, 128, 256, last)]
        rows += [(256, 128, 256, {"kernel_size": 4})] if highres else []
        extra = _make_extra_layer(*rows)
        initialise(extra, nn.init.xavier_uniform_)
        fc = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=False),
            nn.Conv2d(512, 1024, kernel_size=3, padding=6, dilation=6),
            nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, kernel_size=1),
            nn.ReLU(inplace=True),
        )
        initialise(fc, nn.init.xavier_uniform_)
        extra.insert(0, nn.Sequential(*backbone[pools[3] : -1], fc))
        self.extra = extra

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.features(x)
        maps = [self.scale_weight.view(1, -1, 1, 1) * F.normalize(x)]
        for block in self.extra:
            x = block(x)
            maps.append(x)
        return OrderedDict((str(i), m) for i, m in enumerate(maps))


SSD300_VGG16_Weights: Any
(SSD300_VGG16_Weights,) = weights_enums("SSD300_VGG16")


@detector(SSD300_VGG16_Weights, VGG16_Weights, "IMAGENET1K_FEATURES")
def ssd300_vgg16(start: Start, num_classes: int, **kwargs: Any) -> SSD:
    """SSD on a VGG-16, for images of 300x300."""
    trainable = start.layers_to_train(5, 4)
    features: Any = vgg16(weights=start.weights, progress=start.progress).features
    stages = [0, *(i for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d))][:-1]
    freeze_before(features, stages, trainable)
    anchors = DefaultBoxGenerator(
        [[2], [2, 3], [2, 3], [2, 3], [2], [2]],
        scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
        steps=[8, 16, 32, 64, 100, 300],
    )
    # The published backbone was trained on images of 0 to 255 with these means taken away.
    options = {"image_mean": [0.48235, 0.45882, 0.40784], "image_std": [1.0 / 255.0] * 3, **kwargs}
    return SSD(SSDFeatureExtractorVGG(features, False), anchors, (300, 300), num_classes, **options)
