"""Factorizations and products of compiled loops and LAPACK's own routines, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.backends.cpu import lapack, lapack_routines


def _positive(*shape: int) -> np.ndarray:
    a = np.random.default_rng(0).standard_normal(shape)
    return (a @ np.swapaxes(a, -2, -1) / shape[-1] + np.eye(shape[-1])).astype(np.float32)


@pytest.mark.parametrize("shape", [(5, 4, 4), (40, 40), (2, 30, 30)])
def test_factors_keep_single_precision_and_are_right(shape):
    a = _positive(*shape)
    wide = a.astype(np.float64)
    b = np.random.default_rng(1).standard_normal((*shape[:-1], 3)).astype(np.float32)
    x, info = lapack.solve(a, b)
    assert x.dtype == np.float32 and not info.any()
    np.testing.assert_allclose(x, np.linalg.solve(wide, b), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(lapack.inverse(a)[0], np.linalg.inv(wide), rtol=1e-3, atol=1e-4)
    factor, info = lapack.cholesky(a)
    assert not info.any()
    np.testing.assert_allclose(factor, np.linalg.cholesky(wide), rtol=1e-3, atol=1e-4)
    q, r = lapack.qr(a, "reduced")
    np.testing.assert_allclose(q @ r, a, atol=1e-4)
    u, s, vh = lapack.svd(a, False)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, a, atol=1e-4)
    np.testing.assert_allclose(lapack.eigh(a)[0], np.linalg.eigvalsh(wide), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [4, 40])
def test_singular_and_indefinite_matrices_are_reported(n):
    a = np.eye(n, dtype=np.float32)
    a[2, 2] = 0
    assert lapack.inverse(a)[1] == 3
    a[2, 2] = -1
    assert lapack.cholesky(a)[1] == 3


@pytest.mark.parametrize("turned", [False, True])
def test_large_matrix_times_vector(turned):
    a = np.random.default_rng(0).standard_normal((203, 301)).astype(np.float32)
    x = np.arange(301 if not turned else 203, dtype=np.float32) / 100
    m = flambeau.from_numpy(a)
    m, expected = (m.T, a.T @ x) if turned else (m, a @ x)
    np.testing.assert_allclose((m @ flambeau.from_numpy(x)).numpy(), expected, rtol=1e-4, atol=1e-3)


def test_products_of_integers_wrap_around():
    a = np.random.default_rng(0).integers(0, 256, (3, 5, 7)).astype(np.uint8)
    b = np.random.default_rng(1).integers(0, 256, (7, 4)).astype(np.uint8)
    assert ((flambeau.from_numpy(a) @ flambeau.from_numpy(b)).numpy() == a @ b).all()


def test_operands_without_memory_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        flambeau.zeros(2, 2) @ flambeau.empty(2, 2, device="meta")
    with pytest.raises(RuntimeError, match="indices should be"):
        flambeau.zeros(3)[flambeau.empty(1, dtype=flambeau.int64, device="meta")]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("n", [3, 30])
def test_a_batch_is_what_its_matrices_are_one_by_one(n, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(lapack_routines, "_loop", lambda count, letters: None)
        monkeypatch.setattr(lapack_routines, "_calls", {})
    a = _positive(4, n, n)
    b = np.random.default_rng(1).standard_normal((4, n, 2)).astype(np.float32)
    functions = {
        "lu": lambda i: lapack.lu(a[i]),
        "solve": lambda i: lapack.solve(a[i], b[i]),
        "inverse": lambda i: lapack.inverse(a[i]),
        "triangular": lambda i: (lapack.solve_triangular(a[i], b[i], True),),
        "cholesky": lambda i: lapack.cholesky(a[i]),
        "qr": lambda i: lapack.qr(a[i], "complete"),
        "svd": lambda i: lapack.svd(a[i]),
        "eigh": lambda i: lapack.eigh(a[i]),
        "least squares": lambda i: lapack.least_squares(a[i], b[i], 1e-6),
    }
    for name, function in functions.items():
        whole, parts = function(slice(None)), [function(i) for i in range(4)]
        for k, found in enumerate(whole):
            np.testing.assert_array_equal(found, np.stack([p[k] for p in parts]), err_msg=name)


def test_rows_in_the_order_that_swaps_lead_to():
    pivots = np.array([[3, 3, 3], [1, 2, 3]], np.int32)
    assert lapack.permutation(pivots, 4).tolist() == [[2, 0, 1, 3], [0, 1, 2, 3]]
