"""Handler of object detection models."""

from __future__ import annotations

from typing import Any

from flambeau.vision import transforms

from ..utils.util import map_class_to_label
from .vision_handler import VisionHandler


class ObjectDetector(VisionHandler):
    """Handler of detectors: answers with boxes, names and scores of objects with a score of at least `threshold`."""

    image_processing = transforms.Compose([transforms.ToTensor()])
    threshold = 0.5

    def postprocess(self, data: Any) -> list[list[dict[str, Any]]]:
        return [self._detections(row) for row in data]

    def _detections(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        sure = row["scores"] >= self.threshold
        boxes, labels, scores = (row[key][sure].tolist() for key in ("boxes", "labels", "scores"))
        return [
            {**map_class_to_label([[box]], self.mapping, [[label]])[0], "score": score}
            for box, label, score in zip(boxes, labels, scores)
        ]
