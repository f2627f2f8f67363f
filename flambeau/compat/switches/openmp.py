"""`torch.backends.openmp`: whether parallel loops run on OpenMP's threads."""

from __future__ import annotations

from ...backends.cpu import threads


def is_available() -> bool:
    """Return whether libgomp was found."""
    return threads.library() is not None
