"""Kernels on PIL images: Pillow does the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....utils.pillow import is_pil, pillow
from ..interpolation import TO_PIL, InterpolationMode, interpolation_mode
from . import geometry


def check_pil(image: Any) -> None:
    if not is_pil(image):
        raise TypeError(f"img should be PIL Image. Got {type(image)}")


def hflip(image: Any) -> Any:
    return image.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)


def vflip(image: Any) -> Any:
    return image.transpose(pillow().Transpose.FLIP_TOP_BOTTOM)


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    return image.crop((left, top, left + width, top + height))


def resize(image: Any, size: Sequence[int], mode: InterpolationMode) -> Any:
    """Resize a PIL image to (height, width)."""
    if (image.height, image.width) == tuple(size):
        return image
    return image.resize((size[1], size[0]), TO_PIL[mode])


def fill_option(fill: Any, img: Any, name: str = "fillcolor") -> dict[str, Any]:
    """Return Pillow's keyword argument for a colour: as many integers as the image has bands."""
    bands = len(img.getbands())
    if fill is None:
        fill = 0
    if isinstance(fill, (int, float)) and bands > 1:
        fill = tuple([fill] * bands)
    if isinstance(fill, (list, tuple)):
        if len(fill) == 1:
            fill = fill * bands
        elif len(fill) != bands:
            raise ValueError(
                f"The number of elements in 'fill' does not match the number of channels of the image ({len(fill)} != {bands})"
            )
        fill = tuple(fill)
    if img.mode != "F":
        fill = tuple(int(x) for x in fill) if isinstance(fill, tuple) else int(fill)
    return {name: fill}


def pad(image: Any, padding: Any, fill: Any = 0, mode: str = "constant") -> Any:
    left, right, top, bottom = geometry.parse_padding(padding)
    if mode == "constant":
        border = (left, top, right, bottom)
        option = fill_option(fill, image, "fill")
        if image.mode != "P":
            return pillow("ImageOps").expand(image, border=border, **option)
        palette = image.getpalette()
        padded = pillow("ImageOps").expand(image, border=border, **option)
        padded.putpalette(palette)
        return padded
    # Negative borders cut.
    cut = [max(-side, 0) for side in (left, top, right, bottom)]
    if any(cut):
        width, height = image.size
        image = image.crop((cut[0], cut[1], width - cut[2], height - cut[3]))
    left, right, top, bottom = (max(side, 0) for side in (left, right, top, bottom))
    palette = image.getpalette() if image.mode == "P" else None
    array = np.asarray(image)
    widths: Any = [(top, bottom), (left, right)] + [(0, 0)] * (array.ndim - 2)
    padded = pillow().fromarray(np.pad(array, widths, mode=mode))  # type: ignore[call-overload]
    if palette is not None:
        padded.putpalette(palette)
    return padded


def _transform(image: Any, kind: str, numbers: Sequence[float], interpolation: Any, fill: Any) -> Any:
    mode = TO_PIL[interpolation_mode(interpolation)]
    return image.transform(image.size, pillow().Transform[kind], numbers, mode, **fill_option(fill, image))


def affine(img: Any, matrix: Sequence[float], interpolation: Any = InterpolationMode.NEAREST, fill: Any = None) -> Any:
    return _transform(img, "AFFINE", matrix, interpolation, fill)


def rotate(image: Any, angle: float, mode: InterpolationMode, expand: bool, center: Any, fill: Any = None) -> Any:
    return image.rotate(angle, TO_PIL[mode], expand, center, **fill_option(fill, image))


def perspective(
    img: Any, perspective_coeffs: Sequence[float], interpolation: Any = InterpolationMode.BICUBIC, fill: Any = None
) -> Any:
    return _transform(img, "PERSPECTIVE", perspective_coeffs, interpolation, fill)


# -- colour -----------------------------------------------------------------------------------------------------------


def _enhance(kind: str, image: Any, factor: float) -> Any:
    return getattr(pillow("ImageEnhance"), kind)(image).enhance(factor)


def adjust_brightness(image: Any, factor: float) -> Any:
    return _enhance("Brightness", image, factor)


def adjust_contrast(image: Any, factor: float) -> Any:
    return _enhance("Contrast", image, factor)


def adjust_saturation(image: Any, factor: float) -> Any:
    return _enhance("Color", image, factor)


def adjust_sharpness(image: Any, factor: float) -> Any:
    return _enhance("Sharpness", image, factor)


def adjust_hue(image: Any, factor: float) -> Any:
    mode = image.mode
    if mode in ("L", "1", "I", "F"):
        return image
    hue, saturation, value = image.convert("HSV").split()
    # The hue is a byte on a circle: adding wraps around.
    turned = (np.asarray(hue, dtype=np.int64) + int(factor * 255)) % 256
    hue = pillow().fromarray(turned.astype(np.uint8))
    return pillow().merge("HSV", (hue, saturation, value)).convert(mode)


def adjust_gamma(image: Any, gamma: float, gain: float = 1.0) -> Any:
    mode = image.mode
    table = [int((255 + 1 - 1e-3) * gain * pow(value / 255.0, gamma)) for value in range(256)] * 3
    return image.convert("RGB").point(table).convert(mode)


def to_grayscale(image: Any, channels: int) -> Any:
    if channels == 1:
        return image.convert("L")
    if channels == 3:
        gray = np.array(image.convert("L"), dtype=np.uint8)
        return pillow().fromarray(np.dstack([gray, gray, gray]))
    raise ValueError("num_output_channels should be either 1 or 3")


def invert(image: Any) -> Any:
    return pillow("ImageOps").invert(image)


def posterize(image: Any, bits: int) -> Any:
    return pillow("ImageOps").posterize(image, bits)


def solarize(image: Any, threshold: float) -> Any:
    return pillow("ImageOps").solarize(image, threshold)


def autocontrast(image: Any) -> Any:
    return pillow("ImageOps").autocontrast(image)


def equalize(image: Any) -> Any:
    return pillow("ImageOps").equalize(image)


def num_channels(image: Any) -> int:
    return len(image.getbands())
