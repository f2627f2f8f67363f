"""Transforms of colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau

from .. import draws
from ..photometric import jitter_range
from . import functional as F
from ._transform import RandomApplyTransform, Transform, query_chw

__all__ = [
    "ColorJitter", "Grayscale", "RGB", "RandomAdjustSharpness", "RandomAutocontrast", "RandomChannelPermutation",
    "RandomEqualize", "RandomGrayscale", "RandomInvert", "RandomPhotometricDistort", "RandomPosterize",
    "RandomSolarize",
]  # fmt: skip

_JITTERS = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


class Grayscale(Transform):
    """Convert an image to greyscale."""

    _functional = staticmethod(F.rgb_to_grayscale)
    _options = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels


class RandomGrayscale(RandomApplyTransform):
    """Convert to greyscale with probability p, keeping the number of channels."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p=p)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"num_input_channels": query_chw(flat_inputs)[0]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return self._call_kernel(F.rgb_to_grayscale, inpt, num_output_channels=params["num_input_channels"])


class RGB(Transform):
    """Convert an image to three channels."""

    _functional = staticmethod(F.grayscale_to_rgb)


class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue by random amounts, in a random order."""

    def __init__(self, brightness: Any = None, contrast: Any = None, saturation: Any = None, hue: Any = None) -> None:
        super().__init__()
        self.brightness = self._range(brightness, "brightness")
        self.contrast = self._range(contrast, "contrast")
        self.saturation = self._range(saturation, "saturation")
        self.hue = self._range(hue, "hue", center=0, bound=(-0.5, 0.5), clip_first=False)

    @staticmethod
    def _range(value: Any, name: str, **options: Any) -> tuple[float, float] | None:
        if value is None:
            return None
        if not isinstance(value, (int, float)) and not (isinstance(value, Sequence) and len(value) == 2):
            raise TypeError(f"{name}={value} should be a single number or a sequence with length 2.")
        found = jitter_range(value, name, **options)
        return None if found is None else (float(found[0]), float(found[1]))

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        order, amounts = draws.jitter(self.brightness, self.contrast, self.saturation, self.hue)
        return {"order": order.tolist(), "amounts": amounts}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        for i in params["order"]:
            amount = params["amounts"][i]
            if amount is not None:
                inpt = self._call_kernel(_JITTERS[i], inpt, amount)
        return inpt


class RandomChannelPermutation(Transform):
    """Permute the channels at random."""

    _functional = staticmethod(F.permute_channels)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"permutation": flambeau.randperm(query_chw(flat_inputs)[0]).tolist()}


class RandomPhotometricDistort(Transform):
    """Apply the colour changes of SSD training: each with probability p, contrast before or after, and channels permuted."""

    def __init__(
        self,
        brightness: tuple[float, float] = (0.875, 1.125),
        contrast: tuple[float, float] = (0.5, 1.5),
        saturation: tuple[float, float] = (0.5, 1.5),
        hue: tuple[float, float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        super().__init__()
        self.brightness = brightness
        self.contrast = contrast
        self.hue = hue
        self.saturation = saturation
        self.p = p

    def _amount(self, bounds: tuple[float, float]) -> float | None:
        return draws.uniform(bounds[0], bounds[1]) if flambeau.rand(1) < self.p else None

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        channels = query_chw(flat_inputs)[0]
        params: dict[str, Any] = {
            name: self._amount(getattr(self, name)) for name in ("brightness", "contrast", "saturation", "hue")
        }
        params["contrast_before"] = bool(flambeau.rand(()) < 0.5)
        params["permutation"] = flambeau.randperm(channels).tolist() if flambeau.rand(1) < self.p else None
        return params

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        contrast = (F.adjust_contrast, params["contrast"])
        steps = [(F.adjust_brightness, params["brightness"])]
        if params["contrast_before"]:
            steps.append(contrast)
        steps += [(F.adjust_saturation, params["saturation"]), (F.adjust_hue, params["hue"])]
        if not params["contrast_before"]:
            steps.append(contrast)
        steps.append((F.permute_channels, params["permutation"]))
        for change, amount in steps:
            if amount is not None:
                inpt = self._call_kernel(change, inpt, amount)
        return inpt


class RandomEqualize(RandomApplyTransform):
    """Equalize the histogram with probability p."""

    _functional = staticmethod(F.equalize)


class RandomInvert(RandomApplyTransform):
    """Invert the colours with probability p."""

    _functional = staticmethod(F.invert)


class RandomPosterize(RandomApplyTransform):
    """Reduce the bits per value with probability p."""

    _functional = staticmethod(F.posterize)
    _options = ("bits",)

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.bits = bits


class RandomSolarize(RandomApplyTransform):
    """Invert values above the threshold, with probability p."""

    _functional = staticmethod(F.solarize)
    _options = ("threshold",)

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.threshold = threshold


class RandomAutocontrast(RandomApplyTransform):
    """Stretch the contrast to the whole range with probability p."""

    _functional = staticmethod(F.autocontrast)


class RandomAdjustSharpness(RandomApplyTransform):
    """Sharpen (factor above 1) or soften with probability p."""

    _functional = staticmethod(F.adjust_sharpness)
    _options = ("sharpness_factor",)

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.sharpness_factor = sharpness_factor
