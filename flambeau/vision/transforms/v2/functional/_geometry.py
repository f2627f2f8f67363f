"""Flips, resizing and crops of images, videos and masks. Kernels for boxes and points are in `_shapes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import Tensor

from ....tv_tensors import Mask
from ...arguments import crop_size
from ...interpolation import InterpolationMode, interpolation_mode
from ...kernels import geometry, pil
from ._dispatch import PIL, TENSORS, functional, kernel, mask_call

__all__ = [
    "center_crop", "center_crop_image", "center_crop_mask", "center_crop_video", "crop", "crop_image", "crop_mask",
    "crop_video", "five_crop", "five_crop_image", "five_crop_video", "hflip", "horizontal_flip",
    "horizontal_flip_image", "horizontal_flip_mask", "horizontal_flip_video", "pad", "pad_image", "pad_mask",
    "pad_video", "resize", "resize_image", "resize_mask", "resize_video", "resized_crop", "resized_crop_image",
    "resized_crop_mask", "resized_crop_video", "ten_crop", "ten_crop_image", "ten_crop_video", "vertical_flip",
    "vertical_flip_image", "vertical_flip_mask", "vertical_flip_video", "vflip",
]  # fmt: skip

_NEAREST = InterpolationMode.NEAREST


# -- flips ------------------------------------------------------------------------------------------------------------


def horizontal_flip_image(image: Tensor) -> Tensor:
    """Flip an image horizontally."""
    return geometry.hflip(image)


horizontal_flip = functional(horizontal_flip_image, *TENSORS, Mask)


def vertical_flip_image(image: Tensor) -> Tensor:
    """Flip an image vertically."""
    return geometry.vflip(image)


vertical_flip = functional(vertical_flip_image, *TENSORS, Mask)


kernel(horizontal_flip, PIL)(pil.hflip)
kernel(vertical_flip, PIL)(pil.vflip)
horizontal_flip_mask = horizontal_flip_video = horizontal_flip_image
vertical_flip_mask = vertical_flip_video = vertical_flip_image
hflip, vflip = horizontal_flip, vertical_flip


# -- resize -----------------------------------------------------------------------------------------------------------


def resized_size(own: Sequence[int], size: Any, max_size: int | None) -> list[int]:
    """Check the size argument and return (height, width) after resizing."""
    if isinstance(size, int):
        size = [size]
    elif max_size is not None and size is not None and len(size) != 1:
        raise ValueError(
            "max_size should only be passed if size is None or specifies the length of the smaller edge, i.e. size should be an int or a sequence of length 1 in torchscript mode."
        )
    if size is not None and len(size) not in (1, 2):
        raise ValueError(f"Size must be an int or a 1 or 2 element tuple/list, not a {len(size)} element tuple/list")
    return geometry.resized_size((own[0], own[1]), size, max_size)


def resize_image(
    image: Tensor,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Tensor:
    """Resize to (height, width), or the shorter side to one number, or with None the longer side to `max_size`."""
    mode = interpolation_mode(interpolation)
    target = resized_size(image.shape[-2:], size, max_size)
    return geometry.resize(image, target, mode, bool(antialias), bytes_natively=True)


resize = functional(resize_image)


@kernel(resize, Mask)
def resize_mask(
    mask: Tensor, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None
) -> Tensor:
    # Classes must not be blended, so only the nearest pixels are ever read.
    exact = interpolation_mode(interpolation) == InterpolationMode.NEAREST_EXACT
    return mask_call(resize_image, mask, size, InterpolationMode.NEAREST_EXACT if exact else _NEAREST, max_size)


@kernel(resize, PIL)
def _resize_pil(
    image: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None
) -> Any:
    target = resized_size((image.height, image.width), size, max_size)
    return pil.resize(image, target, interpolation_mode(interpolation))


resize_video = resize_image


# -- cropping and padding ---------------------------------------------------------------------------------------------


def crop_image(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """Return the window of this size whose upper left corner is (top, left)."""
    return geometry.crop(image, top, left, height, width)


crop = functional(crop_image, *TENSORS, Mask)


kernel(crop, PIL)(pil.crop)
crop_mask = crop_video = crop_image


def parse_padding(padding: Any) -> list[int]:
    """Check a padding argument and return [left, right, top, bottom]."""
    if not isinstance(padding, (int, tuple, list)):
        raise TypeError(f"`padding` should be an integer or tuple or list of integers, but got {padding}")
    if isinstance(padding, (tuple, list)):
        if len(padding) not in (1, 2, 4):
            raise ValueError(
                f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple"
            )
        if not all(isinstance(side, int) for side in padding):
            raise ValueError(f"`padding` should be an integer or tuple or list of integers, but got {padding}")
    return geometry.parse_padding(padding)


def check_padding_mode(padding_mode: Any) -> None:
    if padding_mode not in geometry.PADDING_MODES:
        raise ValueError(
            f"`padding_mode` should be either `'constant'`, `'edge'`, `'reflect'` or `'symmetric'`, but got `'{padding_mode}'`."
        )


def pad_image(image: Tensor, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Tensor:
    """Pad an image on all sides."""
    left, right, top, bottom = parse_padding(padding)
    check_padding_mode(padding_mode)
    if isinstance(fill, (tuple, list)) and len(fill) > 1 and padding_mode != "constant":
        raise ValueError(f"Padding mode '{padding_mode}' is not supported if fill is not scalar")
    return geometry.pad(image, [left, top, right, bottom], fill, padding_mode)


pad = functional(pad_image)


@kernel(pad, Mask)
def pad_mask(mask: Tensor, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Tensor:
    if isinstance(fill, (tuple, list)):
        raise ValueError("Non-scalar fill value is not supported")
    return mask_call(pad_image, mask, padding, fill, padding_mode)


@kernel(pad, PIL)
def _pad_pil(image: Any, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Any:
    left, right, top, bottom = parse_padding(padding)
    check_padding_mode(padding_mode)
    return pil.pad(image, [left, top, right, bottom], 0 if fill is None else fill, padding_mode)


pad_video = pad_image


_parse_pad_padding = geometry.parse_padding


def _center_crop_parse_output_size(output_size: Any) -> list[int]:
    return list(crop_size(output_size))


def _center_crop_compute_padding(crop_height: int, crop_width: int, image_height: int, image_width: int) -> list[int]:
    return geometry.center_window((image_height, image_width), (crop_height, crop_width))[0] or [0] * 4


def center_crop_image(image: Tensor, output_size: Any) -> Tensor:
    """Crop the centre, padded with black where the input is smaller."""
    return geometry.center_crop(image, crop_size(output_size))


center_crop = functional(center_crop_image, *TENSORS, Mask)


@kernel(center_crop, PIL)
def _center_crop_pil(image: Any, output_size: Any) -> Any:
    size = crop_size(output_size)
    padding, top, left = geometry.center_window((image.height, image.width), size)
    if padding is not None:
        image = pil.pad(image, padding)
    return pil.crop(image, top, left, *size)


center_crop_mask = center_crop_video = center_crop_image


def resized_crop_image(
    image: Tensor,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Tensor:
    """Crop a window and resize it."""
    return resize_image(crop_image(image, top, left, height, width), size, interpolation, antialias=antialias)


resized_crop = functional(resized_crop_image)


@kernel(resized_crop, Mask)
def resized_crop_mask(mask: Tensor, top: int, left: int, height: int, width: int, size: Any) -> Tensor:
    return resize_mask(crop_image(mask, top, left, height, width), size)


@kernel(resized_crop, PIL)
def _resized_crop_pil(
    image: Any, top: int, left: int, height: int, width: int, size: Any, interpolation: Any = InterpolationMode.BILINEAR
) -> Any:
    return _resize_pil(pil.crop(image, top, left, height, width), size, interpolation)


resized_crop_video = resized_crop_image


def _five_windows(own: Sequence[int], size: Any) -> list[tuple[int, int, int, int]]:
    own_h, own_w = own
    height, width = crop_size(size, exact=True)
    if width > own_w or height > own_h:
        raise ValueError(f"Requested crop size {size} is bigger than input size {(own_h, own_w)}")
    _, top, left = geometry.center_window((own_h, own_w), (height, width))
    corners = [(0, 0), (0, own_w - width), (own_h - height, 0), (own_h - height, own_w - width), (top, left)]
    return [(top, left, height, width) for top, left in corners]


def five_crop_image(image: Tensor, size: Any) -> tuple[Tensor, ...]:
    """Crop the four corners and the centre."""
    return tuple(geometry.crop(image, *window) for window in _five_windows(image.shape[-2:], size))


five_crop = functional(five_crop_image)


@kernel(five_crop, PIL)
def _five_crop_pil(image: Any, size: Any) -> tuple[Any, ...]:
    return tuple(pil.crop(image, *window) for window in _five_windows((image.height, image.width), size))


def ten_crop_image(image: Tensor, size: Any, vertical_flip: bool = False) -> tuple[Tensor, ...]:
    """Crop the four corners and the centre of the input and of its mirror image."""
    mirrored = geometry.vflip(image) if vertical_flip else geometry.hflip(image)
    return five_crop_image(image, size) + five_crop_image(mirrored, size)


ten_crop = functional(ten_crop_image)


@kernel(ten_crop, PIL)
def _ten_crop_pil(image: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    mirrored = pil.vflip(image) if vertical_flip else pil.hflip(image)
    return _five_crop_pil(image, size) + _five_crop_pil(mirrored, size)


five_crop_video, ten_crop_video = five_crop_image, ten_crop_image
