"""Colours of images and videos; boxes, masks and points have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import Tensor

from ....tv_tensors import Image, Video
from ...kernels import color, conversion, filters, pil
from ._dispatch import PIL, functional, kernel

_TENSORS = (Tensor, Image, Video)


def _needs_color(image: Tensor, *permitted: int) -> None:
    found = image.shape[-3]
    if found not in permitted:
        raise TypeError(f"Input image tensor permitted channel values are 1 or 3, but found {found}")


def rgb_to_grayscale_image(image: Tensor, num_output_channels: int = 1) -> Tensor:
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels must be 1 or 3, got {num_output_channels}.")
    _needs_color(image, 1, 3)
    if image.shape[-3] == 1 and num_output_channels == 1:
        return image.clone()
    return color.rgb_to_grayscale(image, num_output_channels, exact=True)


def _rgb_to_grayscale_pil(image: Any, num_output_channels: int = 1) -> Any:
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels must be 1 or 3, got {num_output_channels}.")
    return pil.to_grayscale(image, num_output_channels)


@functional
def rgb_to_grayscale(inpt: Any, num_output_channels: int = 1) -> Any:
    """Grey, with one or three channels."""
    raise NotImplementedError


kernel(rgb_to_grayscale, Tensor, Image)(rgb_to_grayscale_image)
kernel(rgb_to_grayscale, PIL)(_rgb_to_grayscale_pil)


def to_grayscale(inpt: Any, num_output_channels: int = 1) -> Any:
    """The same under its older name."""
    return rgb_to_grayscale(inpt, num_output_channels=num_output_channels)


def grayscale_to_rgb_image(image: Tensor) -> Tensor:
    if image.shape[-3] >= 3:
        return image
    return image.expand(*image.shape[:-3], 3, *image.shape[-2:])


def _grayscale_to_rgb_pil(image: Any) -> Any:
    return image.convert(mode="RGB")


@functional
def grayscale_to_rgb(inpt: Any) -> Any:
    """Three channels, equal where there was one."""
    raise NotImplementedError


kernel(grayscale_to_rgb, Tensor, Image)(grayscale_to_rgb_image)
kernel(grayscale_to_rgb, PIL)(_grayscale_to_rgb_pil)


# -- amounts ----------------------------------------------------------------------------------------------------------


def _positive(name: str, value: float) -> None:
    if value < 0:
        raise ValueError(f"{name} ({value}) is not non-negative.")


def adjust_brightness_image(image: Tensor, brightness_factor: float) -> Tensor:
    _positive("brightness_factor", brightness_factor)
    _needs_color(image, 1, 3)
    return color.adjust_brightness(image, brightness_factor)


def adjust_contrast_image(image: Tensor, contrast_factor: float) -> Tensor:
    _positive("contrast_factor", contrast_factor)
    _needs_color(image, 1, 3)
    return image if image.numel() == 0 else color.adjust_contrast(image, contrast_factor, exact=True)


def adjust_saturation_image(image: Tensor, saturation_factor: float) -> Tensor:
    _positive("saturation_factor", saturation_factor)
    _needs_color(image, 1, 3)
    return color.adjust_saturation(image, saturation_factor, exact=True)


def adjust_sharpness_image(image: Tensor, sharpness_factor: float) -> Tensor:
    if image.ndim > 2:
        _needs_color(image, 1, 3)
    _positive("sharpness_factor", sharpness_factor)
    return filters.adjust_sharpness(image, sharpness_factor, exact=True)


def adjust_hue_image(image: Tensor, hue_factor: float) -> Tensor:
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    _needs_color(image, 1, 3)
    return image if hue_factor == 0 else color.adjust_hue(image, hue_factor)


def adjust_gamma_image(image: Tensor, gamma: float, gain: float = 1.0) -> Tensor:
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    return color.adjust_gamma(image, gamma, gain)


def _permute_channels_pil(image: Any, permutation: Sequence[int]) -> Any:
    return conversion.to_pil_image(color.permute_channels(conversion.pil_to_tensor(image), permutation))


@functional
def adjust_brightness(inpt: Any, brightness_factor: float) -> Any:
    """0 is black, 1 the image, 2 twice as bright."""
    raise NotImplementedError


@functional
def adjust_contrast(inpt: Any, contrast_factor: float) -> Any:
    """0 is the mean grey, 1 the image."""
    raise NotImplementedError


@functional
def adjust_saturation(inpt: Any, saturation_factor: float) -> Any:
    """0 is grey, 1 the image."""
    raise NotImplementedError


@functional
def adjust_sharpness(inpt: Any, sharpness_factor: float) -> Any:
    """0 is blurred, 1 the image, 2 sharper."""
    raise NotImplementedError


@functional
def adjust_hue(inpt: Any, hue_factor: float) -> Any:
    """The colour circle turned by `hue_factor` turns."""
    raise NotImplementedError


@functional
def adjust_gamma(inpt: Any, gamma: float, gain: float = 1) -> Any:
    """white * gain * (value / white) ** gamma."""
    raise NotImplementedError


def _adjust_brightness_pil(image: Any, brightness_factor: float) -> Any:
    _positive("brightness_factor", brightness_factor)
    return pil.adjust_brightness(image, brightness_factor)


def _adjust_contrast_pil(image: Any, contrast_factor: float) -> Any:
    _positive("contrast_factor", contrast_factor)
    return pil.adjust_contrast(image, contrast_factor)


def _adjust_saturation_pil(image: Any, saturation_factor: float) -> Any:
    _positive("saturation_factor", saturation_factor)
    return pil.adjust_saturation(image, saturation_factor)


def _adjust_sharpness_pil(image: Any, sharpness_factor: float) -> Any:
    _positive("sharpness_factor", sharpness_factor)
    return pil.adjust_sharpness(image, sharpness_factor)


def _adjust_hue_pil(image: Any, hue_factor: float) -> Any:
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    return pil.adjust_hue(image, hue_factor)


def _adjust_gamma_pil(image: Any, gamma: float, gain: float = 1) -> Any:
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    return pil.adjust_gamma(image, gamma, gain)


# -- tones ------------------------------------------------------------------------------------------------------------


def invert_image(image: Tensor) -> Tensor:
    return color.invert(image)


def posterize_image(image: Tensor, bits: int) -> Tensor:
    return color.posterize(image, bits)


def solarize_image(image: Tensor, threshold: float) -> Tensor:
    if threshold > conversion.max_value(image.dtype):
        raise TypeError(f"Threshold should be less or equal the maximum value of the dtype, but got {threshold}")
    return color.solarize(image, threshold)


def autocontrast_image(image: Tensor) -> Tensor:
    if image.ndim > 2:
        _needs_color(image, 1, 3)
    return color.autocontrast(image, exact=True)


def equalize_image(image: Tensor) -> Tensor:
    return color.equalize(image)


def permute_channels_image(image: Tensor, permutation: Sequence[int]) -> Tensor:
    return color.permute_channels(image, permutation)


@functional
def invert(inpt: Any) -> Any:
    """White minus the image."""
    raise NotImplementedError


@functional
def posterize(inpt: Any, bits: int) -> Any:
    """Only the highest `bits` of every value kept."""
    raise NotImplementedError


@functional
def solarize(inpt: Any, threshold: float) -> Any:
    """Inverted where the value is at least the threshold."""
    raise NotImplementedError


@functional
def autocontrast(inpt: Any) -> Any:
    """Every channel stretched to the whole range."""
    raise NotImplementedError


@functional
def equalize(inpt: Any) -> Any:
    """The histogram of every channel made flat."""
    raise NotImplementedError


@functional
def permute_channels(inpt: Any, permutation: list[int]) -> Any:
    """The channels in another order."""
    raise NotImplementedError


_FACES = (
    (adjust_brightness, adjust_brightness_image, _adjust_brightness_pil),
    (adjust_contrast, adjust_contrast_image, _adjust_contrast_pil),
    (adjust_saturation, adjust_saturation_image, _adjust_saturation_pil),
    (adjust_sharpness, adjust_sharpness_image, _adjust_sharpness_pil),
    (adjust_hue, adjust_hue_image, _adjust_hue_pil),
    (adjust_gamma, adjust_gamma_image, _adjust_gamma_pil),
    (invert, invert_image, pil.invert),
    (posterize, posterize_image, pil.posterize),
    (solarize, solarize_image, pil.solarize),
    (autocontrast, autocontrast_image, pil.autocontrast),
    (equalize, equalize_image, pil.equalize),
    (permute_channels, permute_channels_image, _permute_channels_pil),
)
for _face, _on_tensor, _on_pil in _FACES:
    kernel(_face, *_TENSORS)(_on_tensor)
    kernel(_face, PIL)(_on_pil)

adjust_brightness_video, adjust_contrast_video = adjust_brightness_image, adjust_contrast_image
adjust_saturation_video, adjust_sharpness_video = adjust_saturation_image, adjust_sharpness_image
adjust_hue_video, adjust_gamma_video, invert_video = adjust_hue_image, adjust_gamma_image, invert_image
posterize_video, solarize_video, autocontrast_video = posterize_image, solarize_image, autocontrast_image
equalize_video, permute_channels_video = equalize_image, permute_channels_image
