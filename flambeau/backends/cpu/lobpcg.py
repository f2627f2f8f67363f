"""Eigenvalues of large symmetric matrices: the locally optimal block preconditioned conjugate gradient method
(Knyazev 2001), in double precision."""

from __future__ import annotations

import numpy as np

_PATIENCE = 15  # iterations without a smaller residual: rounding allows no better


def eigenpairs(
    a: np.ndarray,
    b: np.ndarray | None,
    x: np.ndarray,
    preconditioner: np.ndarray | None,
    largest: bool,
    tol: float,
    niter: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the extreme eigenvalues of a v = e b v and their vectors, as many as x has columns, from the guess x."""
    k = x.shape[1]
    x, values = _best_approximations(_orthonormal_basis(x, b), a, largest, k)
    scale = np.linalg.norm(a) + (np.abs(values).max() * np.linalg.norm(b) if b is not None else np.abs(values).max())
    step = x[:, :0]
    lowest, waited = np.inf, 0
    for _ in range(niter):
        residual = a @ x - _times(b, x) * values
        size = np.linalg.norm(residual, axis=0).max()
        waited = 0 if size < lowest else waited + 1
        lowest = min(lowest, size)
        if size <= tol * scale or waited > _PATIENCE:
            break
        downhill = residual if preconditioner is None else preconditioner @ residual
        basis = _orthonormal_basis(np.concatenate([x, downhill, step], 1), b)
        fresh, values = _best_approximations(basis, a, largest, k)
        step = fresh - x @ (x.conj().T @ _times(b, fresh))
        x = fresh
    return values, x


def _times(b: np.ndarray | None, x: np.ndarray) -> np.ndarray:
    return x if b is None else b @ x


def _orthonormal_basis(s: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """Return an orthonormal basis, in the inner product of b, of the span of s; (nearly) dependent columns are dropped."""
    s = s / np.maximum(np.linalg.norm(s, axis=0), np.finfo(s.dtype).tiny)
    for _ in range(2):  # the second pass removes what rounding left of the first
        values, vectors = np.linalg.eigh(s.conj().T @ _times(b, s))
        kept = values > values[-1] * s.shape[1] * np.finfo(s.dtype).eps
        s = s @ (vectors[:, kept] / np.sqrt(values[kept]))
    return s


def _best_approximations(basis: np.ndarray, a: np.ndarray, largest: bool, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best approximations to eigenvectors in a subspace, and their values."""
    values, vectors = np.linalg.eigh(basis.conj().T @ (a @ basis))
    order = np.argsort(-values if largest else values)[:k]
    return basis @ vectors[:, order], values[order]
