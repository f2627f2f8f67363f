"""Whether the compiler Triton is used: it is not, kernels are compiled by Flambeau."""


def has_triton() -> bool:
    """False."""
    return False


def has_triton_package() -> bool:
    """False."""
    return False
