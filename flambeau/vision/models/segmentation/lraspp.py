"""LR-ASPP: the light segmentation head of MobileNet V3 (Howard et al., 2019)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flambeau import Tensor, nn

from .._api import expect_value, load_weights, model_builder, weights_enums
from ..mobilenetv3 import MobileNet_V3_Large_Weights, mobilenet_v3_large
from ._utils import mobilenet_body, resized

__all__ = ["LRASPP", "LRASPP_MobileNet_V3_Large_Weights", "lraspp_mobilenet_v3_large"]


class LRASPPHead(nn.Module):
    """Head that gates the coarse feature map by its averages and adds it to the fine one."""

    def __init__(self, low_channels: int, high_channels: int, num_classes: int, inter_channels: int):
        super().__init__()
        self.cbr = nn.Sequential(
            nn.Conv2d(high_channels, inter_channels, 1, bias=False),
            nn.BatchNorm2d(inter_channels),
            nn.ReLU(inplace=True),
        )
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(high_channels, inter_channels, 1, bias=False), nn.Sigmoid()
        )
        self.low_classifier = nn.Conv2d(low_channels, num_classes, 1)
        self.high_classifier = nn.Conv2d(inter_channels, num_classes, 1)

    def forward(self, input: dict[str, Tensor]) -> Tensor:
        low, high = input["low"], input["high"]
        x = resized(self.cbr(high) * self.scale(high), low.shape[-2:])
        return self.low_classifier(low) + self.high_classifier(x)


class LRASPP(nn.Module):
    """A backbone with feature maps "low" and "high", and the head; called with images, it returns {"out": logits}."""

    def __init__(
        self, backbone: nn.Module, low_channels: int, high_channels: int, num_classes: int, inter_channels: int = 128
    ):
        super().__init__()
        self.backbone = backbone
        self.classifier = LRASPPHead(low_channels, high_channels, num_classes, inter_channels)

    def forward(self, input: Tensor) -> dict[str, Tensor]:
        return OrderedDict(out=resized(self.classifier(self.backbone(input)), input.shape[-2:]))


(LRASPP_MobileNet_V3_Large_Weights,) = weights_enums("LRASPP_MobileNet_V3_Large")


@model_builder(LRASPP_MobileNet_V3_Large_Weights, "COCO_WITH_VOC_LABELS_V1", MobileNet_V3_Large_Weights)
def lraspp_mobilenet_v3_large(
    *,
    weights: Any = None,
    progress: bool = True,
    num_classes: int | None = None,
    weights_backbone: Any = MobileNet_V3_Large_Weights.IMAGENET1K_V1,
    **kwargs: Any,
) -> LRASPP:
    """LR-ASPP on a dilated MobileNet V3. The backbone is pretrained unless `weights_backbone` is None."""
    if kwargs.pop("aux_loss", False):
        raise NotImplementedError("This model does not use auxiliary loss")
    if weights is not None:
        weights_backbone = None
        num_classes = expect_value("num_classes", num_classes, len(weights.meta["categories"]))
    body, high, low = mobilenet_body(mobilenet_v3_large(weights=weights_backbone, dilated=True), "low", "high")
    model = LRASPP(body, low, high, 21 if num_classes is None else num_classes)
    return load_weights(model, weights, progress)
