"""SSDlite (Sandler et al., 2018): SSD with depthwise convolutions, on MobileNet V3."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from flambeau import Tensor, nn

from ...ops.misc import Conv2dNormActivation, Layer
from .._api import load_weights, model_builder, weights_enums
from .._utils import initialise
from ..mobilenetv3 import MobileNet_V3_Large_Weights, mobilenet_v3_large
from ._builders import settle
from ._utils import retrieve_out_channels
from .anchor_utils import DefaultBoxGenerator
from .backbone_utils import freeze_before, mobilenet_stages
from .ssd import SSD, SSDScoringHead

__all__ = ["SSDLite320_MobileNet_V3_Large_Weights", "ssdlite320_mobilenet_v3_large"]


def _normal_init(conv: nn.Module) -> None:
    initialise(conv, partial(nn.init.normal_, mean=0.0, std=0.03))


def _predictors(in_channels: Sequence[int], num_anchors: Sequence[int], columns: int, norm: Layer) -> Any:
    convs = nn.ModuleList()
    for width, anchors in zip(in_channels, num_anchors):
        depthwise = Conv2dNormActivation(
            width, width, kernel_size=3, groups=width, norm_layer=norm, activation_layer=nn.ReLU6
        )
        convs.append(nn.Sequential(depthwise, nn.Conv2d(width, columns * anchors, 1)))
    _normal_init(convs)
    return convs


def _extra_block(inputs: int, outputs: int, norm: Layer) -> nn.Module:
    layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.ReLU6)
    between = outputs // 2
    return nn.Sequential(
        layer(inputs, between, kernel_size=1),
        layer(between, between, kernel_size=3, stride=2, groups=between),
        layer(between, outputs, kernel_size=1),
    )


class SSDLiteClassificationHead(SSDScoringHead):
    """Compute class logits for each default box."""

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int], num_classes: int, norm_layer: Layer):
        super().__init__(_predictors(in_channels, num_anchors, num_classes, norm_layer), num_classes)


class SSDLiteRegressionHead(SSDScoringHead):
    """Compute box offsets for each default box."""

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int], norm_layer: Layer):
        super().__init__(_predictors(in_channels, num_anchors, 4, norm_layer), 4)


class SSDLiteHead(nn.Module):
    """The classification head and the regression head of SSDlite."""

    def __init__(self, in_channels: Sequence[int], num_anchors: Sequence[int], num_classes: int, norm_layer: Layer):
        super().__init__()
        self.classification_head = SSDLiteClassificationHead(in_channels, num_anchors, num_classes, norm_layer)
        self.regression_head = SSDLiteRegressionHead(in_channels, num_anchors, norm_layer)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        return {"bbox_regression": self.regression_head(x), "cls_logits": self.classification_head(x)}


class SSDLiteFeatureExtractorMobileNet(nn.Module):
    """MobileNet's feature map inside block C4, its last one, and four smaller ones."""

    def __init__(self, backbone: Any, c4_pos: int, norm_layer: Layer, width_mult: float = 1.0, min_depth: int = 16):
        super().__init__()
        if backbone[c4_pos].use_res_connect:
            raise ValueError("backbone[c4_pos].use_res_connect should be False")
        self.features = nn.Sequential(
            nn.Sequential(*backbone[:c4_pos], backbone[c4_pos].block[0]),
            nn.Sequential(backbone[c4_pos].block[1:], *backbone[c4_pos + 1 :]),
        )
        extra = nn.ModuleList()
        width = backbone[-1].out_channels
        for out in (512, 256, 256, 128):
            depth = max(min_depth, int(out * width_mult))
            extra.append(_extra_block(width, depth, norm_layer))
            width = depth
        _normal_init(extra)
        self.extra = extra

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        maps = []
        for block in (*self.features, *self.extra):
            x = block(x)
            maps.append(x)
        return OrderedDict((str(i), m) for i, m in enumerate(maps))


SSDLite320_MobileNet_V3_Large_Weights: Any
(SSDLite320_MobileNet_V3_Large_Weights,) = weights_enums("SSDLite320_MobileNet_V3_Large")


@model_builder(SSDLite320_MobileNet_V3_Large_Weights, "COCO_V1", MobileNet_V3_Large_Weights)
def ssdlite320_mobilenet_v3_large(
    *,
    weights: Any = None,
    progress: bool = True,
    num_classes: int | None = None,
    weights_backbone: Any = MobileNet_V3_Large_Weights.IMAGENET1K_V1,
    trainable_backbone_layers: int | None = None,
    norm_layer: Layer | None = None,
    **kwargs: Any,
) -> SSD:
    """SSDlite on a MobileNet V3, for images of 320x320. The backbone is pretrained unless `weights_backbone` is None."""
    if "size" in kwargs:
        warnings.warn("The size of the model is already fixed; ignoring the parameter.", stacklevel=3)
        kwargs.pop("size")
    start, num_classes = settle(weights, progress, num_classes, weights_backbone, trainable_backbone_layers)
    trainable = start.layers_to_train(6, 6)
    norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
    # Without pretrained weights to fit, the tail is reduced as in the paper.
    backbone: Any = mobilenet_v3_large(
        weights=start.weights, progress=progress, norm_layer=norm, reduced_tail=start.weights is None
    )
    if start.weights is None:
        _normal_init(backbone)
    stages = mobilenet_stages(backbone.features)
    freeze_before(backbone.features, stages, trainable)
    body = SSDLiteFeatureExtractorMobileNet(backbone.features, stages[-2], norm)
    size = (320, 320)
    anchors = DefaultBoxGenerator([[2, 3] for _ in range(6)], min_ratio=0.2, max_ratio=0.95)
    widths = retrieve_out_channels(body, size)
    head = SSDLiteHead(widths, anchors.num_anchors_per_location(), num_classes, norm)
    defaults = {"score_thresh": 0.001, "nms_thresh": 0.55, "detections_per_img": 300, "topk_candidates": 300}
    options: dict[str, Any] = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], **defaults, **kwargs}
    return load_weights(SSD(body, anchors, size, num_classes, head=head, **options), weights, progress)
