"""`torch.backends.kleidiai`: a library that Flambeau does not use."""

from __future__ import annotations


def is_available() -> bool:
    """False: it is not used."""
    return False
