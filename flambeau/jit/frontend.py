"""The errors of the compiler, under PyTorch's names."""

from __future__ import annotations

from .source import FrontendError, NotSupportedError, UnsupportedNodeError

__all__ = ["FrontendError", "NotSupportedError", "UnsupportedNodeError"]
