"""Tensor subclasses by content: images, videos, masks, boxes and key points, so that one transform can treat all of them."""

from __future__ import annotations

from ._base import TVTensor, set_return_type, wrap
from ._boxes import BoundingBoxes, BoundingBoxFormat, is_rotated_bounding_format
from ._kinds import Image, KeyPoints, Mask, Video

__all__ = [
    "BoundingBoxFormat", "BoundingBoxes", "Image", "KeyPoints", "Mask", "TVTensor", "Video",
    "is_rotated_bounding_format", "set_return_type", "wrap",
]  # fmt: skip
