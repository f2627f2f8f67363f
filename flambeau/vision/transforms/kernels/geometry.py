"""Cropping, flipping, padding and resizing of tensors (..., H, W)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn.functional import interpolate
from flambeau.nn.functional import pad as pad_border

from ..interpolation import InterpolationMode
from .conversion import as_planes

PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


def hflip(image: Tensor) -> Tensor:
    return image.flip(-1)


def vflip(image: Tensor) -> Tensor:
    return image.flip(-2)


def crop(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """Return a window of the image; zero outside of the image."""
    own_h, own_w = image.shape[-2:]
    bottom, right = top + height, left + width
    inner = image[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if left >= 0 and top >= 0 and right <= own_w and bottom <= own_h:
        return inner
    before_x, before_y = max(min(right, 0) - left, 0), max(min(bottom, 0) - top, 0)
    padding = [before_x, max(right - max(own_w, left), 0), before_y, max(bottom - max(own_h, top), 0)]
    return pad_border(inner, padding)


def parse_padding(padding: Any) -> list[int]:
    """Return [left, right, top, bottom] from a number, (x, y) or (left, top, right, bottom)."""
    if isinstance(padding, int):
        return [padding] * 4
    if len(padding) == 1:
        return [padding[0]] * 4
    if len(padding) == 2:
        return [padding[0], padding[0], padding[1], padding[1]]
    left, top, right, bottom = padding
    return [left, right, top, bottom]


def pad(image: Tensor, padding: Any, fill: Any = 0, mode: str = "constant") -> Tensor:
    border = parse_padding(padding)
    if mode == "constant":
        return _pad_constant(image, border, 0 if fill is None else fill)
    if mode == "symmetric":
        return _pad_symmetric(image, border)
    return _pad_by_reading(image, border, "replicate" if mode == "edge" else "reflect")


def _pad_constant(image: Tensor, border: list[int], fill: Any) -> Tensor:
    if not isinstance(fill, (tuple, list)):
        return pad_border(image, border, mode="constant", value=float(fill))
    if len(fill) == 1:
        return pad_border(image, border, mode="constant", value=float(fill[0]))
    left, right, top, bottom = border
    colors = flambeau.tensor(list(fill), dtype=image.dtype, device=image.device).view(-1, 1, 1)
    out = pad_border(image, border)
    # Each side is written on its own: a border may be negative, which cuts instead.
    if top > 0:
        out[..., :top, :] = colors
    if left > 0:
        out[..., :, :left] = colors
    if bottom > 0:
        out[..., -bottom:, :] = colors
    if right > 0:
        out[..., :, -right:] = colors
    return out


def _pad_by_reading(image: Tensor, border: list[int], mode: str) -> Tensor:
    planes = image.reshape(-1, 1, *image.shape[-2:])
    own = image.dtype
    work = (
        planes
        if own.is_floating_point
        else planes.to(flambeau.float64 if own in (flambeau.int32, flambeau.int64) else flambeau.float32)
    )
    out = pad_border(work, border, mode=mode)
    return out.to(own).view(*image.shape[:-2], *out.shape[-2:])


def _pad_symmetric(image: Tensor, border: list[int]) -> Tensor:
    """Pad by mirroring, including the edge pixel; negative padding crops."""
    left, right, top, bottom = border
    height, width = image.shape[-2:]
    rows = _mirrored_index(height, top, bottom, image.device)
    columns = _mirrored_index(width, left, right, image.device)
    return image[..., rows.unsqueeze(-1), columns]


def _mirrored_index(size: int, before: int, after: int, device: Any) -> Tensor:
    steps = flambeau.arange(-before, size + after, device=device)
    if int(steps.min()) < -size or int(steps.max()) >= 2 * size:
        raise IndexError(f"symmetric padding ({before}, {after}) is larger than the image side {size}")
    folded = flambeau.where(steps < 0, -steps - 1, steps)
    return flambeau.where(folded >= size, 2 * size - 1 - folded, folded)


def center_window(own: tuple[int, int], size: tuple[int, int]) -> tuple[list[int] | None, int, int]:
    """Return padding (left, top, right, bottom) that makes the image large enough, or None; then top and left of the window."""
    own_h, own_w = own
    height, width = size
    padding = None
    if width > own_w or height > own_h:
        dx, dy = max(width - own_w, 0), max(height - own_h, 0)
        padding = [dx // 2, dy // 2, (dx + 1) // 2, (dy + 1) // 2]
        own_h, own_w = own_h + dy, own_w + dx
    return padding, int(round((own_h - height) / 2.0)), int(round((own_w - width) / 2.0))


def center_crop(image: Tensor, size: tuple[int, int]) -> Tensor:
    padding, top, left = center_window(tuple(image.shape[-2:]), size)
    if padding is not None:
        image = pad(image, padding)
    return crop(image, top, left, *size)


def resized_size(own: tuple[int, int], size: Sequence[int] | None, max_size: int | None = None) -> list[int]:
    """Return (height, width) after resizing: both given, or the shorter side given, or only the longest allowed."""
    if size is not None and len(size) == 2:
        return list(size)
    height, width = own
    short, long = (width, height) if width <= height else (height, width)
    if size is None:
        if max_size is None:
            raise ValueError("max_size must be an integer when size is None.")
        new_short, new_long = int(max_size * short / long), max_size
    else:
        wanted = size[0]
        new_short, new_long = wanted, int(wanted * long / short)
        if max_size is not None:
            if max_size <= wanted:
                raise ValueError(
                    f"max_size = {max_size} must be strictly greater than the requested size for the smaller edge size = {list(size)}"
                )
            if new_long > max_size:
                new_short, new_long = int(max_size * new_short / new_long), max_size
    return [new_long, new_short] if width <= height else [new_short, new_long]


_BLENDING = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, InterpolationMode.LANCZOS)
_NEAREST = (InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT)


def resize(
    image: Tensor, size: Sequence[int], mode: InterpolationMode, antialias: bool, bytes_natively: bool = False
) -> Tensor:
    """Resize to (height, width). Bytes are resized as floats and rounded, or `bytes_natively` with Pillow's fixed-point weights."""
    if tuple(image.shape[-2:]) == tuple(size):
        return image
    if image.numel() == 0:
        return image.new_empty((*image.shape[:-2], *size))
    blending = mode in _BLENDING
    image = as_planes(image)
    aligned = None if not blending or mode == InterpolationMode.LANCZOS else False
    own = image.dtype
    batch = image.reshape(-1, *image.shape[-3:]) if image.ndim > 2 else image.reshape(1, 1, *image.shape)
    native = own in (flambeau.float32, flambeau.float64) or (
        own == flambeau.uint8 and (mode in _NEAREST or bytes_natively)
    )
    work = batch if native else batch.to(flambeau.float32)
    kind = "nearest-exact" if mode == InterpolationMode.NEAREST_EXACT else mode.value
    out = interpolate(work, size=list(size), mode=kind, align_corners=aligned, antialias=bool(antialias) and blending)
    if not native:
        if own == flambeau.uint8 and mode in (InterpolationMode.BICUBIC, InterpolationMode.LANCZOS):
            out = out.clamp_(0, 255)
        out = out.to(own) if own.is_floating_point else out.round_().to(own)
    return out.reshape(*image.shape[:-2], *size)


def erase(image: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    if not inplace:
        image = image.clone()
    image[..., i : i + h, j : j + w] = v
    return image
