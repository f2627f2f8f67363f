"""Colour functionals of images and videos; boxes, masks and points have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import Tensor

from .....utils.pillow import is_pil
from ....tv_tensors import Image
from ...arguments import check_gamma, check_hue, check_not_negative
from ...kernels import color, conversion, filters, pil
from ._dispatch import PIL, TENSORS, functional

__all__ = [
    "adjust_brightness", "adjust_brightness_image", "adjust_brightness_video", "adjust_contrast",
    "adjust_contrast_image", "adjust_contrast_video", "adjust_gamma", "adjust_gamma_image", "adjust_gamma_video",
    "adjust_hue", "adjust_hue_image", "adjust_hue_video", "adjust_saturation", "adjust_saturation_image",
    "adjust_saturation_video", "adjust_sharpness", "adjust_sharpness_image", "adjust_sharpness_video", "autocontrast",
    "autocontrast_image", "autocontrast_video", "equalize", "equalize_image", "equalize_video", "grayscale_to_rgb",
    "grayscale_to_rgb_image", "invert", "invert_image", "invert_video", "permute_channels", "permute_channels_image",
    "permute_channels_video", "posterize", "posterize_image", "posterize_video", "rgb_to_grayscale",
    "rgb_to_grayscale_image", "solarize", "solarize_image", "solarize_video", "to_grayscale",
]  # fmt: skip


def _call_kernel(image: Any, on_tensor: Callable, on_pil: Callable, *args: Any, **options: Any) -> Any:
    """Call the kernel for tensors or the one for PIL images; `options` are for tensors only."""
    if is_pil(image):
        return on_pil(image, *args)
    _needs_color(image)
    return on_tensor(image, *args, **options)


def _needs_color(image: Tensor) -> None:
    found = image.shape[-3]
    if found not in (1, 3):
        raise TypeError(f"Input image tensor permitted channel values are 1 or 3, but found {found}")


def rgb_to_grayscale_image(image: Any, num_output_channels: int = 1) -> Any:
    """Convert an image to greyscale with one or three channels."""
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels must be 1 or 3, got {num_output_channels}.")
    if is_pil(image):
        return pil.to_grayscale(image, num_output_channels)
    _needs_color(image)
    if image.shape[-3] == 1 and num_output_channels == 1:
        return image.clone()
    return color.rgb_to_grayscale(image, num_output_channels, exact=True)


def grayscale_to_rgb_image(image: Any) -> Any:
    """Expand a grey image to three equal channels; others pass unchanged."""
    if is_pil(image):
        return image.convert(mode="RGB")
    return image if image.shape[-3] >= 3 else image.expand(*image.shape[:-3], 3, *image.shape[-2:])


rgb_to_grayscale = functional(rgb_to_grayscale_image, Tensor, Image, PIL)
grayscale_to_rgb = functional(grayscale_to_rgb_image, Tensor, Image, PIL)


def to_grayscale(inpt: Any, num_output_channels: int = 1) -> Any:
    """Convert to greyscale: the older name of `rgb_to_grayscale`."""
    return rgb_to_grayscale(inpt, num_output_channels=num_output_channels)


# -- amounts ----------------------------------------------------------------------------------------------------------


def adjust_brightness_image(image: Any, brightness_factor: float) -> Any:
    """Change the brightness: factor 0 gives black, 1 the image itself, 2 doubles it."""
    check_not_negative("brightness_factor", brightness_factor)
    return _call_kernel(image, color.adjust_brightness, pil.adjust_brightness, brightness_factor)


def adjust_contrast_image(image: Any, contrast_factor: float) -> Any:
    """Change the contrast: factor 0 gives the mean grey, 1 the image itself."""
    check_not_negative("contrast_factor", contrast_factor)
    return _call_kernel(image, color.adjust_contrast, pil.adjust_contrast, contrast_factor, exact=True)


def adjust_saturation_image(image: Any, saturation_factor: float) -> Any:
    """Change the saturation: factor 0 gives grey, 1 the image itself."""
    check_not_negative("saturation_factor", saturation_factor)
    return _call_kernel(image, color.adjust_saturation, pil.adjust_saturation, saturation_factor, exact=True)


def adjust_sharpness_image(image: Any, sharpness_factor: float) -> Any:
    """Change the sharpness: factor 0 blurs, 1 gives the image itself, 2 sharpens."""
    check_not_negative("sharpness_factor", sharpness_factor)
    return _call_kernel(image, filters.adjust_sharpness, pil.adjust_sharpness, sharpness_factor, exact=True)


def adjust_hue_image(image: Any, hue_factor: float) -> Any:
    """Rotate the hue by `hue_factor` turns."""
    check_hue(hue_factor)
    return _call_kernel(image, color.adjust_hue, pil.adjust_hue, hue_factor)


def adjust_gamma_image(image: Any, gamma: float, gain: float = 1.0) -> Any:
    """Correct gamma: white * gain * (value / white) ** gamma."""
    check_gamma(gamma)
    return (pil.adjust_gamma if is_pil(image) else color.adjust_gamma)(image, gamma, gain)


# -- tones ------------------------------------------------------------------------------------------------------------


def invert_image(image: Any) -> Any:
    """Invert the colours of an image."""
    return (pil.invert if is_pil(image) else color.invert)(image)


def posterize_image(image: Any, bits: int) -> Any:
    """Keep the highest `bits` of every value."""
    return (pil.posterize if is_pil(image) else color.posterize)(image, bits)


def solarize_image(image: Any, threshold: float) -> Any:
    """Invert values that are at least the threshold."""
    if is_pil(image):
        return pil.solarize(image, threshold)
    if threshold > conversion.max_value(image.dtype):
        raise TypeError(f"Threshold should be less or equal the maximum value of the dtype, but got {threshold}")
    return color.solarize(image, threshold)


def autocontrast_image(image: Any) -> Any:
    """Stretch every channel to the whole range."""
    return _call_kernel(image, color.autocontrast, pil.autocontrast, exact=True)


def equalize_image(image: Any) -> Any:
    """Equalize the histogram of every channel."""
    return (pil.equalize if is_pil(image) else color.equalize)(image)


def permute_channels_image(image: Any, permutation: Sequence[int]) -> Any:
    """Return the channels in another order."""
    if is_pil(image):
        return conversion.to_pil_image(color.permute_channels(conversion.pil_to_tensor(image), permutation))
    return color.permute_channels(image, permutation)


adjust_brightness = functional(adjust_brightness_image, *TENSORS, PIL)
adjust_contrast = functional(adjust_contrast_image, *TENSORS, PIL)
adjust_saturation = functional(adjust_saturation_image, *TENSORS, PIL)
adjust_sharpness = functional(adjust_sharpness_image, *TENSORS, PIL)
adjust_hue = functional(adjust_hue_image, *TENSORS, PIL)
adjust_gamma = functional(adjust_gamma_image, *TENSORS, PIL)
invert = functional(invert_image, *TENSORS, PIL)
posterize = functional(posterize_image, *TENSORS, PIL)
solarize = functional(solarize_image, *TENSORS, PIL)
autocontrast = functional(autocontrast_image, *TENSORS, PIL)
equalize = functional(equalize_image, *TENSORS, PIL)
permute_channels = functional(permute_channels_image, *TENSORS, PIL)
adjust_brightness_video = adjust_brightness_image
adjust_contrast_video = adjust_contrast_image
adjust_saturation_video = adjust_saturation_image
adjust_sharpness_video = adjust_sharpness_image
adjust_hue_video = adjust_hue_image
adjust_gamma_video = adjust_gamma_image
invert_video = invert_image
posterize_video = posterize_image
solarize_video = solarize_image
autocontrast_video = autocontrast_image
equalize_video = equalize_image
permute_channels_video = permute_channels_image
