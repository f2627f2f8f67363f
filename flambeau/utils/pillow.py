"""Pillow, where it is installed: image files are its business."""

from __future__ import annotations

import io
import struct
from typing import Any

try:
    from PIL import Image, ImageDraw, ImageFont, ImageOps
except ImportError:
    Image = ImageDraw = ImageFont = ImageOps = None  # type: ignore[assignment]

# What decoders raise on damaged files, besides their own UnidentifiedImageError, which is an OSError.
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, MemoryError, struct.error)


def pillow() -> Any:
    """The module PIL.Image."""
    if Image is None:
        raise ImportError("reading and writing images needs Pillow: pip install 'flambeau[vision]'")
    return Image


def decode(data: Any, what: str = "image") -> Any:
    """The PIL image in the bytes of an image file, fully read; RuntimeError if they are damaged or no image at all."""
    module = pillow()
    try:
        image = module.open(io.BytesIO(data))
        image.load()
    except (*_DAMAGE, module.DecompressionBombError) as problem:
        raise RuntimeError(f"cannot decode this {what}: {type(problem).__name__}: {problem}") from problem
    return image


__all__ = ["Image", "ImageDraw", "ImageFont", "ImageOps", "decode", "pillow"]
