"""Libraries that PyTorch computes with and Flambeau does not: `torch.backends.mkl`, `torch.backends.kleidiai`."""

from __future__ import annotations


def is_available() -> bool:
    """False: products are computed by oneDNN or NumPy."""
    return False


class verbose:  # noqa: N801 - PyTorch's name
    """Context manager in which MKL tells what it computes; it computes nothing here, so nothing is told."""

    def __init__(self, enable: int):
        self.enable = enable

    def __enter__(self) -> verbose:
        return self

    def __exit__(self, *exc: object) -> bool:
        return False
