"""DeepLab V3 (Chen et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import flambeau
from flambeau import Tensor, nn
from flambeau.nn.modules import Sequential

from .._api import weights_enums
from ..mobilenetv3 import MobileNet_V3_Large_Weights, mobilenet_v3_large
from ..resnet import ResNet50_Weights, ResNet101_Weights, resnet50, resnet101
from ._utils import _SimpleSegmentationModel, mobilenet_body, resized, resnet_body, segmentation_builder
from .fcn import FCNHead

__all__ = [
    "DeepLabV3", "DeepLabV3_MobileNet_V3_Large_Weights", "DeepLabV3_ResNet50_Weights", "DeepLabV3_ResNet101_Weights",
    "deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50", "deeplabv3_resnet101",
]  # fmt: skip


class DeepLabV3(_SimpleSegmentationModel):
    """DeepLab V3: called with images, it returns {"out": logits, "aux": logits}."""


def _conv(inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> list[nn.Module]:
    padding = dilation if kernel > 1 else 0
    conv = nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]


class ASPPConv(Sequential):
    """A dilated 3x3 convolution."""

    def __init__(self, in_channels: int, out_channels: int, dilation: int):
        super().__init__(*_conv(in_channels, out_channels, 3, dilation))


class ASPPPooling(Sequential):
    """Global average of the feature map, expanded to its size."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__(nn.AdaptiveAvgPool2d(1), *_conv(in_channels, out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return resized(super().forward(x), x.shape[-2:])


class ASPP(nn.Module):
    """Parallel convolutions of several dilations."""

    def __init__(self, in_channels: int, atrous_rates: Sequence[int], out_channels: int = 256):
        super().__init__()
        branches: list[nn.Module] = [nn.Sequential(*_conv(in_channels, out_channels))]
        branches += [ASPPConv(in_channels, out_channels, rate) for rate in atrous_rates]
        branches.append(ASPPPooling(in_channels, out_channels))
        self.convs = nn.ModuleList(branches)
        self.project = nn.Sequential(*_conv(len(branches) * out_channels, out_channels), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.project(flambeau.cat([branch(x) for branch in self.convs], dim=1))


class DeepLabHead(Sequential):
    """ASPP, a 3x3 and a 1x1 convolution."""

    def __init__(self, in_channels: int, num_classes: int, atrous_rates: Sequence[int] = (12, 24, 36)):
        super().__init__(ASPP(in_channels, atrous_rates), *_conv(256, 256, 3), nn.Conv2d(256, num_classes, 1))


def _model(backbone: nn.Module, num_classes: int, aux: bool | None, *, mobile: bool) -> DeepLabV3:
    body, width, aux_width = mobilenet_body(backbone, "aux" if aux else None) if mobile else resnet_body(backbone, aux)
    aux_head = FCNHead(aux_width, num_classes) if aux else None
    return DeepLabV3(body, DeepLabHead(width, num_classes), aux_head)


_deeplabv3_resnet, _deeplabv3_mobilenet = partial(_model, mobile=False), partial(_model, mobile=True)
_deeplabv3_resnet.__doc__ = "DeepLab V3 on a dilated ResNet."
_deeplabv3_mobilenet.__doc__ = "DeepLab V3 on a dilated MobileNet V3."
_DILATED = [False, True, True]
DeepLabV3_ResNet50_Weights, DeepLabV3_ResNet101_Weights, DeepLabV3_MobileNet_V3_Large_Weights = weights_enums(
    "DeepLabV3_ResNet50", "DeepLabV3_ResNet101", "DeepLabV3_MobileNet_V3_Large"
)
deeplabv3_resnet50 = segmentation_builder(
    "deeplabv3_resnet50",
    _deeplabv3_resnet,
    DeepLabV3_ResNet50_Weights,
    resnet50,
    ResNet50_Weights,
    replace_stride_with_dilation=_DILATED,
)
deeplabv3_resnet101 = segmentation_builder(
    "deeplabv3_resnet101",
    _deeplabv3_resnet,
    DeepLabV3_ResNet101_Weights,
    resnet101,
    ResNet101_Weights,
    replace_stride_with_dilation=_DILATED,
)
deeplabv3_mobilenet_v3_large = segmentation_builder(
    "deeplabv3_mobilenet_v3_large",
    _deeplabv3_mobilenet,
    DeepLabV3_MobileNet_V3_Large_Weights,
    mobilenet_v3_large,
    MobileNet_V3_Large_Weights,
    dilated=True,
)
