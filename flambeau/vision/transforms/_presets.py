"""Transforms that prepare images for published weights: `weights.transforms()` makes one of these."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor, nn

from . import functional as F
from .interpolation import InterpolationMode

__all__ = ["ImageClassification", "InterpolationMode", "ObjectDetection", "SemanticSegmentation"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Preset(nn.Module):
    """Resize, crop, scale to 0..1 and normalise, as far as asked for; PIL images or tensors (..., C, H, W)."""

    resize_size: list[int] | None = None
    crop_size: list[int] | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    interpolation = InterpolationMode.BILINEAR
    antialias: bool | None = True

    def forward(self, img: Any) -> Tensor:
        if self.resize_size is not None:
            img = F.resize(img, self.resize_size, interpolation=self.interpolation, antialias=self.antialias)
        if self.crop_size is not None:
            img = F.center_crop(img, self.crop_size)
        if not isinstance(img, Tensor):
            img = F.pil_to_tensor(img)
        img = F.convert_image_dtype(img)
        return img if self.mean is None or self.std is None else F.normalize(img, mean=self.mean, std=self.std)

    def __repr__(self) -> str:
        text = self.__class__.__name__ + "("
        for name in ("crop_size", "resize_size", "mean", "std", "interpolation"):
            if getattr(self, name) is not None and not (name == "interpolation" and self.mean is None):
                text += f"\n    {name}={getattr(self, name)}"
        return text + ("\n)" if self.mean is not None else ")")


class ImageClassification(_Preset):
    """Transform that prepares images for classifiers: resize, crop, normalise."""

    def __init__(
        self,
        *,
        crop_size: int,
        resize_size: int = 256,
        mean: tuple[float, ...] = _MEAN,
        std: tuple[float, ...] = _STD,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ):
        super().__init__()
        self.crop_size, self.resize_size = [crop_size], [resize_size]
        self.mean, self.std = list(mean), list(std)
        self.interpolation, self.antialias = interpolation, antialias


class SemanticSegmentation(_Preset):
    """Transform that prepares images for segmentation: resize and normalise."""

    def __init__(
        self,
        *,
        resize_size: int | None,
        mean: tuple[float, ...] = _MEAN,
        std: tuple[float, ...] = _STD,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ):
        super().__init__()
        self.resize_size = None if resize_size is None else [resize_size]
        self.mean, self.std = list(mean), list(std)
        self.interpolation, self.antialias = interpolation, antialias


class ObjectDetection(_Preset):
    """Transform that converts images for detectors, which resize and normalise themselves."""
