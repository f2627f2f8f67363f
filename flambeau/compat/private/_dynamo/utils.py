"""Small helpers that programs import from PyTorch's compiler."""

from __future__ import annotations

import functools
import warnings

__all__ = ["warn_once"]


@functools.cache
def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warn with this message the first time only."""
    warnings.warn(msg, stacklevel=stacklevel + 1)
