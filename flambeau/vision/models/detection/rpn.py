"""Region proposal network (Ren et al., 2015): proposes regions that may contain objects."""

from __future__ import annotations

from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from ...ops import boxes as box_ops
from ...ops.misc import Conv2dNormActivation
from .._utils import initialise
from ._utils import BalancedPositiveNegativeSampler, BoxCoder, Matcher
from .anchor_utils import AnchorGenerator
from .image_list import ImageList


class RPNHead(nn.Module):
    """Head that predicts, for each anchor, a score for an object and the offsets of its box."""

    _version = 2

    def __init__(self, in_channels: int, num_anchors: int, conv_depth: int = 1):
        super().__init__()
        self.conv = nn.Sequential(
            *(Conv2dNormActivation(in_channels, in_channels, kernel_size=3, norm_layer=None) for _ in range(conv_depth))
        )
        self.cls_logits = nn.Conv2d(in_channels, num_anchors, kernel_size=1, stride=1)
        self.bbox_pred = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=1, stride=1)
        initialise(self, partial(nn.init.normal_, std=0.01))

    def _load_from_state_dict(self, state_dict: dict, prefix: str, local_metadata: dict, *rest: Any) -> None:
        if (local_metadata.get("version") or 1) < 2:  # the stack used to be one bare convolution
            for kind in ("weight", "bias"):
                if f"{prefix}conv.{kind}" in state_dict:
                    state_dict[f"{prefix}conv.0.0.{kind}"] = state_dict.pop(f"{prefix}conv.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        shared = [self.conv(feature) for feature in x]
        return [self.cls_logits(t) for t in shared], [self.bbox_pred(t) for t in shared]


def permute_and_flatten(layer: Tensor, width: int) -> Tensor:
    """Reshape (N, anchors * width, H, W) to (N, H * W * anchors, width)."""
    n, channels, h, w = layer.shape
    return layer.view(n, channels // width, width, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, width)


class RegionProposalNetwork(nn.Module):
    """Network whose head refines and ranks anchors; the best become proposals."""

    def __init__(
        self,
        anchor_generator: AnchorGenerator,
        head: nn.Module,
        fg_iou_thresh: float,
        bg_iou_thresh: float,
        batch_size_per_image: int,
        positive_fraction: float,
        pre_nms_top_n: dict[str, int],
        post_nms_top_n: dict[str, int],
        nms_thresh: float,
        score_thresh: float = 0.0,
    ):
        super().__init__()
        self.anchor_generator = anchor_generator
        self.head = head
        self.box_coder = BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self.box_similarity = box_ops.box_iou
        self.proposal_matcher = Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        self.fg_bg_sampler = BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self._pre_nms_top_n, self._post_nms_top_n = pre_nms_top_n, post_nms_top_n
        self.nms_thresh, self.score_thresh, self.min_size = nms_thresh, score_thresh, 1e-3

    def pre_nms_top_n(self) -> int:
        return self._pre_nms_top_n["training" if self.training else "testing"]

    def post_nms_top_n(self) -> int:
        return self._post_nms_top_n["training" if self.training else "testing"]

    def assign_targets_to_anchors(
        self, anchors: list[Tensor], targets: list[dict[str, Tensor]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        labels, matched_boxes = [], []
        for boxes, target in zip(anchors, targets):
            truth = target["boxes"]
            if truth.numel() == 0:
                matched_boxes.append(flambeau.zeros(boxes.shape, dtype=flambeau.float32))
                labels.append(flambeau.zeros((boxes.shape[0],), dtype=flambeau.float32))
                continue
            matched = self.proposal_matcher(self.box_similarity(truth, boxes))
            matched_boxes.append(truth[matched.clamp(min=0)])
            label = (matched >= 0).to(flambeau.float32)
            label[matched == Matcher.BELOW_LOW_THRESHOLD] = 0.0
            label[matched == Matcher.BETWEEN_THRESHOLDS] = -1.0
            labels.append(label)
        return labels, matched_boxes

    def _get_top_n_idx(self, objectness: Tensor, counts: list[int]) -> Tensor:
        """Return the indices of the anchors with the highest scores of each level."""
        found, offset = [], 0
        for scores in objectness.split(counts, 1):
            best = scores.topk(flambeau.sym_min(self.pre_nms_top_n(), scores.shape[1]), dim=1)[1]
            found.append(best + offset)
            offset += scores.shape[1]
        return flambeau.cat(found, dim=1)

    def filter_proposals(
        self, proposals: Tensor, objectness: Tensor, image_shapes: list[tuple[int, int]], counts: list[int]
    ) -> tuple[list[Tensor], list[Tensor]]:
        images = proposals.shape[0]
        objectness = objectness.detach().reshape(images, -1)
        levels = flambeau.cat([flambeau.full((n,), i, dtype=flambeau.int64) for i, n in enumerate(counts)])
        levels = levels.reshape(1, -1).expand_as(objectness)
        best = self._get_top_n_idx(objectness, counts)
        rows = flambeau.arange(images)[:, None]
        probability = objectness[rows, best].sigmoid()
        proposals, levels = proposals[rows, best], levels[rows, best]
        final_boxes, final_scores = [], []
        for boxes, scores, level, shape in zip(proposals, probability, levels, image_shapes):
            boxes = box_ops.clip_boxes_to_image(boxes, shape)
            keep = box_ops.remove_small_boxes(boxes, self.min_size)
            boxes, scores, level = boxes[keep], scores[keep], level[keep]
            keep = flambeau.where(scores >= self.score_thresh)[0]
            boxes, scores, level = boxes[keep], scores[keep], level[keep]
            keep = box_ops.batched_nms(boxes, scores, level, self.nms_thresh)[: self.post_nms_top_n()]
            final_boxes.append(boxes[keep])
            final_scores.append(scores[keep])
        return final_boxes, final_scores

    def compute_loss(
        self, objectness: Tensor, deltas: Tensor, labels: list[Tensor], regression_targets: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        positive, negative = self.fg_bg_sampler(labels)
        chosen = flambeau.where(flambeau.cat(positive))[0]
        sampled = flambeau.cat([chosen, flambeau.where(flambeau.cat(negative))[0]])
        objectness, label = objectness.flatten(), flambeau.cat(labels)
        target = flambeau.cat(regression_targets)
        regression = F.smooth_l1_loss(deltas[chosen], target[chosen], beta=1 / 9, reduction="sum") / sampled.numel()
        return F.binary_cross_entropy_with_logits(objectness[sampled], label[sampled]), regression

    def forward(
        self, images: ImageList, features: dict[str, Tensor], targets: list[dict[str, Tensor]] | None = None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        maps = list(features.values())
        logits, deltas = self.head(maps)
        anchors = self.anchor_generator(images, maps)
        counts = [t[0].numel() for t in logits]
        objectness = flambeau.cat([permute_and_flatten(t, 1) for t in logits], dim=1).flatten(0, -2)
        codes = flambeau.cat([permute_and_flatten(t, 4) for t in deltas], dim=1).reshape(-1, 4)
        proposals = self.box_coder.decode(codes.detach(), anchors).view(len(anchors), -1, 4)
        boxes, _ = self.filter_proposals(proposals, objectness, images.image_sizes, counts)
        losses = {}
        if self.training:
            if targets is None:
                raise ValueError("targets should not be None")
            labels, matched = self.assign_targets_to_anchors(anchors, targets)
            wanted = self.box_coder.encode(matched, anchors)
            losses["loss_objectness"], losses["loss_rpn_box_reg"] = self.compute_loss(objectness, codes, labels, wanted)
        return boxes, losses
