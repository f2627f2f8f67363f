"""Object detection: Faster, Mask and Keypoint R-CNN, RetinaNet, FCOS, SSD.

>>> from flambeau.vision.models import detection
>>> model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights_backbone=None, num_classes=3)
"""

# ruff: noqa: F403 - re-exports

from .faster_rcnn import *
from .fcos import *
from .keypoint_rcnn import *
from .mask_rcnn import *
from .retinanet import *
from .ssd import *
from .ssdlite import *
