"""Classic transforms that move pixels."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn

from . import draws
from . import functional as F
from .arguments import check_fill_type, check_sequence, pair, symmetric_range
from .interpolation import InterpolationMode, interpolation_mode

__all__ = [
    "CenterCrop", "ElasticTransform", "FiveCrop", "Pad", "RandomAffine", "RandomCrop", "RandomHorizontalFlip",
    "RandomPerspective", "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "Resize", "TenCrop",
]  # fmt: skip

_TWO_SIZES = "Please provide only two dimensions (h, w) for size."


def _fill_for(img: Any, fill: Any) -> Any:
    """Return the fill as one float per channel for a tensor; for PIL images, the fill as given."""
    if not isinstance(img, Tensor):
        return fill
    if isinstance(fill, (int, float)):
        return [float(fill)] * F.get_dimensions(img)[0]
    return [float(f) for f in fill]


class Resize(nn.Module):
    """Resize an image to (h, w), or its shorter side to a number."""

    def __init__(self, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None, antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(size, (int, Sequence)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size = size
        self.max_size = max_size
        self.interpolation = (
            interpolation_mode(interpolation, names=False) if isinstance(interpolation, int) else interpolation
        )
        self.antialias = antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, interpolation={self.interpolation.value}, max_size={self.max_size}, antialias={self.antialias})"


class CenterCrop(nn.Module):
    """Crop the centre of an image."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair(size, _TWO_SIZES)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class Pad(nn.Module):
    """Pad an image on all sides."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        check_padding(padding, fill, padding_mode)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


def check_padding(padding: Any, fill: Any, padding_mode: Any) -> None:
    if not isinstance(padding, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate padding arg")
    check_fill_type(fill)
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    if isinstance(padding, Sequence) and len(padding) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")


class RandomCrop(nn.Module):
    """Crop a window at a random position, after optional padding."""

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Draw a window: (top, left, height, width)."""
        _, height, width = F.get_dimensions(img)
        h, w = output_size
        if height < h or width < w:
            raise ValueError(f"Required crop size {(h, w)} is larger than input image size {(height, width)}")
        if (height, width) == (h, w):
            return 0, 0, height, width
        return (*draws.crop_corner((height, width), (h, w)), h, w)

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant") -> None:  # fmt: skip
        super().__init__()
        self.size: Any = tuple(pair(size, _TWO_SIZES))
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        if self.pad_if_needed:
            _, height, width = F.get_dimensions(img)
            if width < self.size[1]:
                img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
            if height < self.size[0]:
                img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"


