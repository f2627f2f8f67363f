"""Linear algebra: factorizations, systems of equations, spectra and functions of matrices."""
