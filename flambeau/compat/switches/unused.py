"""Libraries that PyTorch computes with and Flambeau does not: `torch.backends.mkl`, `torch.backends.kleidiai`."""

from __future__ import annotations


def is_available() -> bool:
    """False: products are computed by oneDNN or NumPy."""
    return False