class RandomHorizontalFlip(nn.Module):
    """Flip an image horizontally with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return F.hflip(img) if draws.happens(self.p) else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomVerticalFlip(RandomHorizontalFlip):
    """Flip an image vertically with probability p."""

    def forward(self, img: Any) -> Any:
        return F.vflip(img) if draws.happens(self.p) else img


class RandomPerspective(nn.Module):
    """Transform that projects the input at random, with probability p."""

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = 0) -> None:  # fmt: skip
        super().__init__()
        self.p = p
        self.interpolation = interpolation_mode(interpolation, names=False)
        self.distortion_scale = distortion_scale
        if fill is not None and not isinstance(fill, (Sequence, numbers.Number)):
            raise TypeError("Fill should be either a sequence or a number.")
        self.fill = 0 if fill is None else fill

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        """Draw the corners of a projection: (startpoints, endpoints)."""
        return draws.perspective_points(width, height, distortion_scale)

    def forward(self, img: Any) -> Any:
        fill = _fill_for(img, self.fill)
        _, height, width = F.get_dimensions(img)
        if draws.happens(self.p):
            start, end = self.get_params(width, height, self.distortion_scale)
            return F.perspective(img, start, end, self.interpolation, fill)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomResizedCrop(nn.Module):
    """Crop a window of random area and shape and resize it: the standard augmentation of ImageNet training."""

    def __init__(self, size: Any, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0), interpolation: Any = InterpolationMode.BILINEAR, antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        self.size = pair(size, _TWO_SIZES)
        check_scale_and_ratio(scale, ratio)
        self.interpolation = (
            interpolation_mode(interpolation, names=False) if isinstance(interpolation, int) else interpolation
        )
        self.antialias = antialias
        self.scale = scale
        self.ratio = ratio

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
        """Draw a window: (top, left, height, width)."""
        return draws.resized_crop(F.get_dimensions(img)[1:], scale, ratio)

    def forward(self, img: Any) -> Any:
        window = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *window, self.size, self.interpolation, antialias=self.antialias)

    def __repr__(self) -> str:
        scale, ratio = tuple(round(s, 4) for s in self.scale), tuple(round(r, 4) for r in self.ratio)
        return f"{type(self).__name__}(size={self.size}, scale={scale}, ratio={ratio}, interpolation={self.interpolation.value}, antialias={self.antialias})"


def check_scale_and_ratio(scale: Any, ratio: Any) -> None:
    if not isinstance(scale, Sequence):
        raise TypeError("Scale should be a sequence")
    if not isinstance(ratio, Sequence):
        raise TypeError("Ratio should be a sequence")
    if scale[0] > scale[1] or ratio[0] > ratio[1]:
        warnings.warn("Scale and ratio should be of kind (min, max)", stacklevel=3)


class FiveCrop(nn.Module):
    """Crop the four corners and the centre, as a tuple."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair(size, _TWO_SIZES)

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.five_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class TenCrop(nn.Module):
    """Crop the four corners and the centre of the image and of its mirror image."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size = pair(size, _TWO_SIZES)
        self.vertical_flip = vertical_flip

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, vertical_flip={self.vertical_flip})"


def _check_warp_fill(fill: Any) -> Any:
    if fill is None:
        return 0
    if not isinstance(fill, (Sequence, numbers.Number)):
        raise TypeError("Fill should be either a sequence or a number.")
    return fill


class RandomRotation(nn.Module):
    """Rotate an image by a random angle."""

    def __init__(self, degrees: Any, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False, center: Any = None, fill: Any = 0) -> None:  # fmt: skip
        super().__init__()
        self.degrees = symmetric_range(degrees, "degrees")
        if center is not None:
            check_sequence(center, "center", (2,))
        self.center = center
        self.interpolation = interpolation_mode(interpolation, names=False)
        self.expand = expand
        self.fill = _check_warp_fill(fill)

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        """Draw the angle."""
        return float(draws.uniform(float(degrees[0]), float(degrees[1])))

    def forward(self, img: Any) -> Any:
        fill = _fill_for(img, self.fill)
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, fill)

    def __repr__(self) -> str:
        center = "" if self.center is None else f", center={self.center}"
        fill = "" if self.fill is None else f", fill={self.fill}"
        return f"{type(self).__name__}(degrees={self.degrees}, interpolation={self.interpolation.value}, expand={self.expand}{center}{fill})"


class RandomAffine(nn.Module):
    """Rotate, translate, scale and shear an image by random amounts."""

    def __init__(self, degrees: Any, translate: Any = None, scale: Any = None, shear: Any = None, interpolation: Any = InterpolationMode.NEAREST, fill: Any = 0, center: Any = None) -> None:  # fmt: skip
        super().__init__()
        self.interpolation = interpolation_mode(interpolation, names=False)
        self.degrees = symmetric_range(degrees, "degrees")
        check_translate_and_scale(translate, scale)
        self.translate, self.scale = translate, scale
        self.shear = None if shear is None else symmetric_range(shear, "shear", (2, 4))
        self.fill = _check_warp_fill(fill)
        if center is not None:
            check_sequence(center, "center", (2,))
        self.center = center

    @staticmethod
    def get_params(degrees: Any, translate: Any, scale_ranges: Any, shears: Any, img_size: Any) -> tuple[Any, ...]:
        """Draw (angle, translation, scale, shear) for an image of (width, height)."""
        return draws.affine(degrees, translate, scale_ranges, shears, img_size)

    def forward(self, img: Any) -> Any:
        fill = _fill_for(img, self.fill)
        _, height, width = F.get_dimensions(img)
        angle, moved, scale, shear = self.get_params(
            self.degrees, self.translate, self.scale, self.shear, [width, height]
        )
        return F.affine(img, angle, moved, scale, shear, self.interpolation, fill, self.center)

    def __repr__(self) -> str:
        parts = [f"degrees={self.degrees}"]
        parts += [
            f"{name}={getattr(self, name)}"
            for name in ("translate", "scale", "shear")
            if getattr(self, name) is not None
        ]
        if self.interpolation != InterpolationMode.NEAREST:
            parts.append(f"interpolation={self.interpolation.value}")
        if self.fill != 0:
            parts.append(f"fill={self.fill}")
        if self.center is not None:
            parts.append(f"center={self.center}")
        return f"{type(self).__name__}({', '.join(parts)})"


def check_translate_and_scale(translate: Any, scale: Any) -> None:
    if translate is not None:
        check_sequence(translate, "translate", (2,))
        for part in translate:
            if not 0.0 <= part <= 1.0:
                raise ValueError("translation values should be between 0 and 1")
    if scale is not None:
        check_sequence(scale, "scale", (2,))
        for factor in scale:
            if factor <= 0:
                raise ValueError("scale values should be positive")


class ElasticTransform(nn.Module):
    """Displace pixels by a smooth random field of strength `alpha` and smoothness `sigma`."""

    def __init__(self, alpha: Any = 50.0, sigma: Any = 5.0, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = 0) -> None:  # fmt: skip
        super().__init__()
        self.alpha, self.sigma = two_floats(alpha, "alpha"), two_floats(sigma, "sigma")
        self.interpolation = (
            interpolation_mode(interpolation, names=False) if isinstance(interpolation, int) else interpolation
        )
        if isinstance(fill, (int, float)):
            fill = [float(fill)]
        elif isinstance(fill, (list, tuple)):
            fill = [float(f) for f in fill]
        else:
            raise TypeError(f"fill should be int or float or a list or tuple of them. Got {type(fill)}")
        self.fill = fill

    @staticmethod
    def get_params(alpha: Sequence[float], sigma: Sequence[float], size: Sequence[int]) -> Tensor:
        """Draw the displacement field (1, H, W, 2)."""
        return displacement_field(alpha, sigma, size)

    def forward(self, tensor: Any) -> Any:
        _, height, width = F.get_dimensions(tensor)
        field = self.get_params(self.alpha, self.sigma, [height, width])
        return F.elastic_transform(tensor, field, self.interpolation, self.fill)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, sigma={self.sigma}, interpolation={self.interpolation}, fill={self.fill})"


def two_floats(value: Any, name: str) -> list[float]:
    if not isinstance(value, (float, Sequence)):
        raise TypeError(f"{name} should be float or a sequence of floats. Got {type(value)}")
    if isinstance(value, float):
        return [value, value]
    if len(value) != 2:
        raise ValueError(f"If {name} is a sequence its length should be 2. Got {len(value)}")
    for element in value:
        if not isinstance(element, float):
            raise TypeError(f"{name} should be a sequence of floats. Got {type(element)}")
    return list(value)


def displacement_field(alpha: Sequence[float], sigma: Sequence[float], size: Sequence[int]) -> Tensor:
    """Return uniform noise, blurred by `sigma` and scaled by `alpha`; one plane for x, one for y."""
    planes = []
    for strength, width, side in zip(alpha, sigma, reversed(size)):
        noise = flambeau.rand([1, 1, *size]) * 2 - 1
        if width > 0.0:
            kernel = int(8 * width + 1)
            kernel += 1 - kernel % 2
            noise = F.gaussian_blur(noise, [kernel, kernel], list(sigma))
        planes.append(noise * strength / side)
    return flambeau.cat(planes, 1).permute([0, 2, 3, 1])
