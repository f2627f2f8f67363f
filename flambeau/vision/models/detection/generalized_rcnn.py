"""Common structure of two-stage detectors."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flambeau import Tensor, nn

from ._utils import check_sizes, check_targets


class GeneralizedRCNN(nn.Module):
    """Two-stage detector: images -> transform -> backbone -> proposals -> regions. Training returns losses, evaluation detections."""

    def __init__(self, backbone: nn.Module, rpn: nn.Module, roi_heads: nn.Module, transform: nn.Module):
        super().__init__()
        self.transform = transform
        self.backbone = backbone
        self.rpn = rpn
        self.roi_heads = roi_heads

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> Any:
        if self.training:
            check_targets(targets, len(images))
        original = [(image.shape[-2], image.shape[-1]) for image in images]
        batch, targets = self.transform(images, targets)
        check_sizes(targets)
        features = self.backbone(batch.tensors)
        if isinstance(features, Tensor):
            features = OrderedDict([("0", features)])
        proposals, losses = self.rpn(batch, features, targets)
        detections, more = self.roi_heads(features, proposals, batch.image_sizes, targets)
        detections = self.transform.postprocess(detections, batch.image_sizes, original)
        return {**more, **losses} if self.training else detections
