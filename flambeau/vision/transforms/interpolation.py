"""Interpolation modes, and their names in Pillow."""

from __future__ import annotations

from enum import Enum
from typing import Any


class InterpolationMode(Enum):
    """Interpolation between pixels. BOX and HAMMING work on PIL images only."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Pillow's numbers.
_FROM_PIL = {
    0: InterpolationMode.NEAREST,
    1: InterpolationMode.LANCZOS,
    2: InterpolationMode.BILINEAR,
    3: InterpolationMode.BICUBIC,
    4: InterpolationMode.BOX,
    5: InterpolationMode.HAMMING,
}
TO_PIL = {mode: number for number, mode in _FROM_PIL.items()} | {InterpolationMode.NEAREST_EXACT: 0}


def interpolation_mode(value: Any, *, names: bool = True) -> InterpolationMode:
    """Return a mode given as itself, by Pillow's number or (if `names`) by its name."""
    if isinstance(value, InterpolationMode):
        return value
    if isinstance(value, int):
        return _FROM_PIL[value]
    if isinstance(value, str) and names:
        try:
            return InterpolationMode(value.lower())
        except ValueError as problem:
            known = ", ".join(repr(mode.value) for mode in InterpolationMode)
            raise ValueError(f"Unknown interpolation mode {value!r}; expected one of {known}") from problem
    raise TypeError(
        f"Argument interpolation should be a InterpolationMode or a corresponding Pillow integer constant, but got {type(value)}."
    )
