"""Queries about the compiler Triton, which is not used: kernels are compiled by Flambeau."""


def has_triton() -> bool:
    """Return False: Triton is not used."""
    return False


def has_triton_package() -> bool:
    """Return False: Triton is not used."""
    return False
