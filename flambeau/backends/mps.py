"""`torch.backends.mps`: there is none."""

from __future__ import annotations


def is_built() -> bool:
    return False


def is_available() -> bool:
    return False
