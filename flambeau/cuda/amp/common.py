"""Whether mixed precision can work on CUDA at all."""

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """True: there is no CUDA device."""
    return True
