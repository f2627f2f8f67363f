"""Questions about tensors without values."""

from typing import Any

from . import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake"]


def is_fake(x: Any) -> bool:
    """Return whether `x` is one of PyTorch's fake tensors; no tensor of this library is."""
    return isinstance(x, FakeTensor)
