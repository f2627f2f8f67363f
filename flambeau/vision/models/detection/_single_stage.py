"""Base of single-stage detectors, and selection of detections from the scores of anchors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn

from ...ops import boxes as box_ops
from ._utils import check_sizes, check_targets, keep_best

Target = dict[str, Tensor]


class SingleStageDetector(nn.Module):
    """Base of single-stage detectors: images -> transform -> backbone -> head, for anchors at every location. A subclass defines the loss
    (`compute_loss`) and how outputs become detections (`detect`)."""

    backbone: nn.Module
    anchor_generator: nn.Module
    head: nn.Module
    transform: Any

    def compute_loss(
        self, targets: list[Target], head_outputs: dict[str, Tensor], anchors: list[Tensor], counts: list[int]
    ) -> dict[str, Tensor]:
        raise NotImplementedError(f"{type(self).__name__} defines no compute_loss()")

    def detect(
        self, head_outputs: dict[str, Tensor], anchors: list[Tensor], shapes: list[tuple[int, int]], counts: list[int]
    ) -> list[Target]:
        raise NotImplementedError(f"{type(self).__name__} defines no detect()")

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> Any:
        if self.training:
            check_targets(targets, len(images))
        original = [(image.shape[-2], image.shape[-1]) for image in images]
        batch, targets = self.transform(images, targets)
        check_sizes(targets)
        features = self.backbone(batch.tensors)
        maps = [features] if isinstance(features, Tensor) else list(features.values())
        outputs = self.head(maps)
        anchors = self.anchor_generator(batch, maps)
        places = [x.shape[2] * x.shape[3] for x in maps]
        per_place = anchors[0].shape[0] // max(sum(places), 1)
        counts = [n * per_place for n in places]  # anchors of each level, where all levels have as many per place
        if self.training:
            assert targets is not None
            return self.compute_loss(targets, outputs, anchors, counts)
        found = self.detect(outputs, anchors, batch.image_sizes, counts)
        return self.transform.postprocess(found, batch.image_sizes, original)


def level_candidates(
    scores: Tensor, codes: Tensor, anchors: Tensor, decode: Any, shape: tuple[int, int], threshold: float, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best boxes of one level, their scores and labels, from scores (anchors, classes)."""
    classes = scores.shape[-1]
    flat = scores.flatten()
    above = flambeau.where(flat > threshold)[0]
    best, order = flat[above].topk(flambeau.sym_min(most, above.shape[0]))
    above = above[order]
    at = flambeau.div(above, classes, rounding_mode="floor")
    return box_ops.clip_boxes_to_image(decode(codes[at], anchors[at]), shape), best, above % classes


def detections(levels: Sequence[tuple[Tensor, Tensor, Tensor]], threshold: float, most: int) -> Target:
    """Return the candidates of all levels that remain after non-maximum suppression."""
    boxes, scores, labels = (flambeau.cat([level[i] for level in levels]) for i in range(3))
    return keep_best(boxes, scores, labels, threshold, most)
