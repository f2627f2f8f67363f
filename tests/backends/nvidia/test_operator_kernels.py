"""Hand-written kernels for NVIDIA GPUs, their text compiled for the CPU: scans, sorts, choices, gradients of tables, distinct elements."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau as ft
from flambeau.backends import nvidia
from flambeau.backends.nvidia import operators  # noqa: F401  declares the kernels
from flambeau.backends.nvidia.operators import embedding as embedding_kernels
from flambeau.backends.nvidia.operators import launching, scan, sorting
from flambeau.ops.index import sort as sort_operators
from flambeau.ops.index import unique as unique_operators
from flambeau.ops.nn import cross_entropy, max_pool
from flambeau.ops.nn.embedding import embedding_dense_backward, renorm_rows
from flambeau.ops.reduce.agreement import xor_of_bits
from flambeau.ops.reduce.histogram import counts_of
from flambeau.ops.shape.rearrange import _counted_indices

sys.path.insert(0, str(Path(__file__).parents[2] / "kernels"))
import cuda_on_cpu  # noqa: E402

needs_compiler = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no C++ compiler")
rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return cuda_on_cpu.EmulatedDevice(tmp_path_factory.mktemp("cuda"), reverse=True)


@pytest.fixture(autouse=True)
def _emulated(monkeypatch, device):
    note = np.zeros(4, "i8")
    monkeypatch.setattr(nvidia, "load_source", lambda source, where, options=(): device.load(source))
    monkeypatch.setattr(nvidia, "processors", lambda where: 4)
    monkeypatch.setattr(nvidia, "error_flag", lambda where, operator="": note.ctypes.data)
    launching.function.cache_clear()
    yield
    launching.function.cache_clear()


def kernel(operator, where="cuda"):
    return operator.op.kernels[where]


def close(a, b, **options):
    ft.testing.assert_close(a, b, equal_nan=True, **options)


@needs_compiler
def test_scans():
    for shape, dim in (((3, 50), 1), ((40000,), 0), ((3, 200, 7), 1)):
        x = ft.from_numpy(rng.normal(size=shape).astype("f4"))
        lines = int(np.prod(shape[:dim])), shape[dim], int(np.prod(shape[dim + 1 :]))
        out = ft.empty_like(x)
        scan.scan(out, None, x, *lines, "sum", False)
        close(out, x.cumsum(dim), rtol=1e-4, atol=1e-3)
        coarse = (x * 2).round()
        places = ft.empty(shape, dtype=ft.int64)
        scan.scan(out, places, coarse, *lines, "max", False)
        values, expected = coarse.cummax(dim)
        close(out, values)
        close(places, expected)


@needs_compiler
@pytest.mark.parametrize("kind, descending", [(ft.float32, False), (ft.int64, True)])
def test_sorts_are_stable_and_nan_is_last(kind, descending):
    for shape in ((5, 37), (2, 5000)):
        a = np.round(rng.normal(size=shape) * 5, 1)
        if kind is ft.float32:
            a.flat[::7], a.flat[3::11], a.flat[4::11] = np.nan, 0.0, -0.0
        x = ft.from_numpy(a).to(kind)
        values, order = ft.empty(shape, dtype=kind), ft.empty(shape, dtype=ft.int64)
        sorting.sort_rows(values, order, x, descending)
        expected = x.sort(dim=-1, descending=descending, stable=True)
        close(values, expected[0], rtol=0, atol=0)
        close(order, expected[1])
    if not descending:
        x = (ft.from_numpy(rng.normal(size=(3, 5000)).astype("f4")) * 9).round()
        best = [ft.empty(3, 5), ft.empty(3, 5, dtype=ft.int64)]
        kernel(sort_operators.topk_along)(best, x, 5, 1, True)
        close(best[0], x.topk(5, 1)[0])
        close(x.gather(1, best[1]), best[0])
        middle = [ft.empty(3), ft.empty(3, dtype=ft.int64)]
        kernel(sort_operators.median_along)(middle, x, 1, False)
        close(middle[0], x.median(1)[0])


@needs_compiler
@pytest.mark.parametrize("small", [1 << 22, 0])
def test_the_gradient_of_a_table_is_summed_in_order(small, monkeypatch):
    monkeypatch.setattr(embedding_kernels, "_SMALL", small)
    grad, index = ft.randn(300, 40), ft.from_numpy(rng.integers(0, 20, 300))
    for average in (False, True):
        found, expected = ft.empty(20, 40), ft.empty(20, 40)
        kernel(embedding_dense_backward)(found, grad, index, 20, 3, average)
        kernel(embedding_dense_backward, "any")(expected, grad, index, 20, 3, average)
        close(found, expected, rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("lengths", [[700], [128, 128, 1], [127, 130, 5, 400], [1, 255, 256, 3], [64, 64, 500]])
def test_many_equal_indices_are_summed_in_pieces(lengths, monkeypatch):
    monkeypatch.setattr(embedding_kernels, "_SMALL", 0)
    index = ft.from_numpy(rng.permutation(np.repeat(np.arange(len(lengths)), lengths)))
    grad = ft.randn(len(index), 300)
    for average in (False, True):
        for padding in (-1, 0):
            found, expected = ft.empty(6, 300), ft.empty(6, 300)
            kernel(embedding_dense_backward)(found, grad, index, 6, padding, average)
            kernel(embedding_dense_backward, "any")(expected, grad, index, 6, padding, average)
            close(found, expected, rtol=1e-4, atol=1e-4)


def test_distinct_elements_counts_and_repeats():
    x = ft.from_numpy(rng.integers(0, 9, (6, 5)).astype("f4"))
    x[2] = x[0]
    declared = [(unique_operators.unique_elements, (), "any"), (unique_operators.distinct_neighbours, (), "any")]
    declared += [
        (op, (d,), "cpu")
        for d in (0, 1)
        for op in (unique_operators.unique_slices, unique_operators.distinct_neighbour_slices)
    ]
    for operator, dim, here in declared:
        found, expected = (kernel(operator, where)(x, *dim, True, True) for where in ("cuda", here))
        for a, b in zip(found, expected, strict=True):
            close(a, b)
    index, weights = ft.from_numpy(rng.integers(0, 9, 40)), ft.rand(40)
    close(kernel(counts_of)(index, weights, 12), ft.bincount(index, weights, 12))
    close(kernel(_counted_indices)(ft.tensor([2, 0, 3])), ft.tensor([0, 0, 2, 2, 2]))
    for test in (ft.tensor([1.0, 3.0]), ft.arange(30)):
        for invert in (False, True):
            out = ft.empty(6, 5, dtype=ft.bool)
            kernel(unique_operators.is_among)(out, x, test, False, invert)
            close(out, ft.isin(x, test, invert=invert))
    wide = ft.rand(4, 7, dtype=ft.float64)
    found, expected = ft.empty(4, dtype=ft.uint64), ft.empty(4, dtype=ft.uint64)
    kernel(xor_of_bits)(found, wide, (1,), (4,))
    kernel(xor_of_bits, "cpu")(expected, wide, (1,), (4,))
    close(found.view(ft.int64), expected.view(ft.int64))
    table = ft.randn(6, 4)
    other = table.clone()
    kernel(renorm_rows)(table, ft.tensor([1, 1, 3]), 1.0, 2.0)
    kernel(renorm_rows, "cpu")(other, ft.tensor([1, 1, 3]), 1.0, 2.0)
    close(table, other)


@needs_compiler
@pytest.mark.parametrize("channels, kind", [(16, ft.bfloat16), (6, ft.float32), (5, ft.float64)])
def test_max_pooling_channels_last(channels, kind):
    for kernel_size, stride, padding in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (2, 3, 0)):
        x = (ft.from_numpy(rng.normal(size=(2, channels, 9, 8))) * 2).round().to(kind)
        x[0, 1, 2, 3] = float("nan")
        x = x.to(memory_format=ft.channels_last)
        window = max_pool.Window((kernel_size,) * 2, (stride,) * 2, (padding,) * 2, (1, 1), False)
        sizes = ft.nn.functional.max_pool2d(x.float(), kernel_size, stride, padding).shape[-2:]
        shape = (2, channels, *sizes)
        made = [[ft.empty(shape, dtype=d, memory_format=ft.channels_last) for d in (kind, ft.uint8)] for _ in range(2)]
        for out, where in zip(made, ("cuda", "any")):
            kernel(max_pool.max_pool2d_coded, where)(out, x, window, sizes)
        close(made[0][0], made[1][0], rtol=0, atol=0)
        close(made[0][1], made[1][1])
        g = ft.from_numpy(rng.integers(-9, 9, shape)).to(kind).to(memory_format=ft.channels_last)
        found = [ft.empty(x.shape, dtype=kind, memory_format=ft.channels_last) for _ in range(2)]
        for out, where in zip(found, ("cuda", "any")):
            kernel(max_pool.max_pool2d_codes_backward, where)(out, g, made[0][1], tuple(x.shape), window)
        close(*found, rtol=0, atol=0)


@needs_compiler
@pytest.mark.parametrize("kind, classes", [(ft.bfloat16, 2048), (ft.float32, 37), (ft.float64, 600)])
def test_cross_entropy_of_rows_and_its_gradient_from_scores(kind, classes, monkeypatch):
    kept = ft.float64 if kind is ft.float64 else ft.float32
    x = ft.from_numpy(rng.normal(size=(9, classes)) * 4).to(kind)
    x[1, ::3], x[3], x[4, 5], x[5, 6] = -math.inf, -math.inf, math.inf, math.nan
    target = ft.from_numpy(rng.integers(0, classes, 9))
    target[7], target[1] = -100, 1
    for reduction in ("mean", "none", "sum"):
        shape = (9,) if reduction == "none" else ()
        made = []
        for where in ("cuda", "any"):
            out = [ft.empty(shape, dtype=kept), ft.empty(9 * 3 + 3, dtype=kept), ft.empty(9, classes, dtype=kept)]
            kernel(cross_entropy.cross_entropy_indices, where)(out, x, target, None, reduction, -100, 0.0, False)
            made.append(out)
        lean = [ft.empty_like(t) for t in made[0][:2]]
        kernel(cross_entropy.cross_entropy_unrecorded, "cuda")(lean, x, target, None, reduction, -100, 0.0, False)
        finite = [i for i in range(9) if i not in (3, 4, 5)]
        made[1][1][15] = made[0][1][15]  # the largest of scores that are nan is nobody's concern
        for a, b in zip(made[0], made[1]):
            close(a, b, rtol=1e-5, atol=1e-6)
        for a, b in zip(lean, made[0]):
            close(a, b, rtol=0, atol=0)
        g = ft.ones(shape, dtype=kept)
        for stores in (kind, kept):
            found = [ft.empty(9, classes, dtype=stores) for _ in range(3)]
            rest = (target, None, made[1][1], reduction, -100, 0.0)
            kernel(cross_entropy.cross_entropy_backward, "any")(found[0], g, made[1][2], *rest)
            kernel(cross_entropy.cross_entropy_gradient, "cuda")(found[1], g, x, *rest)
            kernel(cross_entropy.cross_entropy_gradient, "any")(found[2], g, x, *rest)
            for one in found[1:]:
                close(
                    one[finite].float(),
                    found[0][finite].float(),
                    rtol=2e-2 if stores is ft.bfloat16 else 1e-5,
                    atol=1e-6,
                )
                assert one[3:6].isnan().tolist() == found[0][3:6].isnan().tolist()
