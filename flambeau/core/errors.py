"""Exceptions that PyTorch has and Python has not."""

from __future__ import annotations


class LinAlgError(RuntimeError):
    """The numbers of a matrix do not allow what was asked: singular, not positive-definite, no convergence."""


class OutOfMemoryError(RuntimeError):
    """A device has no memory left for what was asked."""


class AcceleratorError(RuntimeError):
    """Raised when a device reports an error."""


class FatalError(Exception):
    """PyTorch's name for an error of its compiled part; nothing here raises it, and programs name it in `except`."""
