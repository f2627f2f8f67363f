"""Access to Pillow, if it is installed: it is needed for image files only, not for tensors."""

from __future__ import annotations

import importlib
import io
import struct
import sys
from typing import Any

import numpy as np

# What decoders raise on damaged files, besides their own UnidentifiedImageError, which is an OSError.
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, MemoryError, struct.error)


def pillow(part: str = "Image") -> Any:
    """Return the module PIL.<part>, imported on first use; safe while another thread imports it."""
    try:
        return importlib.import_module(f"PIL.{part}")
    except ImportError as problem:
        raise ImportError("PIL images and image files need Pillow: pip install 'flambeau[vision]'") from problem


def is_pil(value: Any) -> bool:
    """Return whether a value is a PIL image. One can only exist once Pillow is imported, so this never imports it."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def pil_array(image: Any) -> np.ndarray:
    """Return a writable (height, width, channels) array of the pixels."""
    array = np.array(image, copy=True)
    return array if array.ndim == 3 else array[:, :, None]


def decode(data: Any, formats: tuple[str, ...] | None = None, draft: str | None = None) -> Any:
    """Decode the bytes of an image file to a PIL image, fully read; raises RuntimeError if they are damaged or no image.

    `formats` are the file formats to expect; with `draft`, a JPEG decoder converts to this mode itself."""
    module = pillow()
    try:
        image = module.open(io.BytesIO(data), formats=formats)
        if draft is not None:
            image.draft(draft, image.size)
        image.load()
    except (*_DAMAGE, module.DecompressionBombError) as problem:
        raise RuntimeError(f"cannot decode this image: {type(problem).__name__}: {problem}") from problem
    return image
