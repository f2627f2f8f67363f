"""Sorting, selecting and searching kernels, interpreted with every index checked, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau.backends.cpu  # noqa: F401 - chooses the compiler
from flambeau.kernels.library import radix, scan, search, select

FLOATS = np.array([3.0, -1.0, 0.0, -0.0, 2.5, -1.0, np.inf, -np.inf, 1e-40, 7.0, 3.0])
LINES = {
    "float32": FLOATS.astype(np.float32),
    "float64": FLOATS,
    "int64": np.array([5, -3, 5, 0, -(2**62), 2**62, 1, -3, 9, 9, 4]),
    "int8": np.array([5, -3, 5, 0, -128, 127, 1, -3, 9, 9, 4], np.int8),
    "uint8": np.array([5, 3, 5, 0, 255, 128, 1, 3, 9, 9, 4], np.uint8),
}
MODES = ["interpret", "compile"]


def run(kernel, how, *operands, **constants):
    (kernel.interpret if how == "interpret" else kernel)(*operands, **constants)


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", LINES)
def test_radix_sort_is_stable(dtype, descending, how):
    x = np.stack([LINES[dtype], LINES[dtype][::-1]])
    rows, n = x.shape
    values, indices = np.empty_like(x), np.empty(x.shape, np.int64)
    keys = np.zeros((2, 2, n), np.int64 if x.itemsize == 8 else np.uint32)
    order = np.zeros((2, 2, n), np.int32)
    run(radix.radix_sort_rows, how, values, indices, x, keys, order, rows, n, 2, descending=descending)
    want = np.argsort(-x.astype(object) if descending else x.astype(object), axis=1, kind="stable")
    np.testing.assert_array_equal(indices, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))


@pytest.mark.parametrize("how", MODES)
def test_nan_sorts_last_whatever_its_sign(how):
    x = np.array([[np.nan, 1.0, -np.nan, -np.inf, np.inf]], np.float32)
    values, indices = np.empty_like(x), np.empty(x.shape, np.int64)
    keys, order = np.zeros((1, 2, 5), np.uint32), np.zeros((1, 2, 5), np.int32)
    run(radix.radix_sort_rows, how, values, indices, x, keys, order, 1, 5, 1, descending=False)
    np.testing.assert_array_equal(indices, [[3, 1, 4, 0, 2]])


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("dtype", LINES)
def test_every_rank_is_selected(dtype, long, how):
    x = LINES[dtype]
    n = len(x)
    for k in range(n) if how == "compile" else (0, n // 2, n - 1):
        value, index = np.empty(1, x.dtype), np.empty(1, np.int64)
        run(select.select_lines, how, value, index, x, 1, n, 1, k, 1, mode="kth", long=long)
        assert value[0] == np.sort(x)[k] == x[index[0]]


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", LINES)
def test_three_ways_to_the_best(dtype, largest, how):
    x = np.stack([LINES[dtype], LINES[dtype][::-1]], axis=1)  # lines are columns: (1, n, 2)
    n, inner = x.shape
    ordered = np.sort(x, axis=0)
    for k in (1, 3, n):
        want = (ordered[::-1] if largest else ordered)[:k]
        values, indices = np.empty((k, inner), x.dtype), np.empty((k, inner), np.int64)
        run(select.top_few, how, values, indices, x, 1, n, inner, k, largest=largest)
        np.testing.assert_array_equal(values, want)
        np.testing.assert_array_equal(np.take_along_axis(x, indices, 0), want)
        keys, places = np.zeros((2, k), np.int64), np.zeros((2, k), np.int64)
        run(select.top_heap, how, values, indices, x, keys, places, 1, n, inner, k, 2, largest=largest)
        np.testing.assert_array_equal(values, want)
        for long in (False, True):
            run(select.top_many, how, indices, x, 1, n, inner, k, 2, largest=largest, long=long)
            picked = np.take_along_axis(x, indices, 0)
            np.testing.assert_array_equal(np.sort(picked, axis=0), np.sort(want, axis=0))


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("right", [False, True])
def test_binary_search_matches_numpy(right, how):
    edges = np.array([1.0, 3.0, 3.0, 5.0])
    values = np.array([0.0, 1.0, 3.0, 4.0, 5.0, 6.0])
    out = np.empty(6, np.int64)
    run(search.search_sorted, how, out, edges, values, None, 6, 4, 6, right=right)
    np.testing.assert_array_equal(out, np.searchsorted(edges, values, "right" if right else "left"))


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(9, 5, 1), (2, 5, 3)])
def test_running_sums_in_both_directions(shape, reverse, how):
    x = np.random.default_rng(0).standard_normal(shape)
    out = np.empty_like(x)
    run(scan.cumulate, how, out, x, *shape, op="sum", reverse=reverse)
    want = np.flip(np.cumsum(np.flip(x, 1), 1), 1) if reverse else np.cumsum(x, 1)
    np.testing.assert_allclose(out, want, atol=1e-14)
