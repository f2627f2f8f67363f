"""Colour kernels on tensors (..., C, H, W).

torchvision has two generations of these; they differ in where a result is rounded, which shows in the last bit of bytes. `exact`
arguments below choose the newer one's arithmetic.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor

from . import formulas
from .conversion import convert_dtype, max_value


def check_channels(image: Tensor, permitted: tuple[int, ...]) -> None:
    found = 1 if image.ndim == 2 else image.shape[-3]
    if found not in permitted:
        raise TypeError(f"Input image tensor permitted channel values are {list(permitted)}, but found {found}")


def rgb_to_grayscale(image: Tensor, channels: int = 1, exact: bool = False) -> Tensor:
    """Return the grey channel, or three equal ones."""
    if image.shape[-3] == 3:
        red, green, blue = (image[..., i : i + 1, :, :] for i in range(3))
        image = (formulas.luminance_in_steps if exact else formulas.luminance)(red, green, blue)
    if channels == 3:
        return image.expand(*image.shape[:-3], 3, *image.shape[-2:])
    return image


def adjust_brightness(image: Tensor, factor: float) -> Tensor:
    return formulas.scaled(image, float(factor), float(max_value(image.dtype)))


def blend(image: Tensor, other: Tensor, ratio: float, exact: bool = False) -> Tensor:
    """Return `ratio` of the image plus the rest of the other, in the dtype of the image."""
    ratio, bound = float(ratio), float(max_value(image.dtype))
    if exact:
        if ratio == 1.0:
            return image
        return formulas.blended_in_one_step(image, other, ratio, 1.0 - ratio, bound)
    return formulas.blended(image, other, ratio, 1.0 - ratio, bound)


def adjust_contrast(image: Tensor, factor: float, exact: bool = False) -> Tensor:
    gray = rgb_to_grayscale(image, exact=exact)
    kind = image.dtype if image.is_floating_point() else flambeau.float32
    mean = gray.to(kind).mean(dim=(-3, -2, -1), keepdim=True)
    return blend(image, mean, factor, exact)


def adjust_saturation(image: Tensor, factor: float, exact: bool = False) -> Tensor:
    if image.shape[-3] == 1:
        return image
    return blend(image, rgb_to_grayscale(image, exact=exact), factor, exact)


def adjust_hue(image: Tensor, factor: float) -> Tensor:
    if image.shape[-3] == 1 or image.numel() == 0:
        return image
    own = image.dtype
    unit = convert_dtype(image, flambeau.float32)
    channel = flambeau.tensor([5.0, 3.0, 1.0], dtype=unit.dtype, device=unit.device).view(3, 1, 1)
    parts = (unit[..., i : i + 1, :, :] for i in range(3))
    return convert_dtype(formulas.hue_shifted(*parts, channel, float(factor)), own)


def adjust_gamma(image: Tensor, gamma: float, gain: float = 1.0) -> Tensor:
    own = image.dtype
    unit = image if image.is_floating_point() else convert_dtype(image, flambeau.float32)
    return convert_dtype(formulas.gamma_curve(unit, float(gamma), float(gain)), own)


def invert(image: Tensor) -> Tensor:
    if image.is_floating_point():
        return 1.0 - image
    if image.dtype == flambeau.uint8:
        return image.bitwise_not()
    return image.bitwise_xor(max_value(image.dtype))


def posterize(image: Tensor, bits: int) -> Tensor:
    """Keep the highest `bits` of every value."""
    if image.is_floating_point():
        return formulas.quantized(image, float(1 << bits))
    value_bits = max_value(image.dtype).bit_length()
    if bits >= value_bits:
        return image
    return image & (((1 << bits) - 1) << (value_bits - bits))


def solarize(image: Tensor, threshold: float) -> Tensor:
    return flambeau.where(image >= threshold, invert(image), image)


def autocontrast(image: Tensor, exact: bool = False) -> Tensor:
    """Stretch every channel to the whole range; a channel of one value stays."""
    if image.numel() == 0:
        return image
    bound = float(max_value(image.dtype))
    kind = image.dtype if image.is_floating_point() else flambeau.float32
    low = image.amin(dim=(-2, -1), keepdim=True).to(kind)
    high = image.amax(dim=(-2, -1), keepdim=True).to(kind)
    flat = low == high
    if exact:
        width = (high - low).mul_(1.0 / bound).masked_fill_(flat, 1.0)
        return formulas.stretched_by_division(image, low.masked_fill(flat, 0.0), width, bound)
    scale = (high - low).reciprocal_().mul_(bound).masked_fill_(flat, 1.0)
    return formulas.stretched(image, low.masked_fill(flat, 0.0), scale, bound)


def equalize(image: Tensor) -> Tensor:
    """Equalize the histogram of every channel, with Pillow's integer arithmetic; floats are converted to bytes and back."""
    if image.numel() == 0:
        return image
    own = image.dtype
    if own != flambeau.uint8:
        return convert_dtype(equalize(convert_dtype(image, flambeau.uint8)), own)
    planes = image.contiguous().view(-1, image.shape[-2] * image.shape[-1])
    offsets = flambeau.arange(len(planes), device=image.device).mul_(256).view(-1, 1)
    slots = planes.long() + offsets
    histogram = flambeau.bincount(slots.view(-1), minlength=256 * len(planes)).view(-1, 256)
    running = histogram.cumsum(-1)
    # The step leaves out the brightest value that occurs, so that it maps to 255.
    last = planes.amax(-1, keepdim=True).long()
    step = (running[:, -1:] - histogram.gather(-1, last)).div(255, rounding_mode="floor")
    before = flambeau.cat([running.new_zeros(len(planes), 1), running[:, :-1]], -1)
    half = step.div(2, rounding_mode="floor")
    table = (before + half).div(step.clamp(min=1), rounding_mode="floor").clamp_(0, 255)
    table = flambeau.where(step == 0, flambeau.arange(256, device=image.device), table).to(flambeau.uint8)
    return table.view(-1).gather(0, slots.view(-1)).view(image.shape)


def permute_channels(image: Tensor, permutation: Any) -> Tensor:
    if len(permutation) != image.shape[-3]:
        raise ValueError(
            f"Length of permutation does not match number of channels: {len(permutation)} != {image.shape[-3]}"
        )
    if image.numel() == 0:
        return image
    return image[..., list(permutation), :, :]
