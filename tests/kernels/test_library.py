"""The kernel library against NumPy, compiled and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau.backends.cpu  # noqa: F401 - chooses the compiler
from flambeau.kernels.library import index, layer_norm, scan, softmax, sort

RTOL = {"f2": 4e-3, "f4": 1e-5, "f8": 1e-12}
rng = np.random.default_rng(0)


@pytest.fixture(params=["compiled", "interpreted"])
def run(request):
    return (lambda k: k) if request.param == "compiled" else (lambda k: k.interpret)


def normal(*shape, kind="f4"):
    return rng.normal(size=shape).astype(kind)


def reference_softmax(x, axis, log):
    e = x.astype("f8") - x.max(axis, keepdims=True)
    result = e - np.log(np.exp(e).sum(axis, keepdims=True))
    return result if log else np.exp(result)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_softmax_forward_and_backward(run, kind, log):
    x, g = normal(6, 33, kind=kind), normal(6, 33, kind=kind)
    y, dx = np.empty_like(x), np.empty_like(x)
    run(softmax.softmax_rows)(y, x, 6, 33, log_result=log)
    tolerance = {"rtol": RTOL[kind], "atol": RTOL[kind]}
    expected = reference_softmax(x, 1, log)
    np.testing.assert_allclose(y, expected, **tolerance)
    run(softmax.softmax_backward_rows)(dx, g, y, 6, 33, log_result=log)
    np.testing.assert_allclose(dx, _softmax_gradient(expected, g.astype("f8"), log, 1), **tolerance)


def _softmax_gradient(y, g, log, axis):
    if log:
        return g - np.exp(y) * g.sum(axis, keepdims=True)
    return (g - (g * y).sum(axis, keepdims=True)) * y


@pytest.mark.parametrize("log", [False, True])
def test_softmax_along_an_inner_dimension(run, log):
    x, g = normal(2, 5, 70), normal(2, 5, 70)
    y, dx = np.empty_like(x), np.empty_like(x)
    run(softmax.softmax_columns)(y, x, 2, 5, 70, log_result=log)
    expected = reference_softmax(x, 1, log)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    run(softmax.softmax_backward_columns)(dx, g, y, 2, 5, 70, log_result=log)
    np.testing.assert_allclose(dx, _softmax_gradient(expected, g, log, 1), rtol=1e-4, atol=1e-6)


def test_softmax_of_minus_infinity_and_nan(run):
    x = np.array([[-np.inf] * 4, [-np.inf, 0, 0, -np.inf], [1, np.nan, 0, 0]], "f4")
    y = np.empty_like(x)
    run(softmax.softmax_rows)(y, x, 3, 4)
    np.testing.assert_array_equal(y, [[np.nan] * 4, [0, 0.5, 0.5, 0], [np.nan] * 4])


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_layer_norm(run, kind, affine):
    rows, n, eps = 7, 40, 1e-5
    x = normal(rows, n, kind=kind) + np.array(3, kind)
    w = normal(n, kind=kind) if affine != "none" else None
    b = normal(n, kind=kind) if affine == "both" else None
    stat = "f8" if kind == "f8" else "f4"
    y, mean, rstd = np.empty_like(x), np.empty(rows, stat), np.empty(rows, stat)
    run(layer_norm.layer_norm)(y, mean, rstd, x, w, b, rows, n, eps)
    x8 = x.astype("f8")
    r = 1 / np.sqrt(x8.var(1, keepdims=True) + eps)
    hat = (x8 - x8.mean(1, keepdims=True)) * r
    expected = hat * (1 if w is None else w) + (0 if b is None else b)
    tolerance = {"rtol": 2 * RTOL[kind], "atol": 2 * RTOL[kind]}
    np.testing.assert_allclose(y, expected, **tolerance)
    np.testing.assert_allclose(rstd, r[:, 0], rtol=1e-5)
    g = normal(rows, n, kind=kind)
    gw = g.astype("f8") * (1 if w is None else w)
    expected_dx = (gw - gw.mean(1, keepdims=True) - hat * (gw * hat).mean(1, keepdims=True)) * r
    dx, partial, sums = np.empty_like(x), np.empty((3, 2, n), stat), [np.empty(n, stat), np.empty(n, stat)]
    run(layer_norm.layer_norm_backward)(dx, partial, g, x, mean, rstd, w, rows, n, 3)
    run(layer_norm.add_pairs)(*sums, partial, 3, n)
    np.testing.assert_allclose(dx, expected_dx, **tolerance)
    np.testing.assert_allclose(sums[0], (g * hat).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums[1], g.astype("f8").sum(0), rtol=1e-4, atol=1e-4)


def test_layer_norm_backward_with_more_chunks_than_rows(run):
    x, g = normal(2, 5), normal(2, 5)
    partial = np.full((4, 2, 5), 7, "f4")
    run(layer_norm.layer_norm_backward)(None, partial, g, x, x.mean(1), np.ones(2, "f4"), None, 2, 5, 4)
    np.testing.assert_allclose(partial[:, 1].sum(0), g.sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    "kind, out", [("f4", "f4"), ("f8", "f8"), ("f2", "f2"), ("i4", "i8"), ("u1", "i8"), ("b1", "i8")]
)
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_cumulative_sum_and_product(run, kind, out, op):
    x = (rng.normal(size=(3, 6, 4)) * 2).astype("i8").astype(kind)
    y = np.empty(x.shape, out)
    run(scan.cumulate)(y, x, 3, 6, 4, op=op)
    np.testing.assert_array_equal(y, getattr(np, f"cum{op}")(x, axis=1, dtype=out))


def test_logcumsumexp(run):
    x = np.array([[1, -np.inf, 900, 900, np.inf, 3], [-np.inf, -np.inf, 0, np.nan, 2, 1]])
    y = np.empty_like(x)
    run(scan.cumulate)(y, x, 2, 6, 1, op="logsumexp")
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.accumulate(x, axis=1)
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_cumulative_extremes(run):
    x = np.array([[1, 3, 3, np.nan, 5, 2], [4, 1, 1, 7, 7, -np.inf]], "f4")
    values, indices = np.empty_like(x), np.empty(x.shape, "i8")
    run(scan.cumulate_extreme)(values, indices, x, 2, 6, 1, largest=True)
    np.testing.assert_array_equal(values, np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(indices, [[0, 1, 2, 3, 3, 3], [0, 0, 0, 3, 4, 4]])
    run(scan.cumulate_extreme)(values, indices, x, 2, 6, 1, largest=False)
    np.testing.assert_array_equal(values, np.minimum.accumulate(x, 1))
    np.testing.assert_array_equal(indices, [[0, 0, 0, 3, 3, 3], [0, 1, 2, 2, 2, 5]])


@pytest.mark.parametrize("shape, picked", [((3, 5, 4), 7), ((1, 5, 4), 3), ((6, 5, 1), 5)])
def test_gather_and_scatter(run, shape, picked):
    outer, n, inner = shape
    x = normal(*shape)
    idx = rng.integers(0, n, (outer, picked, inner))
    error, out = np.zeros(2, "i8"), np.empty(idx.shape, "f4")
    run(index.gather)(out, x, idx, error, outer, n, picked, inner)
    np.testing.assert_array_equal(out, np.take_along_axis(x, idx, 1))
    where_to = (np.arange(outer)[:, None, None], idx, np.arange(inner))
    src, target = normal(*idx.shape), x.copy()
    run(index.scatter)(target, idx, src, None, error, outer, n, picked, inner, reduce="add")
    expected = x.copy()
    np.add.at(expected, where_to, src)
    np.testing.assert_allclose(target, expected, rtol=1e-6)
    run(index.scatter)(target, idx, None, 2.5, error, outer, n, picked, inner)
    assert (target[where_to] == 2.5).all() and not error.any()
    run(index.scatter)(target, idx, src, None, error, outer, n, picked, inner, reduce="amax")
    np.maximum.at(x := np.where(target == 2.5, 2.5, target), where_to, src)
    np.testing.assert_array_equal(target, x)


def test_bad_indices_are_reported_and_touch_nothing(run):
    x, out, error = normal(1, 3, 1), np.zeros((1, 2, 1), "f4"), np.zeros(2, "i8")
    run(index.gather)(out, x, np.array([[[3], [1]]]), error, 1, 3, 2, 1)
    assert error.tolist() == [1, 3] and out[0, :, 0].tolist() == [0, x[0, 1, 0]]
    error[:] = 0
    before = x.copy()
    run(index.scatter)(x, np.array([[[-1]]]), normal(1, 1, 1), None, error, 1, 3, 1, 1, reduce="add")
    assert error.tolist() == [1, -1]
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("scaled", [False, True])
def test_embedding(run, scaled):
    weight, idx = normal(10, 6), rng.integers(0, 10, 25)
    out, error = np.empty((25, 6), "f4"), np.zeros(2, "i8")
    run(index.embedding)(out, weight, idx, error, 25, 10, 6)
    np.testing.assert_array_equal(out, weight[idx])
    g, dw = normal(25, 6), np.full((10, 6), 9, "f4")
    counts = np.empty(10, "i8") if scaled else None
    run(index.embedding_backward)(dw, g, idx, counts, 25, 10, 6, 4, 3)
    expected = np.zeros((10, 6))
    share = 1 / np.bincount(idx, minlength=10)[idx] if scaled else np.ones(25)
    np.add.at(expected, idx[idx != 4], (g * share[:, None])[idx != 4])
    np.testing.assert_allclose(dw, expected, rtol=1e-5, atol=1e-6)


def _stable_order(row, descending):
    if descending:  # a stable descending order is an ascending one of the reversed ranks
        ranks = np.unique(row, return_inverse=True)[1]
        return np.argsort(-ranks, kind="stable")
    return np.argsort(row, kind="stable")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", [0, 1, 5, 17, 40])
@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "u1"])
def test_sort_is_stable_and_puts_nan_last(run, kind, n, descending):
    x = rng.integers(0, 30, (3, n)).astype(kind)
    if kind in ("f4", "f8") and n > 4:
        x[:, 2] = np.nan
        x[:, -1] = -np.inf
    values, indices = x.copy(), np.empty(x.shape, "i8")
    run(sort.sort_rows)(values, indices, np.empty_like(x), np.empty_like(indices), 3, n, descending=descending)
    for row, v, i in zip(x, values, indices):
        order = _stable_order(row, descending)
        np.testing.assert_array_equal(i, order)
        np.testing.assert_array_equal(v, row[order])
