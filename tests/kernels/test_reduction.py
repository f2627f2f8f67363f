"""Reductions against NumPy: shapes, strides, dtypes, nan, empty and one-element inputs, accuracy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau.expr as x
from flambeau.backends.compiled import reduce_kernel
from flambeau.backends.cpu import threads
from flambeau.core import dtype as dt
from flambeau.kernels.geometry import plan_reduction

NUMPY = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


def run(array, dims, combine, acc=None, out=None, final=None, root=None):
    """Reduce `array` over `dims` with a native kernel."""
    source = dt.FROM_NUMPY[array.dtype]
    out = out or (dt.int64 if combine.startswith("arg") else dt.bool_ if combine in ("any", "all") else source)
    kept = tuple(s for d, s in enumerate(array.shape) if d not in dims)
    result = np.zeros(kept, out.numpy)
    spread, position = [], 0
    for d in range(array.ndim):
        spread.append(0 if d in dims else result.strides[position] // result.itemsize)
        position += d not in dims
    steps = [s // array.itemsize for s in array.strides]
    plan = plan_reduction(array.shape, [spread, steps], dims, ordered=combine.startswith("arg"))
    kernel = reduce_kernel(
        x.arg(0) if root is None else root, combine, final, (source,), out, acc or source, plan.kept_rank,
        plan.reduced_rank, plan.inner, plan.kinds,
    )  # fmt: skip
    geometry = np.array(plan.geometry, np.int64)
    kernel(geometry.ctypes.data, result.ctypes.data, array.ctypes.data)
    return result


def layouts(rng, dtype):
    def make(*shape):
        return (rng.standard_normal(shape) * 3).astype(dtype)

    yield make(7)
    yield make(1)
    yield make(1000)
    yield make(3, 5)
    yield make(65, 33)
    yield make(33, 300)
    yield make(4, 1, 6, 5)
    yield make(40, 50, 6).transpose(2, 0, 1)
    yield make(20, 30, 40)[::2, 1:, ::3]
    yield make(9, 10, 11)[:, ::-1]
    yield make(200, 3)


@pytest.mark.parametrize("width", [2, 3, 5, 7])
def test_short_rows_without_gaps_are_folded_into_long_ones(width):
    """Column reductions read memory in order; steps of `width` elements through it took seven times as long."""
    array = np.random.default_rng(width).standard_normal((5000, width)).astype(np.float32)
    assert plan_reduction(array.shape, [(0, 1), (width, 1)], (0,)).inner == "kept"
    assert plan_reduction(array.shape, [(0, 1), (width, 1)], (0,), ordered=True).inner == "reduced"
    assert plan_reduction(array.shape, [(0, 1), (2 * width, 1)], (0,)).inner == "reduced"
    np.testing.assert_allclose(run(array, (0,), "sum"), array.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(run(array, (0,), "max"), array.max(0))
    np.testing.assert_array_equal(run(array, (0,), "argmax"), array.argmax(0))


def subsets(rank):
    return [tuple(d for d in range(rank) if mask >> d & 1) for mask in range(1, 1 << rank)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16", "uint8"])
@pytest.mark.parametrize("combine", ["sum", "max", "min", "any", "all"])
def test_matches_numpy_on_every_subset_of_dimensions(combine, dtype):
    rng = np.random.default_rng(0)
    for array in layouts(rng, dtype):
        for dims in subsets(array.ndim):
            got = run(array, dims, combine)
            exact = array.astype(np.float64) if dtype.startswith("float") and combine == "sum" else array
            want = NUMPY[combine](exact, axis=dims)
            if combine == "sum":
                want = want.astype(dtype)
            tolerance = {"float32": 1e-5, "float64": 1e-13}.get(dtype, 0)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 10, err_msg=f"{array.shape} {dims}")


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("combine", ["argmax", "argmin"])
def test_positions_are_logical_and_the_first_of_equals(combine, dtype):
    rng = np.random.default_rng(1)
    for array in layouts(rng, dtype):
        for dims in subsets(array.ndim):
            if dims != tuple(range(dims[0], dims[-1] + 1)):
                continue
            kept = [d for d in range(array.ndim) if d not in dims]
            flat = array.transpose(*kept, *dims).reshape(*(array.shape[d] for d in kept), -1)
            np.testing.assert_array_equal(run(array, dims, combine), NUMPY[combine](flat, axis=-1))


@pytest.mark.parametrize("combine", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_wins(combine, axis):
    rng = np.random.default_rng(2)
    array = rng.standard_normal((40, 70)).astype(np.float32)
    array[3, 5] = array[20, 5] = array[3, 60] = np.nan
    np.testing.assert_array_equal(run(array, (axis,), combine), NUMPY[combine](array, axis=axis))


@pytest.mark.parametrize("shape", [(100, 3000), (3000, 100), (200_000,), (3, 200_000), (200_000, 16)])
def test_positions_in_large_inputs(shape):
    rng = np.random.default_rng(3)
    array = rng.standard_normal(shape).astype(np.float32)
    for axis in range(array.ndim):
        np.testing.assert_array_equal(run(array, (axis,), "argmax"), np.argmax(array, axis=axis))
    whole = tuple(range(array.ndim))
    assert run(array, whole, "argmin") == np.argmin(array)
    ascending = np.arange(array.size, dtype=np.float32).reshape(shape)
    assert run(ascending, whole, "argmax") == array.size - 1


@pytest.mark.parametrize("inner_first", [False, True])
def test_infinities(inner_first):
    array = np.full((30, 40), -np.inf, np.float32)
    dims = (1,) if inner_first else (0,)
    np.testing.assert_array_equal(run(array, dims, "max"), np.max(array, axis=dims))
    np.testing.assert_array_equal(run(array, dims, "argmax"), 0)
    np.testing.assert_array_equal(run(array, dims, "sum"), -np.inf)


def test_prod_and_final():
    rng = np.random.default_rng(4)
    array = (rng.random((30, 50)) + 0.5).astype(np.float32)
    np.testing.assert_allclose(run(array, (0,), "prod"), array.prod(0, dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(run(array, (1,), "prod"), array.prod(1, dtype=np.float64), rtol=1e-5)
    mean = run(array, (0, 1), "sum", final=x.arg(0) / x.arg(1))
    np.testing.assert_allclose(mean, array.mean(dtype=np.float64), rtol=1e-6)
    squares = run(array, (1,), "sum", root=x.arg(0) * x.arg(0), final=x.functions.sqrt(x.arg(0)))
    np.testing.assert_allclose(squares, np.linalg.norm(array.astype(np.float64), axis=1), rtol=1e-6)


def test_integers_accumulate_in_the_given_dtype():
    array = np.full((100, 90), 200, np.uint8)
    np.testing.assert_array_equal(run(array, (0,), "sum", acc=dt.int64, out=dt.int64), 20000)
    np.testing.assert_array_equal(run(array, (0, 1), "sum", acc=dt.int64, out=dt.int64), 1800000)


def test_half_accumulates_in_float32():
    array = np.full((70000,), 0.5, np.float16)
    assert run(array, (0,), "sum", acc=dt.float16, out=dt.float32) == 35000.0


@pytest.mark.parametrize(
    "shape,dims", [((0,), (0,)), ((0, 5), (0,)), ((5, 0), (1,)), ((0, 5), (1,)), ((3, 0, 4), (1, 2))]
)
def test_empty(shape, dims):
    array = np.zeros(shape, np.float32)
    np.testing.assert_array_equal(run(array, dims, "sum"), np.sum(array, axis=dims))
    np.testing.assert_array_equal(run(array, dims, "all"), np.all(array, axis=dims))


@pytest.mark.parametrize("shape,dims", [((10_000_000,), (0,)), ((1_000_000, 3), (0,)), ((100_000, 64), (0,))])
def test_float32_sums_stay_accurate(shape, dims):
    array = np.random.default_rng(5).random(shape, np.float32)
    want = array.sum(dims, dtype=np.float64)
    assert np.max(np.abs(run(array, dims, "sum") - want) / want) < 1e-6


def test_results_do_not_depend_on_the_number_of_threads():
    array = np.random.default_rng(6).standard_normal((1000, 777)).astype(np.float32)
    before = threads.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3, 5):
            threads.set_num_threads(count)
            results.append([run(array, dims, "sum") for dims in ((0,), (1,), (0, 1))])
    finally:
        threads.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_rejects_an_unknown_combination():
    with pytest.raises(ValueError, match="unknown reduction"):
        reduce_kernel(x.arg(0), "median", None, (dt.float32,), dt.float32, dt.float32, 0, 1, "reduced", "c")
