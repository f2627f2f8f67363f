"""Classic transforms that change colours."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn

from . import draws
from . import functional as F
from .arguments import is_number
from .geometric import check_scale_and_ratio

__all__ = [
    "ColorJitter", "GaussianBlur", "Grayscale", "RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize",
    "RandomErasing", "RandomGrayscale", "RandomInvert", "RandomPosterize", "RandomSolarize",
]  # fmt: skip


def jitter_range(value: Any, name: str, center: float = 1.0, bound: tuple[float, float] = (0.0, float("inf")), clip_first: bool = True) -> tuple[float, float] | None:  # fmt: skip
    """Return (low, high) around `center` from one number, or the given bounds; None if nothing would change."""
    if is_number(value):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        value = [center - float(value), center + float(value)]
        if clip_first:
            value[0] = max(value[0], 0.0)
    elif not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not bound[0] <= value[0] <= value[1] <= bound[1]:
        raise ValueError(f"{name} values should be between {bound}, but got {value}.")
    return None if value[0] == value[1] == center else tuple(value)


JITTERS: tuple[Callable, ...] = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


class ColorJitter(nn.Module):
    """Change brightness, contrast, saturation and hue by random amounts, in a random order."""

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        super().__init__()
        self.brightness = jitter_range(brightness, "brightness")
        self.contrast = jitter_range(contrast, "contrast")
        self.saturation = jitter_range(saturation, "saturation")
        self.hue = jitter_range(hue, "hue", center=0, bound=(-0.5, 0.5), clip_first=False)

    @staticmethod
    def get_params(brightness: Any, contrast: Any, saturation: Any, hue: Any) -> tuple[Any, ...]:
        """Draw (order, brightness, contrast, saturation, hue)."""
        order, amounts = draws.jitter(brightness, contrast, saturation, hue)
        return (order, *amounts)

    def forward(self, img: Any) -> Any:
        order, *amounts = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        for i in order.tolist():
            if amounts[i] is not None:
                img = JITTERS[i](img, amounts[i])
        return img

    def __repr__(self) -> str:
        names = ("brightness", "contrast", "saturation", "hue")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in names)})"


class Grayscale(nn.Module):
    """Convert an image to greyscale."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, num_output_channels=self.num_output_channels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_output_channels={self.num_output_channels})"


class RandomGrayscale(nn.Module):
    """Convert an image to greyscale with probability p, keeping the number of channels."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        channels, _, _ = F.get_dimensions(img)
        return F.rgb_to_grayscale(img, num_output_channels=channels) if draws.happens(self.p) else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomErasing(nn.Module):
    """Erase a random box of the tensor with probability p: fill it with a value, a colour or noise ("random")."""

    def __init__(self, p: float = 0.5, scale: Any = (0.02, 0.33), ratio: Any = (0.3, 3.3), value: Any = 0, inplace: bool = False) -> None:  # fmt: skip
        super().__init__()
        check_erasing(p, scale, ratio, value)
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    @staticmethod
    def get_params(img: Tensor, scale: Any, ratio: Any, value: Any = None) -> tuple[Any, ...]:
        """Draw (top, left, height, width, colour); the whole image unchanged if no box fits."""
        box = draws.erasing(img.shape[-3:], scale, ratio, value)
        return (0, 0, *img.shape[-2:], img) if box is None else box

    def forward(self, img: Tensor) -> Tensor:
        if not draws.happens(self.p):
            return img
        value = erasing_value(self.value)
        if value is not None and len(value) not in (1, img.shape[-3]):
            raise ValueError(
                f"If value is a sequence, it should have either a single value or {img.shape[-3]} (number of input channels)"
            )
        top, left, height, width, color = self.get_params(img, self.scale, self.ratio, value)
        return F.erase(img, top, left, height, width, color, self.inplace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, scale={self.scale}, ratio={self.ratio}, value={self.value}, inplace={self.inplace})"


def check_erasing(p: Any, scale: Any, ratio: Any, value: Any) -> None:
    if not isinstance(value, (numbers.Number, str, tuple, list)):
        raise TypeError("Argument value should be either a number or str or a sequence")
    if isinstance(value, str) and value != "random":
        raise ValueError("If value is str, it should be 'random'")
    check_scale_and_ratio(scale, ratio)
    if scale[0] < 0 or scale[1] > 1:
        raise ValueError("Scale should be between 0 and 1")
    if p < 0 or p > 1:
        raise ValueError("Random erasing probability should be between 0 and 1")


def erasing_value(value: Any) -> list[float] | None:
    """Return the fill of an erased box per channel, or None for noise."""
    if isinstance(value, (int, float)):
        return [float(value)]
    if isinstance(value, str):
        return None
    return [float(v) for v in value]


class GaussianBlur(nn.Module):
    """Blur an image with a random standard deviation."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = blur_kernel_size(kernel_size)
        self.sigma = blur_sigma(sigma)

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """Draw the standard deviation."""
        return draws.uniform(sigma_min, sigma_max)

    def forward(self, img: Any) -> Any:
        sigma = self.get_params(self.sigma[0], self.sigma[1])
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kernel_size={self.kernel_size}, sigma={self.sigma})"


def blur_kernel_size(size: Any) -> tuple[int, int]:
    message = "Kernel size should be a tuple/list of two integers"
    if is_number(size):
        size = (size, size)
    elif isinstance(size, Sequence) and len(size) == 1:
        size = (size[0], size[0])
    elif len(size) != 2:
        raise ValueError(message)
    for side in size:
        if side <= 0 or side % 2 == 0:
            raise ValueError("Kernel size value should be an odd and positive number.")
    return size


def blur_sigma(sigma: Any) -> Any:
    if is_number(sigma):
        if sigma <= 0:
            raise ValueError("If sigma is a single number, it must be positive.")
        return (sigma, sigma)
    if isinstance(sigma, Sequence) and len(sigma) == 2:
        if not 0.0 < sigma[0] <= sigma[1]:
            raise ValueError("sigma values should be positive and of the form (min, max).")
        return sigma
    raise ValueError("sigma should be a single number or a list/tuple with length 2.")


class _RandomTransform(nn.Module):
    """Apply `change(img, self.option)`, the function of an image that a subclass names, with probability p."""

    change: Callable
    option = ""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        if flambeau.rand(1).item() >= self.p:
            return img
        return type(self).change(img, *([getattr(self, self.option)] if self.option else []))

    def __repr__(self) -> str:
        own = f"{self.option}={getattr(self, self.option)}," if self.option else ""
        return f"{type(self).__name__}({own}p={self.p})"


class RandomInvert(_RandomTransform):
    """Invert the colours of an image with probability p."""

    change = F.invert


class RandomPosterize(_RandomTransform):
    """Reduce the bits per value with probability p."""

    change, option = F.posterize, "bits"

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits


class RandomSolarize(_RandomTransform):
    """Invert values above the threshold, with probability p."""

    change, option = F.solarize, "threshold"

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold


class RandomAdjustSharpness(_RandomTransform):
    """Sharpen (factor above 1) or soften an image with probability p."""

    change, option = F.adjust_sharpness, "sharpness_factor"

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor


class RandomAutocontrast(_RandomTransform):
    """Stretch the contrast to the whole range with probability p."""

    change = F.autocontrast


class RandomEqualize(_RandomTransform):
    """Equalize the histogram with probability p."""

    change = F.equalize
