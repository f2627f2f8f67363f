"""Operators for vision, with torchvision's names: boxes, regions of interest, detection losses, building blocks."""

from . import boxes, misc
from ._losses import complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss, sigmoid_focal_loss
from .boxes import *
from .deform_conv import DeformConv2d, deform_conv2d
from .drop_block import DropBlock2d, DropBlock3d, drop_block2d, drop_block3d
from .feature_pyramid_network import FeaturePyramidNetwork
from .misc import *
from .poolers import MultiScaleRoIAlign
from .roi_align import PSRoIAlign, RoIAlign, ps_roi_align, roi_align
from .roi_pool import PSRoIPool, RoIPool, ps_roi_pool, roi_pool
from .stochastic_depth import StochasticDepth, stochastic_depth

__all__ = [
    *boxes.__all__, *misc.__all__, "DeformConv2d", "DropBlock2d", "DropBlock3d", "FeaturePyramidNetwork",
    "MultiScaleRoIAlign", "PSRoIAlign", "PSRoIPool", "RoIAlign", "RoIPool", "StochasticDepth", "complete_box_iou_loss",
    "deform_conv2d", "distance_box_iou_loss", "drop_block2d", "drop_block3d", "generalized_box_iou_loss",
    "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool", "sigmoid_focal_loss", "stochastic_depth",
]  # fmt: skip
