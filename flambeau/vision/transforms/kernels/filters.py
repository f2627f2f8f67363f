"""Blurring, sharpening and noise on tensors (..., C, H, W)."""

from __future__ import annotations

from collections.abc import Sequence

import flambeau
from flambeau import Tensor
from flambeau.nn.functional import conv2d
from flambeau.nn.functional import pad as pad_border

from . import formulas
from .conversion import max_value


def _gaussian(size: int, sigma: float, dtype: flambeau.dtype) -> Tensor:
    """Return a Gaussian kernel of odd length that sums to one."""
    half = (size - 1) * 0.5
    x = flambeau.linspace(-half, half, steps=size, dtype=dtype)
    weights = flambeau.exp(-0.5 * (x / sigma).pow(2))
    return weights / weights.sum()


def _filter_channels(batch: Tensor, kernel: Tensor) -> Tensor:
    channels = batch.shape[-3]
    return conv2d(batch, kernel.expand(channels, 1, *kernel.shape), groups=channels)


def gaussian_blur(image: Tensor, kernel_size: Sequence[int], sigma: Sequence[float]) -> Tensor:
    """Convolve with a Gaussian, `kernel_size` and `sigma` as (x, y); the border is mirrored."""
    if image.numel() == 0:
        return image
    own = image.dtype
    work = image if own.is_floating_point else image.to(flambeau.float32)
    across, down = (_gaussian(int(k), float(s), work.dtype) for k, s in zip(kernel_size, sigma))
    kernel = flambeau.outer(down, across).to(image.device)
    batch = work.reshape(-1, *image.shape[-3:]) if image.ndim > 2 else work.reshape(1, 1, *image.shape)
    x, y = kernel_size[0] // 2, kernel_size[1] // 2
    out = _filter_channels(pad_border(batch, [x, x, y, y], mode="reflect"), kernel)
    if not own.is_floating_point:
        out = out.round_().to(own)
    return out.reshape(image.shape)


def adjust_sharpness(image: Tensor, factor: float, exact: bool = False) -> Tensor:
    """Blend with a slightly smoothed image (weights 1, in the middle 5, of 13); the outermost pixels stay."""
    height, width = image.shape[-2:]
    if image.numel() == 0 or height <= 2 or width <= 2:
        return image
    own = image.dtype
    kind = own if own.is_floating_point else flambeau.float32
    kernel = flambeau.ones(3, 3, dtype=kind, device=image.device)
    kernel[1, 1] = 5.0
    kernel /= kernel.sum()
    smooth = _filter_channels(image.reshape(-1, *image.shape[-3:]).to(kind), kernel)
    smooth = smooth.reshape(*image.shape[:-2], height - 2, width - 2)
    if not own.is_floating_point:
        smooth = smooth.round_()
    bound = float(max_value(own))
    if exact:
        out = image.clamp(0, bound) if own.is_floating_point else image.clone()
        out[..., 1:-1, 1:-1] = formulas.moved_away(image[..., 1:-1, 1:-1], smooth, 1.0 - float(factor), bound)
        return out
    other = image.to(kind, copy=True)
    other[..., 1:-1, 1:-1] = smooth
    return formulas.blended(image, other, float(factor), 1.0 - float(factor), bound)


def gaussian_noise(image: Tensor, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Tensor:
    """Add normal noise, in units of white; for bytes its fraction is truncated."""
    if image.dtype == flambeau.uint8:
        noise = flambeau.randn_like(image, dtype=flambeau.float32).mul_(sigma).add_(mean).mul_(255)
        noisy = image + noise.to(flambeau.int16)
        return (noisy.clamp_(0, 255) if clip else noisy).to(flambeau.uint8)
    if not image.is_floating_point():
        raise ValueError(f"Input tensor is expected to be in uint8 or float dtype, got dtype={image.dtype}")
    noisy = image + (mean + flambeau.randn_like(image) * sigma)
    return noisy.clamp_(0, 1) if clip else noisy
