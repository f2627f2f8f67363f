"""Exceptions of PyTorch that Python lacks."""

from __future__ import annotations


class LinAlgError(RuntimeError):
    """Raised when a matrix does not allow the requested operation: singular, not positive-definite, no convergence."""


class OutOfMemoryError(RuntimeError):
    """Raised when a device has not enough memory for a request."""


class AcceleratorError(RuntimeError):
    """Raised when a device reports an error."""


class FatalError(Exception):
    """PyTorch's name for an error of its compiled part; nothing here raises it, but programs name it in `except`."""
