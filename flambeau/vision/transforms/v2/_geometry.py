"""Transforms that move pixels, boxes and points together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau

from ...tv_tensors import BoundingBoxes, KeyPoints, Mask
from .. import draws, geometric
from ..arguments import check_sequence, symmetric_range
from ..kernels import matrices
from . import functional as F
from ._transform import RandomApplyTransform, Transform, fill_for, has_any, number_or_pair, query_size, setup_size
from .functional._geometry import parse_padding

__all__ = [
    "CenterCrop", "ElasticTransform", "FiveCrop", "Pad", "RandomAffine", "RandomCrop", "RandomHorizontalFlip",
    "RandomPerspective", "RandomResize", "RandomResizedCrop", "RandomRotation", "RandomShortestSize",
    "RandomVerticalFlip", "RandomZoomOut", "Resize", "ScaleJitter", "TenCrop",
]  # fmt: skip


class RandomHorizontalFlip(RandomApplyTransform):
    """Flip the input horizontally with probability p."""

    _functional = staticmethod(F.horizontal_flip)


class RandomVerticalFlip(RandomApplyTransform):
    """Flip the input vertically with probability p."""

    _functional = staticmethod(F.vertical_flip)


class Resize(Transform):
    """Resize to (h, w), the shorter side to a number, or with None the longer side to `max_size`."""

    _functional = staticmethod(F.resize)
    _options = ("size", "interpolation", "max_size", "antialias")

    def __init__(self, size: Any, interpolation: Any = "bilinear", max_size: int | None = None, antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        if isinstance(size, int):
            size = [size]
        elif isinstance(size, Sequence) and len(size) in (1, 2):
            size = list(size)
        elif size is None:
            if not isinstance(max_size, int):
                raise ValueError(f"max_size must be an integer when size is None, but got {max_size} instead.")
        else:
            raise ValueError(
                f"size can be an integer, a sequence of one or two integers, or None, but got {size} instead."
            )
        self.size = size
        self.interpolation = interpolation
        self.max_size = max_size
        self.antialias = antialias


class CenterCrop(Transform):
    """Crop the centre of the input."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = setup_size(size)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return self._call_kernel(F.center_crop, inpt, output_size=self.size)


class RandomResizedCrop(Transform):
    """Crop a window of random area and shape and resize it."""

    _functional = staticmethod(F.resized_crop)
    _options = ("size", "interpolation", "antialias")

    def __init__(self, size: Any, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0), interpolation: Any = "bilinear", antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        self.size = setup_size(size)
        geometric.check_scale_and_ratio(scale, ratio)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation
        self.antialias = antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        top, left, height, width = draws.resized_crop(query_size(flat_inputs), self.scale, self.ratio)
        return {"top": top, "left": left, "height": height, "width": width}


class FiveCrop(Transform):
    """Crop the four corners and the centre of images and videos, as a tuple."""

    _functional = staticmethod(F.five_crop)
    _options = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = setup_size(size)

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        refuse_shapes(self, flat_inputs)


class TenCrop(Transform):
    """Crop the four corners and the centre of the input and of its mirror image."""

    _functional = staticmethod(F.ten_crop)
    _options = ("size", "vertical_flip")

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size = setup_size(size)
        self.vertical_flip = vertical_flip

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        refuse_shapes(self, flat_inputs)


def refuse_shapes(transform: Transform, flat_inputs: list[Any]) -> None:
    if has_any(flat_inputs, BoundingBoxes, Mask, KeyPoints):
        raise TypeError(f"BoundingBoxes'es, Mask's and KeyPoints' are not supported by {type(transform).__name__}()")


class Pad(Transform):
    """Pad the input on all sides."""

    _functional = staticmethod(F.pad)
    _options = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        check_padding_argument(padding)
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        self.padding = padding if isinstance(padding, int) else list(padding)
        self._set_fill(fill)
        self.padding_mode = padding_mode


