"""Handler of segmentation models."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from .image_classifier import ImageClassifier
from .vision_handler import VisionHandler


class ImageSegmenter(VisionHandler):
    """Handler of segmentation models: answers with the most probable class of each pixel and its probability."""

    image_processing = ImageClassifier.image_processing

    def postprocess(self, data: Any) -> list[Any]:
        best = torch.nn.functional.softmax(data["out"], dim=1).max(dim=1)
        return torch.stack([best.indices.type(best.values.dtype), best.values], dim=3).tolist()
