"""Kernels as programs for NVIDIA GPUs: how work is shared out, and what the text computes where a C++ compiler stands in for one."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.core import dtype as dt
from flambeau.core.dtype import bfloat16, bool_, complex64, float32, float64, int64
from flambeau.expr.functions import cast, exp, floordiv, maximum, tanh, where
from flambeau.expr.node import arg
from flambeau.kernels import cuda_operands, cuda_program, elementwise, geometry, loops
from flambeau.kernels.cuda_loops import LoopProgram
from flambeau.kernels.cuda_maps import MapProgram
from flambeau.kernels.cuda_reductions import ReduceProgram
from flambeau.kernels.cuda_rows import RowFunction, StreamFunction, shapes
from flambeau.kernels.cuda_teams import TeamFunction
from flambeau.kernels.elementwise import Map
from flambeau.kernels.library import advanced_index, batch_norm, index, layer_norm, loss, scan, softmax, sort
from flambeau.kernels.loops import exp as loop_exp
from flambeau.kernels.loops import loop_kernel, prange, scalar_function, simd
from flambeau.kernels.nest_analysis import is_free, statements
from flambeau.kernels.reduction import Reduction

sys.path.insert(0, str(Path(__file__).parent))
import cuda_on_cpu  # noqa: E402

needs_compiler = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no C++ compiler")
rng = np.random.default_rng(0)
X, Y = arg(0), arg(1)
KINDS = {
    np.dtype("f4"): float32,
    np.dtype("f8"): float64,
    np.dtype("i8"): int64,
    np.dtype("?"): bool_,
    np.dtype("c8"): complex64,
}


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    """Two devices whose threads run in opposite orders: results that differ show a missing barrier."""
    folder = tmp_path_factory.mktemp("cuda")
    return [cuda_on_cpu.EmulatedDevice(folder, reverse) for reverse in (False, True)]


def address(a):
    return a.ctypes.data


# --- how work is shared out ------------------------------------------------------------------------------------------


def test_dense_maps_load_vectors():
    source = MapProgram(Map((X + Y,), (float32, float32), (float32,), "ccc", 1)).source
    assert "fb_vec<float, 4>" in source
    assert "fb_vec<unsigned short, 8>" in MapProgram(Map((X,), (bfloat16,), (bfloat16,), "cc", 1)).source


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 10, 640, 65537, (1 << 31) - 1])
def test_division_by_multiplication(divisor):
    magic, shift = cuda_operands.fast_divisor(divisor)
    for x in (0, 1, divisor - 1, divisor, divisor + 1, 123456789, (1 << 31) - 1):
        assert ((x * magic >> 32) + x) >> shift == x // divisor or x >= 1 << 31


def test_rows_that_begin_anywhere_are_read_one_by_one():
    program = MapProgram(Map((X + Y,), (float32, float32), (float32,), "ccc", 2))
    assert program.vector_for((10, 64), [(64, 1), (64, 1), (0, 1)]) == 4
    assert program.vector_for((10, 64), [(64, 1), (65, 1), (0, 1)]) == 1
    assert program.vector_for((10, 63), [(63, 1), (63, 1), (0, 1)]) == 1


def reduction(combine, shape, dims, kind=float32, out=None, final=None):
    kept = [d for d in range(len(shape)) if d not in dims]
    out_shape = tuple(shape[d] for d in kept)
    spread = [0] * len(shape)
    for d, stride in zip(kept, np.empty(out_shape, "i1").strides):
        spread[d] = stride
    strides = list(np.empty(shape, "i1").strides)
    plan = geometry.plan_reduction(shape, [spread, strides], dims, combine.startswith("arg"))
    made = Reduction(X, combine, final, (kind,), out or kind, kind, plan.kept_rank, plan.reduced_rank, plan.kinds)
    return ReduceProgram(made, plan.inner), array("q", plan.geometry).tobytes(), out_shape


def test_long_reductions_are_split_and_short_rows_share_a_warp():
    program, numbers, _ = reduction("sum", (1 << 24,), (0,))
    assert program.plan(numbers, 132).splits > 500
    program, numbers, _ = reduction("sum", (1 << 16, 64), (1,))
    plan = program.plan(numbers, 132)
    assert plan.splits == 1 and plan.shape.lanes <= 32
    program, numbers, _ = reduction("sum", (4096, 4096), (0,))
    plan = program.plan(numbers, 132)
    assert plan.shape.lanes == 0 and plan.shape.vector == 4 and plan.splits > 1


def launches(program, **scalars):
    """(function, blocks, threads) of each launch for these parameters."""
    found = []
    for part in program.parts:
        chosen = part.choose(scalars, 132)
        found.append(part.rows(scalars, chosen, 132) or chosen)
    return found


def test_a_block_takes_a_row():
    program = cuda_program.make(softmax.softmax_rows.lower(float32, float32, int, int)).otherwise
    ((function, blocks, threads),) = launches(program, rows=5000, n=1024)
    assert isinstance(function, RowFunction) and (blocks, threads) == (5000, 128)
    assert function.source.count("*(const fb_vec<float, 4>*)(v_x") == 1  # each element is read once
    assert function.source.count("*(fb_vec<float, 4>*)(v_out") == 1
    ((function, blocks, threads),) = launches(program, rows=500, n=100000)
    assert isinstance(function, StreamFunction) and threads == 1024 and blocks < 500
    ((function, _, _),) = launches(program, rows=5, n=1001)
    assert type(function) is TeamFunction
    ((function, blocks, threads),) = launches(program, rows=1 << 20, n=3)
    assert threads * blocks >= 1 << 19 and not isinstance(function, RowFunction)


def test_sums_over_rows_stay_in_registers():
    f = float32
    program = cuda_program.make(layer_norm.layer_norm_backward.lower(f, f, f, f, f, f, f, int, int, int))
    ((function, _, _),) = launches(program, rows=5000, n=256, chunks=100)
    lines = function.source.splitlines()
    loops = [k for k, line in enumerate(lines) if "v_i < v_bound" in line]
    written = [k for k, line in enumerate(lines) if "(v_partial +" in line]
    assert len(written) == 2 and all(k > loops[-1] for k in written)


def test_shapes_cover_a_row():
    for length in (16, 64, 100, 768, 1024, 4096, 8192, 16384):
        team, vector = shapes(length, 4)[0]
        assert length % vector == 0 and team * 16 >= length


def test_which_loops_are_shared_out():
    @loop_kernel
    def mixed(out, x, rows, n):
        for i in prange(rows):
            total = x[i]
            for j in range(n):
                total += x[i * n + j]
            last = x[i]
            for j in range(n):
                last = last * 2 + x[i * n + j]
            for j in range(n):
                out[i * n + j] = total
            for j in range(n):
                out[i] = out[i] + j
            for j in simd(n):
                out[i * n + j] = last

    loops = [
        s for s in statements(mixed.lower(float32, float32, int, int).body) if hasattr(s, "parallel") and not s.parallel
    ]
    assert [is_free(s, {"total", "last"}) is not None for s in loops] == [True, False, True, False, True]


# --- numbers ---------------------------------------------------------------------------------------------------------


@needs_compiler
def test_dense_maps(devices):
    roots = (exp(X) * Y + where(X > Y, tanh(X), X**3), floordiv(X, Y))
    x, y = rng.normal(size=5001).astype("f4"), np.array([0.7])
    for n, shift in ((5000, 0), (4999, 1), (1, 0)):
        for device in devices:
            a, b = np.empty(n, "f4"), np.empty(n)
            MapProgram(Map(roots, (float32, float64), (float32, float64), "cccb", 1)).bind(device)(
                n, address(a), address(b), address(x[shift:]), address(y)
            )
            part = x[shift : shift + n]
            expected = np.exp(part) * y + np.where(part > y, np.tanh(part), part.astype("f8") ** 3)
            np.testing.assert_allclose(a, expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(b, part // y)


@needs_compiler
def test_strided_maps(devices):
    shape = (9, 10, 12)
    x = rng.normal(size=shape).astype("f4")
    for other in (x[:1], x.transpose(2, 0, 1).copy().transpose(1, 2, 0)):
        out, wide = np.empty(shape, "f4"), np.broadcast_to(other, shape)
        strides = [[s // 4 for s in a.strides] for a in (out, x, wide)]
        rank, sizes, planned, kinds = geometry.plan(shape, strides)
        program = cuda_program.make(elementwise.build((X * 2 - Y,), (float32, float32), (float32,), kinds, rank))
        assert isinstance(program, MapProgram)
        first = sizes[0] if program.dense else array("q", [*sizes, *(s for each in planned for s in each)]).tobytes()
        program.bind(devices[0])(first, address(out), address(x), address(wide))
        np.testing.assert_allclose(out, x * 2 - other, rtol=1e-6)


@needs_compiler
@pytest.mark.parametrize(
    "shape, dims, arg_too",
    [((40000,), (0,), True), ((37, 300), (0,), True), ((5, 6, 7, 8), (0, 2), False), ((65, 3), (1,), False)],
)
def test_reductions(devices, shape, dims, arg_too):
    x = np.round(rng.normal(size=shape) * 4).astype("f4") / 2
    for combine, reference in (("sum", np.sum), ("argmin", np.argmin))[: 1 + arg_too]:
        program, numbers, out_shape = reduction(combine, shape, dims, out=int64 if combine == "argmin" else None)
        expected = reference(x, dims[0] if combine == "argmin" else dims)
        for device in devices:
            out = np.empty(out_shape, "i8" if combine == "argmin" else "f4")
            program.bind(device)(numbers, address(out), address(x))
            np.testing.assert_allclose(out, expected, rtol=1e-6)


@needs_compiler
def test_complex_numbers_and_means(devices):
    z = (rng.normal(size=(50, 6)) + 1j * rng.normal(size=(50, 6))).astype("c8")
    out = np.empty(6, "c8")
    program, numbers, _ = reduction("sum", (50, 6), (0,), complex64)
    program.bind(devices[0])(numbers, address(out), address(z))
    np.testing.assert_allclose(out, z.sum(0), rtol=1e-5)
    square = np.empty_like(z)
    MapProgram(Map((X * X + 1j,), (complex64,), (complex64,), "cc", 1)).bind(devices[0])(
        300, address(square), address(z)
    )
    np.testing.assert_allclose(square, z * z + 1j, rtol=1e-5)
    x = rng.normal(size=(50, 6)).astype("f4")
    program, numbers, _ = reduction("sum", (50, 6), (1,), final=arg(0) / arg(1))
    mean = np.empty(50, "f4")
    program.bind(devices[0])(numbers, address(mean), address(x))
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-5, atol=1e-6)


@scalar_function
def steps_to_one(x):
    count = 0.0
    while x > 1:
        x = x / 2
        count += 1
    return count


@needs_compiler
def test_scalar_functions_and_integers(devices):
    x, out = np.array([0.5, 1, 3, 100.0]), np.empty(4)
    roots = (steps_to_one(X) + steps_to_one(X * 2),)
    MapProgram(Map(roots, (float64,), (float64,), "cc", 1)).bind(devices[0])(4, address(out), address(x))
    np.testing.assert_array_equal(out, np.maximum(np.ceil(np.log2(x)), 0) + np.maximum(np.ceil(np.log2(2 * x)), 0))
    roots = (floordiv(X, Y), X % Y, X << (Y & 3), maximum(X, Y), cast(cast(X, dt.uint8), int64))
    a, b = np.array([7, -7, 7, -7, 0, 5, -(2**63)]), np.array([2, 2, -2, -2, 3, 0, -1])
    outs = [np.empty(7, "i8") for _ in roots]
    program = MapProgram(Map(roots, (int64, int64), (int64,) * 5, "c" * 7, 1))
    program.bind(devices[0])(7, *map(address, outs), address(a), address(b))
    assert outs[0].tolist() == [3, -4, -4, 3, 0, 0, -(2**63)]
    assert outs[1].tolist() == [1, 1, -1, -1, 0, 0, 0]
    assert outs[2][:5].tolist() == [28, -28, 28, -28, 0]
    assert outs[4].tolist() == [7, 249, 7, 249, 0, 5, 0]


@needs_compiler
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_eight_bits(devices, name):
    kind = dt.BY_NAME[name]
    x = np.array([0.0, -0.0, 1.0, 1.06, -3.3, 0.001, 447.0, 1e9, np.inf, 0.0156, 0.0019], "f4")
    bits, back = np.empty(len(x), "u1"), np.empty(len(x), "f4")
    MapProgram(Map((X,), (float32,), (kind,), "cc", 1)).bind(devices[0])(len(x), address(bits), address(x))
    MapProgram(Map((X,), (kind,), (float32,), "cc", 1)).bind(devices[0])(len(x), address(back), address(bits))
    expected = flambeau.from_numpy(x).to(kind)
    np.testing.assert_array_equal(bits, expected.view(flambeau.uint8).numpy())
    np.testing.assert_array_equal(back, expected.float().numpy())


def same(devices, kernel, outs, operands, tolerance=1e-4, **constants):
    """A loop kernel as a program gives what it gives on the CPU."""
    kinds = [KINDS[o.dtype] if isinstance(o, np.ndarray) else None if o is None else type(o) for o in operands]
    expected = [o.copy() if isinstance(o, np.ndarray) else o for o in operands]
    kernel(*expected, **constants)
    program = cuda_program.make(kernel.lower(*kinds, **constants))
    for device in devices:
        given = [o.copy() if isinstance(o, np.ndarray) else o for o in operands]
        program.bind(device)(*[address(o) if isinstance(o, np.ndarray) else o for o in given if o is not None])
        for k in outs:
            np.testing.assert_allclose(given[k], expected[k], rtol=tolerance, atol=tolerance)
    return program


def normal(*shape):
    return rng.normal(size=shape).astype("f4")


def zeros(*shape):
    return np.zeros(shape, "f4")


@needs_compiler
@pytest.mark.parametrize("rows, n", [(9, 100), (70, 1024), (1001, 64), (3, 20480)])
def test_rows(devices, rows, n):
    program = same(devices, softmax.softmax_rows, (0,), (zeros(rows, n), normal(rows, n), rows, n))
    assert isinstance(program.otherwise, LoopProgram)


@needs_compiler
def test_sums_over_rows(devices):
    rows, n = 200, 512
    x, grad = normal(rows, n), normal(rows, n)
    mean, rstd = x.mean(1), 1 / x.std(1)
    operands = (zeros(rows, n), zeros(5, 2, n), grad, x, mean, rstd, normal(n), rows, n, 5)
    same(devices, layer_norm.layer_norm_backward, (0, 1), operands, 1e-3)


@needs_compiler
def test_what_stands_between_parallel_loops_is_done_by_one_block(devices):
    rows, n = 20, 30
    target = rng.integers(0, n, rows)
    target[3] = -100
    operands = (
        zeros(rows),
        zeros(3 * rows + 3),
        zeros(rows, n),
        normal(rows, n),
        target,
        normal(n),
        rows,
        n,
        -100,
        0.1,
    )
    same(devices, loss.cross_entropy_rows, (0, 1, 2), operands, 1e-3, reduction="mean", smooth=True)
    rows, channels = 70, 6
    operands = (
        zeros(rows, channels), zeros(channels), zeros(channels), zeros(4, 2, channels), zeros(2, channels), normal(rows, channels),
        None, None, None, None, rows, channels, 4, 0.1, 1e-5,
    )  # fmt: skip
    same(devices[:1], batch_norm.normalise_columns, (0, 1, 2), operands, 1e-3)


@needs_compiler
def test_columns_and_arrays_of_a_block(devices):
    same(devices, softmax.softmax_columns, (0,), (zeros(3, 20, 70), normal(3, 20, 70), 3, 20, 70))


@needs_compiler
def test_one_thread_per_line(devices):
    same(devices[:1], scan.cumulate, (0,), (zeros(5, 40), normal(5, 40), 5, 8, 5), op="sum")
    x = normal(5, 40)
    operands = (x, np.empty((5, 40), "i8"), np.empty_like(x), np.empty((5, 40), "i8"), 5, 40)
    same(devices[:1], sort.sort_rows, (0, 1), operands)


@loop_kernel
def spiral(out, x, n):
    for i in prange(n):
        z = x[i]
        z = z * z / (z + 1j)
        out[i] = loop_exp(z) + x[n - 1 - i]


@needs_compiler
def test_complex_numbers_in_loops(devices):
    x = (rng.normal(size=30) + 1j * rng.normal(size=30)).astype("c8")
    same(devices[:1], spiral, (0,), (np.empty_like(x), x, 30))


@needs_compiler
def test_elements_that_meet(devices):
    where_to = rng.integers(0, 50, (3, 40, 8))
    for reduce in ("add", "amax"):
        operands = (normal(3, 50, 8), where_to, normal(3, 40, 8), 0.0, np.zeros(2, "i8"), 3, 50, 40, 8)
        same(devices, index.scatter, (0, 4), operands, reduce=reduce)
    where_to[1, 2, 3] = 77
    error = np.zeros(2, "i8")
    same(devices, index.gather, (3,), (zeros(3, 40, 8), normal(3, 50, 8), where_to, error, 3, 50, 40, 8))
    mask = rng.random(3000) > 0.6
    ends = np.cumsum([mask[k : k + 1024].sum() for k in range(0, 3000, 1024)])
    same(devices, advanced_index.list_true, (0,), (np.zeros(ends[-1], "i8"), ends, mask, 3000))


def test_programs_refuse_what_they_cannot_do():
    with pytest.raises(NotImplementedError, match="complex128"):
        kinds = (dt.complex128, int64, dt.complex128, float, int64, int, int, int, int)
        cuda_program.make(index.scatter.lower(*kinds, reduce="multiply"))


def test_kernels_know_whether_they_run_on_the_host(monkeypatch):
    @loop_kernel
    def where_am_i(out, n, *, on_host=True):
        for i in prange(n):
            out[i] = 1 if on_host else 2

    seen = []

    class Elsewhere(flambeau.backends.Backend):
        compiles = True

        def compile_for(self, build, key, where):
            seen.append((build().recipe.bindings["on_host"], "on_host" in key))
            return lambda *arguments: None

    monkeypatch.setattr(loops, "backend_of", lambda where: Elsewhere())
    where_am_i.native(float32, int, where=flambeau.device("meta"))
    assert seen == [(False, True)]
    out = np.zeros(3, "f4")
    where_am_i(out, 3)
    assert out.tolist() == [1, 1, 1]
