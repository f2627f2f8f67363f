"""Classification networks as the backbones of detectors."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau import Tensor, nn

from ...ops.feature_pyramid_network import ExtraFPNBlock, FeaturePyramidNetwork, LastLevelMaxPool
from ...ops.misc import FrozenBatchNorm2d, Layer
from .. import mobilenet, resnet
from .._utils import IntermediateLayerGetter


class BackboneWithFPN(nn.Module):
    """Layers of a network with a feature pyramid on top."""

    def __init__(
        self,
        backbone: nn.Module,
        return_layers: dict[str, str],
        in_channels_list: list[int],
        out_channels: int,
        extra_blocks: ExtraFPNBlock | None = None,
        norm_layer: Layer | None = None,
    ):
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers=return_layers)
        self.fpn = FeaturePyramidNetwork(in_channels_list, out_channels, extra_blocks or LastLevelMaxPool(), norm_layer)
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return self.fpn(self.body(x))


def resnet_fpn_backbone(
    *,
    backbone_name: str,
    weights: Any,
    norm_layer: Layer = FrozenBatchNorm2d,
    trainable_layers: int = 3,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
) -> BackboneWithFPN:
    """Make a ResNet backbone with a feature pyramid."""
    backbone = getattr(resnet, backbone_name)(weights=weights, norm_layer=norm_layer)
    return _resnet_fpn_extractor(backbone, trainable_layers, returned_layers, extra_blocks)


def _resnet_fpn_extractor(
    backbone: Any,
    trainable_layers: int,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
    norm_layer: Layer | None = None,
) -> BackboneWithFPN:
    """Freeze all but the last `trainable_layers` of conv1, layer1 ... layer4, and put a pyramid on `returned_layers`."""
    if not 0 <= trainable_layers <= 5:
        raise ValueError(f"Trainable layers should be in the range [0,5], got {trainable_layers}")
    trained = ["layer4", "layer3", "layer2", "layer1", "conv1"][:trainable_layers]
    trained += ["bn1"] if trainable_layers == 5 else []
    for name, parameter in backbone.named_parameters():
        if not any(name.startswith(layer) for layer in trained):
            parameter.requires_grad_(False)
    returned = returned_layers or [1, 2, 3, 4]
    if min(returned) <= 0 or max(returned) >= 5:
        raise ValueError(f"Each returned layer should be in the range [1,4]. Got {returned}")
    layers = {f"layer{k}": str(i) for i, k in enumerate(returned)}
    widths = [backbone.inplanes // 8 * 2 ** (k - 1) for k in returned]
    return BackboneWithFPN(backbone, layers, widths, 256, extra_blocks, norm_layer)


def _validate_trainable_layers(
    is_trained: bool, trainable_backbone_layers: int | None, max_value: int, default_value: int
) -> int:
    """Return the number of layers to train: all of them if the backbone is not pretrained."""
    if not is_trained:
        if trainable_backbone_layers is not None:
            warnings.warn(
                "Changing trainable_backbone_layers has no effect if neither pretrained nor pretrained_backbone have been set"
                f" to True, falling back to trainable_backbone_layers={max_value} so that all layers are trainable",
                stacklevel=4,
            )
        return max_value
    chosen = default_value if trainable_backbone_layers is None else trainable_backbone_layers
    if not 0 <= chosen <= max_value:
        raise ValueError(
            f"Trainable backbone layers should be in the range [0,{max_value}], got {trainable_backbone_layers} "
        )
    return chosen


def mobilenet_backbone(
    *,
    backbone_name: str,
    weights: Any,
    fpn: bool,
    norm_layer: Layer = FrozenBatchNorm2d,
    trainable_layers: int = 2,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
) -> nn.Module:
    """Make a MobileNet backbone, with or without a feature pyramid."""
    backbone = getattr(mobilenet, backbone_name)(weights=weights, norm_layer=norm_layer)
    return _mobilenet_extractor(backbone, fpn, trainable_layers, returned_layers, extra_blocks)


def mobilenet_stages(features: Any) -> list[int]:
    """Return the indices of the layers at which the size of the feature map changes, and of the last."""
    return [0, *(i for i, block in enumerate(features) if getattr(block, "_is_cn", False)), len(features) - 1]


def freeze_before(features: Any, stages: list[int], trainable_layers: int) -> None:
    """Train only the last `trainable_layers` stages."""
    if not 0 <= trainable_layers <= len(stages):
        raise ValueError(f"Trainable layers should be in the range [0,{len(stages)}], got {trainable_layers} ")
    first = len(features) if trainable_layers == 0 else stages[len(stages) - trainable_layers]
    for block in features[:first]:
        for parameter in block.parameters():
            parameter.requires_grad_(False)


def _mobilenet_extractor(
    backbone: Any,
    fpn: bool,
    trainable_layers: int,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
    norm_layer: Layer | None = None,
) -> nn.Module:
    features = backbone.features
    stages = mobilenet_stages(features)
    freeze_before(features, stages, trainable_layers)
    if not fpn:
        made = nn.Sequential(features, nn.Conv2d(features[-1].out_channels, 256, 1))
        made.out_channels = 256
        return made
    returned = returned_layers or [len(stages) - 2, len(stages) - 1]
    if min(returned) < 0 or max(returned) >= len(stages):
        raise ValueError(f"Each returned layer should be in the range [0,{len(stages) - 1}], got {returned} ")
    layers = {str(stages[k]): str(i) for i, k in enumerate(returned)}
    widths = [features[stages[k]].out_channels for k in returned]
    return BackboneWithFPN(features, layers, widths, 256, extra_blocks, norm_layer)
