"""Validation of the arguments of transforms."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

from .interpolation import InterpolationMode


def is_number(value: Any) -> bool:
    """Return whether a setting is one number, not a sequence of them."""
    return isinstance(value, numbers.Number)


def pair(size: Any, message: str) -> tuple[int, int]:
    """Return (height, width) from a number or a sequence."""
    if is_number(size):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(message)
    return size


def crop_size(size: Any, exact: bool = False) -> tuple[int, int]:
    """Return (height, width) from a number or a sequence; `exact`: of no more than two numbers."""
    if is_number(size):
        return int(size), int(size)
    if exact and len(size) not in (1, 2):
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    return size[0], size[0] if len(size) == 1 else size[1]


def check_sequence(value: Any, name: str, lengths: tuple[int, ...]) -> None:
    words = f"{lengths[0]}" if len(lengths) == 1 else " or ".join(str(n) for n in lengths)
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of length {words}.")
    if len(value) not in lengths:
        raise ValueError(f"{name} should be a sequence of length {words}.")


def symmetric_range(value: Any, name: str, lengths: tuple[int, ...] = (2,)) -> list[float]:
    """Return [-value, value], or the given bounds as floats."""
    if is_number(value):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        value = [-value, value]
    else:
        check_sequence(value, name, lengths)
    return [float(x) for x in value]


def check_fill_type(fill: Any) -> None:
    if not isinstance(fill, (numbers.Number, str, tuple, list)):
        raise TypeError("Got inappropriate fill arg")


def affine_arguments(angle: Any, translate: Any, scale: Any, shear: Any) -> tuple[float, list, list]:
    """Check the arguments of an affine map; return (angle, translate, shear)."""
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    if not isinstance(translate, (list, tuple)):
        raise TypeError("Argument translate should be a sequence")
    if len(translate) != 2:
        raise ValueError("Argument translate should be a sequence of length 2")
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    if not isinstance(shear, (numbers.Number, list, tuple)):
        raise TypeError("Shear should be either a single value or a sequence of two values")
    shears = [shear, 0.0] if isinstance(shear, numbers.Number) else list(shear)
    if len(shears) == 1:
        shears = [shears[0], shears[0]]
    if len(shears) != 2:
        raise ValueError(f"Shear should be a sequence containing two values. Got {shear}")
    return float(angle), list(translate), shears


def sampling_mode(mode: InterpolationMode, *more: InterpolationMode) -> str:
    """Return grid_sample's name of an interpolation mode: nearest, bilinear, or one of `more`; raises ValueError for others."""
    if mode not in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR, *more):
        raise ValueError(f"Interpolation mode '{mode.value}' is unsupported with Tensor input")
    return mode.value


def check_warp_fill(fill: Any, channels: int) -> None:
    """Raise unless this is None, a number, or one number for every channel."""
    if fill is None:
        return
    if not isinstance(fill, (int, float, tuple, list)):
        raise ValueError("Argument fill should be either int, float, tuple or list")
    if isinstance(fill, (tuple, list)) and 1 < len(fill) != channels:
        raise ValueError(
            f"The number of elements in 'fill' cannot broadcast to match the number of channels of the image ({len(fill)} != {channels})"
        )


def check_not_negative(name: str, factor: float) -> None:
    if factor < 0:
        raise ValueError(f"{name} ({factor}) is not non-negative.")


def check_hue(factor: float) -> None:
    if not -0.5 <= factor <= 0.5:
        raise ValueError(f"hue_factor ({factor}) is not in [-0.5, 0.5].")


def check_gamma(gamma: float) -> None:
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")


def blur_arguments(kernel_size: Any, sigma: Any) -> tuple[list[int], list[float]]:
    """Check kernel size and standard deviation; return both as (x, y)."""
    if not isinstance(kernel_size, (int, list, tuple)):
        raise TypeError(f"kernel_size should be int or a sequence of integers. Got {type(kernel_size)}")
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if len(sizes) != 2:
        raise ValueError(f"If kernel_size is a sequence its length should be 2. Got {len(sizes)}")
    for size in sizes:
        if size % 2 == 0 or size < 0:
            raise ValueError(f"kernel_size should have odd and positive integers. Got {sizes}")
    if sigma is None:
        sigma = [size * 0.15 + 0.35 for size in sizes]
    if not isinstance(sigma, (int, float, list, tuple)):
        raise TypeError(f"sigma should be either float or sequence of floats. Got {type(sigma)}")
    sigmas = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else list(sigma)
    if len(sigmas) == 1:
        sigmas = [sigmas[0], sigmas[0]]
    if len(sigmas) != 2:
        raise ValueError(f"If sigma is a sequence, its length should be 2. Got {len(sigmas)}")
    for value in sigmas:
        if value <= 0.0:
            raise ValueError(f"sigma should have positive values. Got {sigmas}")
    return sizes, sigmas
