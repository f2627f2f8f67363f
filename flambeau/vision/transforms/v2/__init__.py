"""Transforms, second generation: on PIL images, tensors, and tv_tensors (images, videos, masks, boxes, points) in any nesting.

>>> import flambeau
>>> from flambeau.vision import tv_tensors
>>> from flambeau.vision.transforms import v2
>>> boxes = tv_tensors.BoundingBoxes([[1, 2, 5, 6]], format="XYXY", canvas_size=(8, 10))
>>> image, boxes = v2.RandomHorizontalFlip(p=1)(tv_tensors.Image(flambeau.rand(3, 8, 10)), boxes)
>>> boxes.tolist()
[[5, 2, 9, 6]]
"""

from __future__ import annotations

from ..interpolation import InterpolationMode
from ..policies import AutoAugmentPolicy
from . import _color, _detection, _geometry, _misc, _transform, functional
from ._augment import JPEG, CutMix, MixUp, RandomErasing
from ._auto_augment import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from ._color import *
from ._container import Compose, RandomApply, RandomChoice, RandomOrder
from ._detection import *
from ._geometry import *
from ._misc import *
from ._transform import *

__all__ = [
    *_color.__all__, *_detection.__all__, *_geometry.__all__, *_misc.__all__, *_transform.__all__, "AugMix",
    "AutoAugment", "AutoAugmentPolicy", "Compose", "CutMix", "InterpolationMode", "JPEG", "MixUp", "RandAugment",
    "RandomApply", "RandomChoice", "RandomErasing", "RandomOrder", "TrivialAugmentWide", "functional",
]  # fmt: skip
