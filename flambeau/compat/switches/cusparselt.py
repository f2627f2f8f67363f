"""`torch.backends.cusparselt`: a library that Flambeau does not use."""

from __future__ import annotations


def is_available() -> bool:
    """Return False: cuSPARSELt is not used."""
    return False


def version() -> int | None:
    """Return None: cuSPARSELt is not used."""
    return None


def get_max_alg_id() -> int | None:
    """Return None: cuSPARSELt is not used."""
    return None