def check_padding_argument(padding: Any) -> None:
    message = f"Padding must be an int or a 1, 2, or 4 element of tuple or list, got {padding}."
    if isinstance(padding, (tuple, list)):
        if len(padding) not in (1, 2, 4) or not all(isinstance(side, int) for side in padding):
            raise ValueError(message)
    elif not isinstance(padding, int):
        raise ValueError(message)


class RandomZoomOut(RandomApplyTransform):
    """Transform that places the input somewhere on a larger canvas, with probability p."""

    _functional = staticmethod(F.pad)
    _options = ("fill",)

    def __init__(self, fill: Any = 0, side_range: Sequence[float] = (1.0, 4.0), p: float = 0.5) -> None:
        super().__init__(p=p)
        self._set_fill(fill)
        check_sequence(side_range, "side_range", (2,))
        self.side_range = side_range
        if side_range[0] < 1.0 or side_range[0] > side_range[1]:
            raise ValueError(f"Invalid side range provided {side_range}.")

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        low, high = self.side_range
        ratio = low + flambeau.rand(1) * (high - low)
        canvas_w, canvas_h = int(width * ratio), int(height * ratio)
        place = flambeau.rand(2)
        left, top = int((canvas_w - width) * place[0]), int((canvas_h - height) * place[1])
        return {"padding": [left, top, canvas_w - (left + width), canvas_h - (top + height)]}


class RandomRotation(Transform):
    """Rotate the input by a random angle."""

    _functional = staticmethod(F.rotate)
    _options = ("interpolation", "expand", "center", "fill")

    def __init__(self, degrees: Any, interpolation: Any = "nearest", expand: bool = False, center: Any = None, fill: Any = 0) -> None:  # fmt: skip
        super().__init__()
        self.degrees = symmetric_range(degrees, "degrees")
        self.interpolation = interpolation
        self.expand = expand
        self._set_fill(fill)
        if center is not None:
            check_sequence(center, "center", (2,))
        self.center = center

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"angle": draws.uniform(self.degrees[0], self.degrees[1])}


class RandomAffine(Transform):
    """Rotate, translate, scale and shear the input by random amounts."""

    _functional = staticmethod(F.affine)
    _options = ("interpolation", "fill", "center")

    def __init__(self, degrees: Any, translate: Any = None, scale: Any = None, shear: Any = None, interpolation: Any = "nearest", fill: Any = 0, center: Any = None) -> None:  # fmt: skip
        super().__init__()
        self.degrees = symmetric_range(degrees, "degrees")
        geometric.check_translate_and_scale(translate, scale)
        self.translate = translate
        self.scale = scale
        self.shear = None if shear is None else symmetric_range(shear, "shear", (2, 4))
        self.interpolation = interpolation
        self._set_fill(fill)
        if center is not None:
            check_sequence(center, "center", (2,))
        self.center = center

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        angle, moved, scale, shear = draws.affine(self.degrees, self.translate, self.scale, self.shear, (width, height))
        return {"angle": angle, "translate": moved, "scale": scale, "shear": shear}


class RandomCrop(Transform):
    """Crop a window at a random position, after optional padding."""

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant") -> None:  # fmt: skip
        super().__init__()
        self.size = setup_size(size)
        if padding is not None:
            check_padding_argument(padding)
            left, right, top, bottom = parse_padding(padding)
            padding = [left, top, right, bottom]
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self._set_fill(fill)
        self.padding_mode = padding_mode

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        crop_h, crop_w = self.size
        left, top, right, bottom = self.padding or (0, 0, 0, 0)
        height, width = height + top + bottom, width + left + right
        if self.pad_if_needed:
            # What is missing is added on both sides.
            dy, dx = max(crop_h - height, 0), max(crop_w - width, 0)
            left, top, right, bottom = left + dx, top + dy, right + dx, bottom + dy
            height, width = height + 2 * dy, width + 2 * dx
        if height < crop_h or width < crop_w:
            raise ValueError(
                f"Required crop size {(crop_h, crop_w)} is larger than padded input image size {(height, width)}."
            )
        at_top = int(flambeau.randint(0, height - crop_h + 1, size=())) if height > crop_h else 0
        at_left = int(flambeau.randint(0, width - crop_w + 1, size=())) if width > crop_w else 0
        window = {
            "top": at_top,
            "left": at_left,
            "height": crop_h if height > crop_h else height,
            "width": crop_w if width > crop_w else width,
        }
        border = [left, top, right, bottom]
        return {
            "window": window if (height > crop_h or width > crop_w) else None,
            "padding": border if any(border) else None,
        }

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if params["padding"] is not None:
            fill = fill_for(self._fill, inpt)
            inpt = self._call_kernel(F.pad, inpt, padding=params["padding"], fill=fill, padding_mode=self.padding_mode)
        if params["window"] is not None:
            inpt = self._call_kernel(F.crop, inpt, **params["window"])
        return inpt


