"""Linear algebra: factorizations, systems of equations, spectra and functions of matrices."""

from . import (  # noqa: F401
    bytes_product,
    cholesky,
    determinant,
    einsum,
    functions,
    grouped,
    ldl,
    least_squares,
    lobpcg,
    low_rank,
    lu,
    matmul,
    orthogonal,
    products,
    removed,
    scaled,
    solving,
    spectral,
    triangular,
)
