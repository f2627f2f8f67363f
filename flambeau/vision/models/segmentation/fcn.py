"""Fully convolutional networks (Long et al., 2015) on a dilated ResNet."""

from __future__ import annotations

from flambeau import nn
from flambeau.nn.modules import Sequential

from .._api import weights_enums
from ..resnet import ResNet50_Weights, ResNet101_Weights, resnet50, resnet101
from ._utils import _SimpleSegmentationModel, resnet_body, segmentation_builder

__all__ = ["FCN", "FCN_ResNet50_Weights", "FCN_ResNet101_Weights", "fcn_resnet50", "fcn_resnet101"]


class FCN(_SimpleSegmentationModel):
    """A fully convolutional network: called with images, it returns {"out": logits, "aux": logits}."""


class FCNHead(Sequential):
    """A 3x3 and a 1x1 convolution."""

    def __init__(self, in_channels: int, channels: int):
        width = in_channels // 4
        super().__init__(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(width, channels, 1),
        )


def _fcn_resnet(backbone: nn.Module, num_classes: int, aux: bool | None) -> FCN:
    """a fully convolutional network on a dilated ResNet."""
    body, width, aux_width = resnet_body(backbone, aux)
    aux_head = FCNHead(aux_width, num_classes) if aux else None
    return FCN(body, FCNHead(width, num_classes), aux_head)


FCN_ResNet50_Weights, FCN_ResNet101_Weights = weights_enums("FCN_ResNet50", "FCN_ResNet101")
_DILATED = [False, True, True]
fcn_resnet50 = segmentation_builder(
    "fcn_resnet50", _fcn_resnet, FCN_ResNet50_Weights, resnet50, ResNet50_Weights, replace_stride_with_dilation=_DILATED
)
fcn_resnet101 = segmentation_builder(
    "fcn_resnet101",
    _fcn_resnet,
    FCN_ResNet101_Weights,
    resnet101,
    ResNet101_Weights,
    replace_stride_with_dilation=_DILATED,
)
