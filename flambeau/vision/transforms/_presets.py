"""Transforms that prepare images for published weights: `weights.transforms()` makes one of these."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor, nn

from . import functional as F
from .interpolation import InterpolationMode

__all__ = [
    "ImageClassification", "InterpolationMode", "ObjectDetection", "OpticalFlow", "SemanticSegmentation", "VideoClassification",
]  # fmt: skip

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Preset(nn.Module):
    """Base of presets: resize, crop, scale to 0..1 and normalise, as configured; for PIL images or tensors (..., C, H, W)."""

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


class VideoClassification(_Preset):
    """Transform that prepares videos (..., T, C, H, W) for classifiers: resize, crop, normalise; channels come first then."""

    def __init__(
        self,
        *,
        crop_size: tuple[int, int],
        resize_size: tuple[int] | tuple[int, int],
        mean: tuple[float, ...] = (0.43216, 0.394666, 0.37645),
        std: tuple[float, ...] = (0.22803, 0.22145, 0.216989),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    ):
        super().__init__()
        self.crop_size, self.resize_size = list(crop_size), list(resize_size)
        self.mean, self.std = list(mean), list(std)
        self.interpolation, self.antialias = interpolation, False  # as the published weights were trained

    def forward(self, vid: Tensor) -> Tensor:
        frames = super().forward(vid.reshape(-1, *vid.shape[-3:]))
        return frames.reshape(*vid.shape[:-3], *frames.shape[1:]).transpose(-4, -3)


class OpticalFlow(nn.Module):
    """Transform that converts two images to values between -1 and 1."""

    def forward(self, img1: Any, img2: Any) -> tuple[Tensor, Tensor]:
        return self._to_float_image(img1), self._to_float_image(img2)

    def _to_float_image(self, img: Any) -> Tensor:
        img = F.convert_image_dtype(img if isinstance(img, Tensor) else F.pil_to_tensor(img))
        return F.normalize(img, mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]).contiguous()
