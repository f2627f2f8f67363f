"""`torch.backends.mkl`: Flambeau does not use MKL itself."""

from __future__ import annotations


def is_available() -> bool:
    """False: products are computed by oneDNN or NumPy."""
    return False
