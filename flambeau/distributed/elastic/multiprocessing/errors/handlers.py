"""Choice of a process's error handler."""

from __future__ import annotations

from .error_handler import ErrorHandler

__all__ = ["get_error_handler"]


def get_error_handler() -> ErrorHandler:
    """Return a new error handler."""
    return ErrorHandler()
