"""Dtypes, normalizing, blur, noise, erasing, compression, frames, and conversions between types."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor

from .....utils.pillow import is_pil, pillow
from ....tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video
from ....tv_tensors._base import plain
from ...arguments import blur_arguments
from ...kernels import conversion, filters, geometry
from ._dispatch import PIL, functional, kernel, through_tensor

__all__ = [
    "convert_image_dtype", "erase", "erase_image", "erase_video", "gaussian_blur", "gaussian_blur_image",
    "gaussian_blur_video", "gaussian_noise", "gaussian_noise_image", "gaussian_noise_video", "jpeg", "jpeg_image",
    "jpeg_video", "normalize", "normalize_image", "normalize_video", "pil_to_tensor", "to_dtype", "to_dtype_image",
    "to_dtype_video", "to_image", "to_pil_image", "to_tensor", "uniform_temporal_subsample",
    "uniform_temporal_subsample_video",
]  # fmt: skip

# -- numbers ----------------------------------------------------------------------------------------------------------


def normalize_image(image: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """Normalize channel by channel: (x - mean) / std."""
    if not image.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {image.dtype}.")
    if image.ndim < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got {image.shape}.")
    if isinstance(std, (tuple, list)) and not all(std):
        raise ValueError("std evaluated to zero, leading to division by zero.")
    return conversion.normalize(image, mean, std, inplace)


normalize = functional(normalize_image)


def to_dtype_image(image: Tensor, dtype: Any = flambeau.float32, scale: bool = False) -> Tensor:
    """Convert the dtype; with `scale`, values of images and videos are scaled to its range."""
    if image.dtype == dtype:
        return image
    return conversion.convert_dtype(image, dtype) if scale else image.to(dtype)


to_dtype = functional(to_dtype_image)


@kernel(to_dtype, Mask, BoundingBoxes, KeyPoints)
def _to_dtype_other(inpt: Tensor, dtype: Any = flambeau.float32, scale: bool = False) -> Tensor:
    """Convert the dtype of boxes, masks and points, without scaling."""
    return inpt.to(dtype)


def convert_image_dtype(image: Tensor, dtype: Any = flambeau.float32) -> Tensor:
    """Convert the image to another dtype, with its values scaled to that range."""
    return to_dtype_image(plain(image), dtype=dtype, scale=True)


# -- blur and noise ---------------------------------------------------------------------------------------------------


def gaussian_blur_image(image: Tensor, kernel_size: Any, sigma: Any = None) -> Tensor:
    """Blur an image with a Gaussian kernel."""
    return filters.gaussian_blur(image, *blur_arguments(kernel_size, sigma))


gaussian_blur = functional(gaussian_blur_image)


kernel(gaussian_blur, PIL)(through_tensor(gaussian_blur_image))


def gaussian_noise_image(image: Tensor, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Tensor:
    """Add normal noise to an image, in units of white."""
    if sigma < 0:
        raise ValueError(f"sigma shouldn't be negative. Got {sigma}")
    return filters.gaussian_noise(image, mean, sigma, clip)


gaussian_noise = functional(gaussian_noise_image)


@kernel(gaussian_noise, PIL)
def _gaussian_noise_pil(image: Any, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Any:
    raise ValueError("Gaussian Noise is not implemented for PIL images.")


# -- erasing and compression ------------------------------------------------------------------------------------------


def erase_image(image: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Tensor:
    """Set the window at (i, j) of size (h, w) to `v`."""
    return geometry.erase(image, i, j, h, w, v, inplace)


erase = functional(erase_image)


kernel(erase, PIL)(through_tensor(erase_image))


def _jpeg_pil(image: Any, quality: int) -> Any:
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=quality)
    return pillow().open(io.BytesIO(file.getvalue())).convert(image.mode)


def jpeg_image(image: Tensor, quality: int) -> Tensor:
    """Compress an image as JPEG and decompress it."""
    if image.dtype != flambeau.uint8:
        raise RuntimeError(f"Input tensor dtype should be uint8, got {image.dtype}")
    if image.shape[-3] not in (1, 3):
        raise RuntimeError(f"The number of channels should be 1 or 3, got: {image.shape[-3]}")
    if image.numel() == 0:
        return image
    frames = [
        conversion.pil_to_tensor(_jpeg_pil(conversion.to_pil_image(frame), quality))
        for frame in image.reshape(-1, *image.shape[-3:])
    ]
    return flambeau.stack(frames).view(image.shape)


jpeg = functional(jpeg_image)
kernel(jpeg, PIL)(_jpeg_pil)


# -- frames -----------------------------------------------------------------------------------------------------------


def uniform_temporal_subsample_video(video: Tensor, num_samples: int) -> Tensor:
    """Select `num_samples` frames at equal distances."""
    last = video.shape[-4] - 1
    chosen = flambeau.linspace(0, last, num_samples, device=video.device).long()
    return flambeau.index_select(video, -4, chosen)


uniform_temporal_subsample = functional(uniform_temporal_subsample_video, Tensor, Video)


# -- conversions ------------------------------------------------------------------------------------------------------


def to_image(inpt: Any) -> Image:
    """Return a tensor, array or PIL image as `tv_tensors.Image`; values are unchanged."""
    if isinstance(inpt, np.ndarray):
        if inpt.ndim not in (2, 3):
            raise ValueError(f"Expected a 2D or 3D array, got {inpt.ndim}D")
        array = inpt[:, :, None] if inpt.ndim == 2 else inpt
        return Image(flambeau.from_numpy(np.array(array)).permute(2, 0, 1).contiguous())
    if is_pil(inpt):
        return Image(conversion.pil_to_tensor(inpt))
    if isinstance(inpt, Tensor):
        return Image(inpt)
    raise TypeError(f"Input can either be a pure Tensor, a numpy array, or a PIL image, but got {type(inpt)} instead.")


def to_tensor(inpt: Any) -> Tensor:
    """Convert a PIL image or array to a float tensor from 0 to 1. Prefer `to_image` and `to_dtype`."""
    return conversion.to_tensor(inpt)


def pil_to_tensor(pic: Any) -> Tensor:
    """Convert a PIL image to a (C, H, W) tensor without scaling."""
    return conversion.pil_to_tensor(pic)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """Convert a tensor or array to a PIL image."""
    return conversion.to_pil_image(pic, mode)


normalize_video, to_dtype_video, gaussian_blur_video = normalize_image, to_dtype_image, gaussian_blur_image
gaussian_noise_video, erase_video, jpeg_video = gaussian_noise_image, erase_image, jpeg_image
