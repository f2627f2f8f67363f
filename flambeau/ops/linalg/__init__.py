"""Linear algebra: factorizations, systems of equations, spectra and functions of matrices."""

from . import functions, orthogonal, solving, triangular  # noqa: F401
