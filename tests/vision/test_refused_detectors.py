"""Detectors are given either a number of classes or the layer that predicts them, and backbones that say how many channels they have."""

from __future__ import annotations

import pytest

from flambeau import nn
from flambeau.vision.models import detection
from flambeau.vision.models.detection import anchor_utils, faster_rcnn
from flambeau.vision.ops import MultiScaleRoIAlign

POOL = MultiScaleRoIAlign(["0"], 7, 2)
PARTS = {
    detection.FasterRCNN: {},
    detection.MaskRCNN: {"mask_roi_pool": POOL},
    detection.KeypointRCNN: {"keypoint_roi_pool": POOL},
}
PREDICTED = {"box_head": nn.Identity(), "box_predictor": faster_rcnn.FastRCNNPredictor(16, 3)}
OWN = {detection.MaskRCNN: "mask_predictor", detection.KeypointRCNN: "keypoint_predictor"}


def body() -> nn.Module:
    made = nn.Sequential(nn.Conv2d(3, 8, 3, 8))
    made.out_channels = 8
    return made


def make(kind, *classes, **parts):
    sizes = anchor_utils.AnchorGenerator(((32,),), ((1.0,),))
    return kind(body(), *classes, rpn_anchor_generator=sizes, box_roi_pool=POOL, **PARTS[kind], **parts)


@pytest.mark.parametrize("kind", PARTS)
def test_classes_or_the_layer_that_predicts_them(kind):
    own = {OWN[kind]: nn.Identity()} if kind in OWN else {}
    assert type(make(kind, 3)) is kind
    made = make(kind, **PREDICTED, **own)
    assert made.roi_heads.box_predictor is PREDICTED["box_predictor"]
    assert all(getattr(made.roi_heads, name) is layer for name, layer in own.items())
    with pytest.raises(ValueError, match="num_classes should not be None"):
        make(kind)
    with pytest.raises(ValueError, match="should be None when"):
        numbers = {"num_keypoints": 4} if kind is detection.KeypointRCNN else {}
        make(kind, 3, **numbers, **(own or PREDICTED))


@pytest.mark.parametrize("kind", [detection.FasterRCNN, detection.RetinaNet, detection.FCOS])
def test_backbones_have_a_number_of_channels(kind):
    with pytest.raises(ValueError, match="out_channels"):
        kind(nn.Identity(), 3)
