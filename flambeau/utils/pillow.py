"""Pillow, where it is installed: image files are its business."""

from __future__ import annotations

import io
import struct
from typing import Any

try:
    from PIL import Image, ImageColor, ImageDraw, ImageFont, ImageOps, ImageSequence, features
except ImportError:
    Image = ImageColor = ImageDraw = ImageFont = ImageOps = ImageSequence = features = None  # type: ignore[assignment]

# What decoders raise on damaged files, besides their own UnidentifiedImageError, which is an OSError.
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, MemoryError, struct.error)


def pillow() -> Any:
    """The module PIL.Image."""
    if Image is None:
        raise ImportError("reading and writing images needs Pillow: pip install 'flambeau[vision]'")
    return Image


def decode(data: Any, formats: tuple[str, ...] | None = None, draft: str | None = None) -> Any:
    """The PIL image in the bytes of an image file, fully read; RuntimeError if they are damaged or no image at all.

    `formats` are the file formats to expect; with `draft`, a JPEG decoder gives this mode itself."""
    module = pillow()
    try:
        image = module.open(io.BytesIO(data), formats=formats)
        if draft is not None:
            image.draft(draft, image.size)
        image.load()
    except (*_DAMAGE, module.DecompressionBombError) as problem:
        raise RuntimeError(f"cannot decode this image: {type(problem).__name__}: {problem}") from problem
    return image


__all__ = [
    "Image",
    "ImageColor",
    "ImageDraw",
    "ImageFont",
    "ImageOps",
    "ImageSequence",
    "decode",
    "features",
    "pillow",
]
