"""Mask R-CNN (He et al., 2017)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from flambeau import nn
from flambeau.nn.modules import Sequential

from ...ops.misc import Conv2dNormActivation, Layer
from ...ops.poolers import MultiScaleRoIAlign
from .._api import weights_enums
from .._utils import initialise, kaiming_fan_out
from ..resnet import ResNet50_Weights
from ._builders import Start, detector, resnet50_body
from .faster_rcnn import _MAPS, FasterRCNN, _default_anchorgen, v2_parts

__all__ = [
    "MaskRCNN", "MaskRCNN_ResNet50_FPN_V2_Weights", "MaskRCNN_ResNet50_FPN_Weights", "maskrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn_v2",
]  # fmt: skip


class MaskRCNN(FasterRCNN):
    """Faster R-CNN that also returns a mask per object; targets need masks (objects, height, width)."""

    def __init__(
        self,
        backbone: Any,
        num_classes: int | None = None,
        *args: Any,
        mask_roi_pool: nn.Module | None = None,
        mask_head: nn.Module | None = None,
        mask_predictor: nn.Module | None = None,
        **kwargs: Any,
    ):
        if mask_predictor is not None and num_classes is not None:
            raise ValueError("num_classes should be None when mask_predictor is specified")
        pool = mask_roi_pool or MultiScaleRoIAlign(_MAPS, output_size=14, sampling_ratio=2)
        head = mask_head or MaskRCNNHeads(backbone.out_channels, (256, 256, 256, 256), 1)
        if mask_predictor is None:
            if num_classes is None:
                raise ValueError("num_classes should not be None when mask_predictor is not specified")
            mask_predictor = MaskRCNNPredictor(256, 256, num_classes)
        super().__init__(backbone, num_classes, *args, **kwargs)
        heads = self.roi_heads
        heads.mask_roi_pool, heads.mask_head, heads.mask_predictor = pool, head, mask_predictor


class MaskRCNNHeads(Sequential):
    """3x3 convolutions over a pooled region."""

    _version = 2

    def __init__(self, in_channels: int, layers: Sequence[int], dilation: int, norm_layer: Layer | None = None):
        blocks = []
        for width in layers:
            blocks.append(
                Conv2dNormActivation(
                    in_channels, width, kernel_size=3, padding=dilation, dilation=dilation, norm_layer=norm_layer
                )
            )
            in_channels = width
        super().__init__(*blocks)
        initialise(self, kaiming_fan_out)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, local_metadata: dict, *rest: Any) -> None:
        if (local_metadata.get("version") or 1) < 2:  # the layers used to be called mask_fcn1, mask_fcn2 ...
            for i in range(len(self)):
                for kind in ("weight", "bias"):
                    old = f"{prefix}mask_fcn{i + 1}.{kind}"
                    if old in state_dict:
                        state_dict[f"{prefix}{i}.0.{kind}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class MaskRCNNPredictor(Sequential):
    """Head that doubles the size and predicts one mask per class."""

    def __init__(self, in_channels: int, dim_reduced: int, num_classes: int):
        super().__init__(
            OrderedDict(
                conv5_mask=nn.ConvTranspose2d(in_channels, dim_reduced, 2, 2, 0),
                relu=nn.ReLU(inplace=True),
                mask_fcn_logits=nn.Conv2d(dim_reduced, num_classes, 1, 1, 0),
            )
        )
        for name, parameter in self.named_parameters():
            if "weight" in name:
                kaiming_fan_out(parameter)


MaskRCNN_ResNet50_FPN_Weights, MaskRCNN_ResNet50_FPN_V2_Weights = weights_enums(
    "MaskRCNN_ResNet50_FPN", "MaskRCNN_ResNet50_FPN_V2"
)


@detector(MaskRCNN_ResNet50_FPN_Weights, ResNet50_Weights, zero_eps=True)
def maskrcnn_resnet50_fpn(start: Start, num_classes: int, **kwargs: Any) -> MaskRCNN:
    """Mask R-CNN on a ResNet-50 with a feature pyramid."""
    return MaskRCNN(resnet50_body(start), num_classes, **kwargs)


@detector(MaskRCNN_ResNet50_FPN_V2_Weights, ResNet50_Weights, pretrained=None)
def maskrcnn_resnet50_fpn_v2(start: Start, num_classes: int, **kwargs: Any) -> MaskRCNN:
    """Mask R-CNN on a ResNet-50 with a feature pyramid, by the improved recipe of Li et al. (2021)."""
    body = resnet50_body(start, frozen=False, norm_layer=nn.BatchNorm2d)
    parts = v2_parts(body, _default_anchorgen())
    parts["mask_head"] = MaskRCNNHeads(body.out_channels, [256] * 4, 1, norm_layer=nn.BatchNorm2d)
    return MaskRCNN(body, num_classes, **parts, **kwargs)
