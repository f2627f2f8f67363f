"""Pillow where it is installed: everything that works on tensors works without it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np


def is_pil(value: Any) -> bool:
    """Whether this is a PIL image. One can only exist once Pillow is imported, so this never imports it."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def pillow(part: str = "Image") -> Any:
    """The module PIL.<part>."""
    loaded = sys.modules.get(f"PIL.{part}")
    if loaded is not None:
        return loaded
    try:
        return importlib.import_module(f"PIL.{part}")
    except ImportError as problem:
        raise ImportError("PIL images and image files need Pillow: pip install 'flambeau[vision]'") from problem


# What NumPy holds the pixels of a mode as, where it is not bytes.
_MODE_DTYPES = {"I": np.int32, "I;16": np.uint16, "I;16B": np.uint16, "I;16L": np.uint16, "F": np.float32}


def pil_array(image: Any) -> np.ndarray:
    """A writable (height, width, channels) array of the pixels."""
    array = np.array(image, copy=True)
    return array if array.ndim == 3 else array[:, :, None]
