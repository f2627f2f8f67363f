"""Base class and builder of segmentation models."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import Tensor, nn
from flambeau.nn import functional as F

from .._api import expect_value, load_weights, model_builder
from .._utils import IntermediateLayerGetter


def resized(x: Tensor, size: list[int]) -> Tensor:
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class _SimpleSegmentationModel(nn.Module):
    """Classifier of every location of a backbone's feature map, resized to the image; "aux" from an earlier map if there is one."""

    def __init__(self, backbone: nn.Module, classifier: nn.Module, aux_classifier: nn.Module | None = None):
        super().__init__()
        self.backbone = backbone
        self.classifier = classifier
        self.aux_classifier = aux_classifier

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        size, features = x.shape[-2:], self.backbone(x)
        result = OrderedDict(out=resized(self.classifier(features["out"]), size))
        if self.aux_classifier is not None:
            result["aux"] = resized(self.aux_classifier(features["aux"]), size)
        return result


def resnet_body(backbone: nn.Module, aux: bool | None) -> tuple[IntermediateLayerGetter, int, int]:
    """Return a ResNet's layers as {"out", "aux"}, and their widths."""
    layers = {"layer3": "aux", "layer4": "out"} if aux else {"layer4": "out"}
    return IntermediateLayerGetter(backbone, layers), 2048, 1024


def mobilenet_body(
    backbone: nn.Module, early: str | None, late: str = "out"
) -> tuple[IntermediateLayerGetter, int, int]:
    """Return a MobileNet's last feature map and the one three reductions earlier as {"out", "aux"}, and their widths."""
    features: Any = backbone.features
    stages = [0, *(i for i, block in enumerate(features) if getattr(block, "_is_cn", False)), len(features) - 1]
    last, first = stages[-1], stages[-4]
    layers = {str(last): late}
    if early is not None:
        layers[str(first)] = early
    return IntermediateLayerGetter(features, layers), features[last].out_channels, features[first].out_channels


def segmentation_builder(
    name: str, make: Callable[..., nn.Module], weights: Any, make_backbone: Any, backbone: Any, **options: Any
) -> Callable[..., nn.Module]:
    """Return the builder of a model that is `make(backbone, num_classes, aux_loss)`; `options` go to the backbone's builder."""

    def build(
        *,
        weights: Any = None,
        progress: bool = True,
        num_classes: int | None = None,
        aux_loss: bool | None = None,
        weights_backbone: Any = backbone.IMAGENET1K_V1,
        **kwargs: Any,
    ) -> nn.Module:
        if weights is not None:
            weights_backbone = None
            num_classes = expect_value("num_classes", num_classes, len(weights.meta["categories"]))
            aux_loss = expect_value("aux_loss", aux_loss, True)
        body = make_backbone(weights=weights_backbone, **options)
        return load_weights(make(body, 21 if num_classes is None else num_classes, aux_loss), weights, progress)

    build.__name__ = build.__qualname__ = name
    build.__module__ = sys._getframe(1).f_globals["__name__"]
    build.__doc__ = f"{name}: {make.__doc__} The backbone is pretrained unless `weights_backbone` is None."
    return model_builder(weights, "COCO_WITH_VOC_LABELS_V1", backbone)(build)
