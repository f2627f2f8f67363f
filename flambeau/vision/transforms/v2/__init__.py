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
from . import functional
from ._augment import JPEG, CutMix, MixUp, RandomErasing
from ._auto_augment import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from ._color import (
    RGB,
    ColorJitter,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from ._container import Compose, RandomApply, RandomChoice, RandomOrder
from ._detection import (
    ClampBoundingBoxes,
    ClampKeyPoints,
    ConvertBoundingBoxFormat,
    RandomIoUCrop,
    SanitizeBoundingBoxes,
    SanitizeKeyPoints,
    SetClampingMode,
)
from ._geometry import (
    CenterCrop,
    ElasticTransform,
    FiveCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResize,
    RandomResizedCrop,
    RandomRotation,
    RandomShortestSize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ScaleJitter,
    TenCrop,
)
from ._misc import (
    ConvertImageDtype,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Lambda,
    LinearTransformation,
    Normalize,
    PILToTensor,
    ToDtype,
    ToImage,
    ToPILImage,
    ToPureTensor,
    ToTensor,
    UniformTemporalSubsample,
)
from ._transform import (
    Transform,
    check_type,
    get_bounding_boxes,
    get_keypoints,
    has_all,
    has_any,
    query_chw,
    query_size,
)

__all__ = [
    "AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ClampBoundingBoxes", "ClampKeyPoints", "ColorJitter",
    "Compose", "ConvertBoundingBoxFormat", "ConvertImageDtype", "CutMix", "ElasticTransform", "FiveCrop",
    "GaussianBlur", "GaussianNoise", "Grayscale", "Identity", "InterpolationMode", "JPEG", "Lambda",
    "LinearTransformation", "MixUp", "Normalize", "PILToTensor", "Pad", "RGB", "RandAugment", "RandomAdjustSharpness",
    "RandomAffine", "RandomApply", "RandomAutocontrast", "RandomChannelPermutation", "RandomChoice", "RandomCrop",
    "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomIoUCrop",
    "RandomOrder", "RandomPerspective", "RandomPhotometricDistort", "RandomPosterize", "RandomResize",
    "RandomResizedCrop", "RandomRotation", "RandomShortestSize", "RandomSolarize", "RandomVerticalFlip",
    "RandomZoomOut", "Resize", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "ScaleJitter", "SetClampingMode",
    "TenCrop", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor", "Transform", "TrivialAugmentWide",
    "UniformTemporalSubsample", "check_type", "functional", "get_bounding_boxes", "get_keypoints", "has_all", "has_any",
    "query_chw", "query_size",
]  # fmt: skip
