"""Handler of image classification models."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.vision import transforms

from ..handler_utils.timer import timed
from ..utils.util import map_class_to_label
from .vision_handler import VisionHandler

IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class ImageClassifier(VisionHandler):
    """Handler of image classifiers: answers with the five most probable classes of each image."""

    topk = 5
    image_processing = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean=IMAGENET_MEAN, std=IMAGENET_STD),
        ]
    )

    def set_max_result_classes(self, topk: int) -> None:
        self.topk = topk

    def get_max_result_classes(self) -> int:
        return self.topk

    @timed
    def postprocess(self, data: Any) -> list[dict[str, float]]:
        probabilities = torch.nn.functional.softmax(data, dim=1)
        best, classes = torch.topk(probabilities, min(self.topk, probabilities.shape[1]), dim=1)
        return map_class_to_label(best.tolist(), self.mapping, classes.tolist())