class RandomPerspective(RandomApplyTransform):
    """Transform that projects the input at random, with probability p."""

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: Any = "bilinear", fill: Any = 0) -> None:  # fmt: skip
        super().__init__(p=p)
        if not 0 <= distortion_scale <= 1:
            raise ValueError("Argument distortion_scale value should be between 0 and 1")
        self.distortion_scale = distortion_scale
        self.interpolation = interpolation
        self._set_fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        start, end = draws.perspective_points(width, height, self.distortion_scale)
        return {"coefficients": matrices.perspective_coefficients(start, end)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        options = {"interpolation": self.interpolation, "fill": fill_for(self._fill, inpt)}
        return self._call_kernel(F.perspective, inpt, startpoints=None, endpoints=None, **options, **params)


class ElasticTransform(Transform):
    """Displace pixels by a smooth random field of strength `alpha` and smoothness `sigma`."""

    _functional = staticmethod(F.elastic)
    _options = ("interpolation", "fill")

    def __init__(self, alpha: Any = 50.0, sigma: Any = 5.0, interpolation: Any = "bilinear", fill: Any = 0) -> None:
        super().__init__()
        self.alpha = number_or_pair(alpha, "alpha")
        self.sigma = number_or_pair(sigma, "sigma")
        self.interpolation = interpolation
        self._set_fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"displacement": geometric.displacement_field(self.alpha, self.sigma, list(query_size(flat_inputs)))}


class _RandomSize(Transform):
    """Base of transforms that resize to the `size` that `make_params` draws."""

    _functional = staticmethod(F.resize)
    _options = ("interpolation", "antialias")


class ScaleJitter(_RandomSize):
    """Resize by a random factor relative to a target size."""

    def __init__(self, target_size: tuple[int, int], scale_range: tuple[float, float] = (0.1, 2.0), interpolation: Any = "bilinear", antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        self.target_size = target_size
        self.scale_range = scale_range
        self.interpolation = interpolation
        self.antialias = antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        low, high = self.scale_range
        scale = low + flambeau.rand(1) * (high - low)
        ratio = min(self.target_size[1] / height, self.target_size[0] / width) * scale
        return {"size": (int(height * ratio), int(width * ratio))}


class RandomShortestSize(_RandomSize):
    """Resize the shorter side to one of several lengths."""

    def __init__(self, min_size: Any, max_size: int | None = None, interpolation: Any = "bilinear", antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        self.min_size = [min_size] if isinstance(min_size, int) else list(min_size)
        self.max_size = max_size
        self.interpolation = interpolation
        self.antialias = antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        shortest = self.min_size[int(flambeau.randint(len(self.min_size), ()))]
        ratio = shortest / min(height, width)
        if self.max_size is not None:
            ratio = min(ratio, self.max_size / max(height, width))
        return {"size": (int(height * ratio), int(width * ratio))}


class RandomResize(_RandomSize):
    """Resize the shorter side to a random length from `min_size` up to, but not including, `max_size`."""

    def __init__(self, min_size: int, max_size: int, interpolation: Any = "bilinear", antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        self.min_size = min_size
        self.max_size = max_size
        self.interpolation = interpolation
        self.antialias = antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"size": [int(flambeau.randint(self.min_size, self.max_size, ()))]}
