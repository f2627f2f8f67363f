"""Check that mixed precision can be used on CUDA."""

from ...core.backend import has_backend
from ...core.device import device

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Return whether there is no CUDA device."""
    return not has_backend(device("cuda"))
