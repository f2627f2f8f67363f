"""Policies of the automatic augmentations: the learned ones of AutoAugment (Cubuk et al., 2018; in flambeau/data), and the range of every
operation in AutoAugment, RandAugment (Cubuk et al., 2019), TrivialAugment (Müller and Hutter, 2021) and AugMix (Hendrycks et al., 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import flambeau
from flambeau import Tensor

_DATA = Path(__file__).parents[2] / "data"


class AutoAugmentPolicy(Enum):
    """The data set that an AutoAugment policy was learned on."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


Step = tuple[str, float, "int | None"]


def policies(policy: AutoAugmentPolicy) -> list[tuple[Step, ...]]:
    """Return the pairs of operations of a learned policy."""
    if not isinstance(policy, AutoAugmentPolicy):
        raise ValueError(f"The provided policy {policy} is not recognized.")
    text = (_DATA / "auto_augment_policies.txt").read_text(encoding="utf-8")
    lines = text.partition(f"[{policy.value}]\n")[2].partition("[")[0].splitlines()
    return [tuple(_step(part) for part in line.split(" + ")) for line in lines]


def _step(text: str) -> Step:
    name, probability, *magnitude = text.split()
    return name, float(probability), int(magnitude[0]) if magnitude else None


# An operation's magnitudes for (number of bins, height, width), or None where it has none; and whether it goes both ways.
Space = dict[str, tuple[Callable[[int, int, int], "Tensor | None"], bool]]


def _linear_to(limit: float) -> Callable:
    return lambda bins, height, width: flambeau.linspace(0.0, limit, bins)


def _no_magnitudes(bins: int, height: int, width: int) -> None:
    return None


def _geometric(shear: float, across: Callable, down: Callable, rotate: float) -> Space:
    return {
        "ShearX": (_linear_to(shear), True),
        "ShearY": (_linear_to(shear), True),
        "TranslateX": (across, True),
        "TranslateY": (down, True),
        "Rotate": (_linear_to(rotate), True),
    }


def _colors(limit: float) -> Space:
    return {name: (_linear_to(limit), True) for name in ("Brightness", "Color", "Contrast", "Sharpness")}


def _tones(bits: int, steps: float, white: float) -> Space:
    return {
        "Posterize": (
            lambda bins, height, width: bits - (flambeau.arange(bins) / ((bins - 1) / steps)).round().int(),
            False,
        ),
        "Solarize": (lambda bins, height, width: flambeau.linspace(white, 0.0, bins), False),
        "AutoContrast": (_no_magnitudes, False),
        "Equalize": (_no_magnitudes, False),
    }


def _translations(fraction: float) -> tuple[Callable, Callable]:
    """Return translations up to a fraction of the width, and of the height."""
    return (
        lambda bins, height, width: flambeau.linspace(0.0, fraction * width, bins),
        lambda bins, height, width: flambeau.linspace(0.0, fraction * height, bins),
    )


class Spaces:
    """The operations of each method; thresholds of Solarize count up to `white`."""

    def __init__(self, white: float) -> None:
        still: Space = {"Identity": (_no_magnitudes, False)}
        learned = {**_geometric(0.3, *_translations(150.0 / 331.0), 30.0), **_colors(0.9), **_tones(8, 4, white)}
        wide = {**_geometric(0.99, _linear_to(32.0), _linear_to(32.0), 135.0), **_colors(0.99), **_tones(8, 6, white)}
        self.auto_augment: Space = {**learned, "Invert": (_no_magnitudes, False)}
        self.rand_augment: Space = {**still, **learned}
        self.trivial_augment: Space = {**still, **wide}
        self.aug_mix_partial: Space = {**_geometric(0.3, *_translations(1.0 / 3.0), 30.0), **_tones(4, 4, white)}
        self.aug_mix: Space = {**self.aug_mix_partial, **_colors(0.9)}


IN_BYTES, IN_UNITS = Spaces(255.0), Spaces(1.0)


def apply(F: Any, img: Any, name: str, magnitude: float, interpolation: Any, fill: Any) -> Any:
    """Apply an operation by the functions of `F` (of either generation)."""
    options = {"interpolation": interpolation, "fill": fill}
    still: dict[str, Any] = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]}
    if name == "Identity":
        return img
    if name in ("ShearX", "ShearY"):
        # The magnitude is a slope; about the upper left corner, as Pillow shears.
        angle = math.degrees(math.atan(magnitude))
        return F.affine(
            img, **{**still, "shear": [angle, 0.0] if name == "ShearX" else [0.0, angle]}, **options, center=[0, 0]
        )
    if name in ("TranslateX", "TranslateY"):
        way = int(magnitude)
        return F.affine(img, **{**still, "translate": [way, 0] if name == "TranslateX" else [0, way]}, **options)
    if name == "Rotate":
        return F.rotate(img, angle=magnitude, **options)
    if name in _BLENDS:
        return getattr(F, _BLENDS[name])(img, 1.0 + magnitude)
    if name == "Posterize":
        return F.posterize(img, int(magnitude))
    if name == "Solarize":
        return F.solarize(img, magnitude)
    if name in ("AutoContrast", "Equalize", "Invert"):
        return getattr(F, name.lower())(img)
    raise ValueError(f"The provided operator {name} is not recognized.")


_BLENDS = {
    "Brightness": "adjust_brightness",
    "Color": "adjust_saturation",
    "Contrast": "adjust_contrast",
    "Sharpness": "adjust_sharpness",
}
