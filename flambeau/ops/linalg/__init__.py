"""Linear algebra: factorizations, systems of equations, spectra and functions of matrices."""

from . import (  # noqa: F401
    cholesky,
    determinant,
    functions,
    least_squares,
    lu,
    orthogonal,
    products,
    solving,
    spectral,
    triangular,
)
