"""Semantic segmentation: FCN, DeepLab V3, LR-ASPP.

>>> from flambeau.vision.models import segmentation
>>> model = segmentation.lraspp_mobilenet_v3_large(weights_backbone=None, num_classes=3)
"""

# ruff: noqa: F403 - re-exports

from .deeplabv3 import *
from .fcn import *
from .lraspp import *
