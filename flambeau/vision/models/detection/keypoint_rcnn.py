"""Keypoint R-CNN (He et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.nn.modules import Sequential

from ...ops.poolers import MultiScaleRoIAlign
from .._api import expect_value, load_weights, model_builder, weights_enums
from .._utils import initialise, kaiming_fan_out
from ..resnet import ResNet50_Weights
from ._builders import resnet50_body, settle
from ._utils import overwrite_eps
from .faster_rcnn import _MAPS, FasterRCNN

__all__ = ["KeypointRCNN", "KeypointRCNN_ResNet50_FPN_Weights", "keypointrcnn_resnet50_fpn"]


class KeypointRCNN(FasterRCNN):
    """Faster R-CNN that also returns keypoints; targets need keypoints (objects, keypoints, x y visibility)."""

    def __init__(
        self,
        backbone: Any,
        num_classes: int | None = None,
        min_size: Any = None,
        *args: Any,
        keypoint_roi_pool: nn.Module | None = None,
        keypoint_head: nn.Module | None = None,
        keypoint_predictor: nn.Module | None = None,
        num_keypoints: int | None = None,
        **kwargs: Any,
    ):
        if keypoint_predictor is not None and num_keypoints is not None:
            raise ValueError("num_keypoints should be None when keypoint_predictor is specified")
        sizes = (640, 672, 704, 736, 768, 800) if min_size is None else min_size
        pool = keypoint_roi_pool or MultiScaleRoIAlign(_MAPS, output_size=14, sampling_ratio=2)
        head = keypoint_head or KeypointRCNNHeads(backbone.out_channels, (512,) * 8)
        predictor = keypoint_predictor or KeypointRCNNPredictor(512, 17 if num_keypoints is None else num_keypoints)
        super().__init__(backbone, num_classes, sizes, *args, **kwargs)
        heads = self.roi_heads
        heads.keypoint_roi_pool, heads.keypoint_head, heads.keypoint_predictor = pool, head, predictor


class KeypointRCNNHeads(Sequential):
    """3x3 convolutions over a pooled region."""

    def __init__(self, in_channels: int, layers: Sequence[int]):
        blocks: list[nn.Module] = []
        for width in layers:
            blocks += [nn.Conv2d(in_channels, width, 3, stride=1, padding=1), nn.ReLU(inplace=True)]
            in_channels = width
        super().__init__(*blocks)
        initialise(self, kaiming_fan_out)


class KeypointRCNNPredictor(nn.Module):
    """Head that predicts a heatmap per keypoint, at four times the size."""

    def __init__(self, in_channels: int, num_keypoints: int):
        super().__init__()
        self.kps_score_lowres = nn.ConvTranspose2d(in_channels, num_keypoints, 4, stride=2, padding=1)
        kaiming_fan_out(self.kps_score_lowres.weight)
        nn.init.constant_(self.kps_score_lowres.bias, 0)
        self.up_scale = 2
        self.out_channels = num_keypoints

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(
            self.kps_score_lowres(x),
            scale_factor=float(self.up_scale),
            mode="bilinear",
            align_corners=False,
            recompute_scale_factor=False,
        )


(KeypointRCNN_ResNet50_FPN_Weights,) = weights_enums("KeypointRCNN_ResNet50_FPN")


@model_builder(KeypointRCNN_ResNet50_FPN_Weights, "COCO_V1", ResNet50_Weights)
def keypointrcnn_resnet50_fpn(
    *,
    weights: Any = None,
    progress: bool = True,
    num_classes: int | None = None,
    num_keypoints: int | None = None,
    weights_backbone: Any = ResNet50_Weights.IMAGENET1K_V1,
    trainable_backbone_layers: int | None = None,
    **kwargs: Any,
) -> KeypointRCNN:
    """Keypoint R-CNN on a ResNet-50 with a feature pyramid: persons (2 classes) and 17 keypoints by default."""
    num_classes = 2 if weights is None and num_classes is None else num_classes
    start, num_classes = settle(weights, progress, num_classes, weights_backbone, trainable_backbone_layers)
    if weights is not None:
        num_keypoints = expect_value("num_keypoints", num_keypoints, len(weights.meta["keypoint_names"]))
    model = KeypointRCNN(resnet50_body(start), num_classes, num_keypoints=num_keypoints or 17, **kwargs)
    load_weights(model, weights, progress)
    if weights is KeypointRCNN_ResNet50_FPN_Weights.COCO_V1:
        overwrite_eps(model, 0.0)
    return model
