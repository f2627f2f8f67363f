"""Libraries that PyTorch uses and Flambeau does not: `torch.backends.mkl`, `torch.backends.kleidiai`."""

from __future__ import annotations


def is_available() -> bool:
    """Return False: products are computed by oneDNN or NumPy."""
    return False


class _Verbose:
    """Context manager for the verbose output of MKL, which is not used: it has no effect."""

    def __init__(self, enable: int):
        self.enable = enable

    def __enter__(self) -> _Verbose:
        return self

    def __exit__(self, *exc: object) -> None:
        """Do nothing."""


verbose = _Verbose
