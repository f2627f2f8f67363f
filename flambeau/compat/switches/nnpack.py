"""`torch.backends.nnpack`: a library of convolutions for small CPUs, which Flambeau does not use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def is_available() -> bool:
    """Return False: NNPACK is not part of Flambeau."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Return the former setting. Switching NNPACK off changes nothing; switching it on is refused."""
    if _enabled:
        raise RuntimeError("NNPACK is not part of Flambeau: it cannot be switched on")
    return (False,)


@contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """Context manager: set the NNPACK switch, restore it on exit."""
    set_flags(enabled)
    yield
