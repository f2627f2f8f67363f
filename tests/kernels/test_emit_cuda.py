"""CUDA source: what the text says, and (where there is a C++ compiler) what it computes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from flambeau.core import dtype as dt
from flambeau.core.dtype import bfloat16, float16, float32, float64, int32, int64
from flambeau.expr.functions import cast, exp, floordiv, maximum, tanh, where
from flambeau.expr.node import arg
from flambeau.kernels import cuda_values, emit_cuda
from flambeau.kernels.cuda_schedules import BLOCK, ReducePlan, map_source, partial_bytes, plan_reduction, reduce_source
from flambeau.kernels.cuda_values import PRELUDE
from flambeau.kernels.library import scan, softmax, sort
from flambeau.kernels.loops import exp as loop_exp
from flambeau.kernels.loops import inf, like, loop_kernel, prange, scalar_function

sys.path.insert(0, str(Path(__file__).parent))
import cuda_on_cpu  # noqa: E402

needs_compiler = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no C++ compiler")
rng = np.random.default_rng(0)
X, Y = arg(0), arg(1)


# --- text ------------------------------------------------------------------------------------------------------------


def test_parallel_loops_become_grid_stride_loops():
    source = emit_cuda.emit(softmax.softmax_rows.lower(float32, float32, int, int))
    assert (
        "softmax_rows_0(float* __restrict__ v_out, float* __restrict__ v_x, long long v_rows, long long v_n)" in source
    )
    assert "threadIdx.x) * (1LL); v_i < v_rows; v_i += (i64)gridDim.x * blockDim.x * (1LL))" in source
    assert "expf(" in source and "__uint_as_float(0xff800000U)" in source


def test_half_width_floats_convert_at_the_edges():
    source = emit_cuda.emit(softmax.softmax_rows.lower(bfloat16, float16, int, int))
    assert "unsigned short* __restrict__ v_x" in source and "fb_half(v_x[" in source
    assert "= fb_to_bfloat(" in source


def test_kernels_are_cut_where_threads_would_wait():
    @loop_kernel
    def two_steps(out, x, n):
        half = n // 2
        for i in prange(half):
            out[i] = x[i]
        out[n] = 1
        for i in prange(n):
            out[i] = out[i] + half

    parts = emit_cuda.launches(two_steps.lower(float32, float32, int))
    assert [(p.name, p.parallel, p.iterations({"n": 10})) for p in parts] == [
        ("two_steps_0", True, 5),
        ("two_steps_1", False, 1),
        ("two_steps_2", True, 10),
    ]


def test_what_needs_a_grid_barrier_is_refused():
    @loop_kernel
    def steps(out, n):
        for k in range(n):
            for i in prange(n):
                out[i] = out[i] + k

    with pytest.raises(NotImplementedError, match="barrier"):
        emit_cuda.emit(steps.lower(float32, int))


@pytest.mark.parametrize(
    "value, kind, text",
    [
        (1, int64, "1LL"),
        (-(1 << 63), int64, "(-9223372036854775807LL - 1)"),
        (300, dt.uint8, "(unsigned char)44"),
        (0.1, float32, "1.000000015e-01f"),
        (-0.0, float64, "(-0.00000000000000000e+00)"),
        (float("inf"), float32, "__uint_as_float(0x7f800000U)"),
        (True, dt.bool_, "true"),
    ],
)
def test_literals(value, kind, text):
    assert cuda_values.constant(value, kind) == text


def test_complex_is_refused():
    with pytest.raises(NotImplementedError, match="complex64"):
        map_source("m", (X,), (dt.complex64,), (dt.complex64,), "cc", 1)


def test_plans_keep_threads_busy():
    assert plan_reduction(1, 1 << 24, "reduced").splits > 100
    assert plan_reduction(10000, 128, "reduced") == ReducePlan(32, 1, "reduced")
    assert plan_reduction(4096, 64, "kept").lanes == 8


# --- numbers ---------------------------------------------------------------------------------------------------------


@needs_compiler
def test_contiguous_map(tmp_path):
    roots = (exp(X) * Y + where(X > Y, tanh(X), X**3), floordiv(X, Y))
    source = map_source("m", roots, (float32, float64), (float32, float64), "cccb", 1)
    x, y = rng.normal(size=1500).astype("f4"), np.array([0.7])
    a, b = np.empty(1500, "f4"), np.empty(1500)
    cuda_on_cpu.launch(cuda_on_cpu.build(source, tmp_path), "m", 2, BLOCK, 1500, a, b, x, y)
    np.testing.assert_allclose(a, np.exp(x) * y + np.where(x > y, np.tanh(x), x.astype("f8") ** 3), rtol=1e-5)
    np.testing.assert_array_equal(b, x // y)


@needs_compiler
@pytest.mark.parametrize("narrow", [True, False])
def test_strided_map(tmp_path, narrow):
    source = map_source("m", (X - Y * arg(2),), (float16, int32, float32), (bfloat16,), "csbd", 3, narrow)
    x, y = rng.normal(size=(4, 3, 5)).astype("f2"), rng.integers(-5, 5, (3, 4)).astype("i4")
    out = np.empty((4, 3, 5), "u2")
    geometry = np.array([[4, 3, 5], [15, 5, 1], [15, 5, 1], [1, 4, 0]], "i8")  # y is transposed and broadcast
    cuda_on_cpu.launch(cuda_on_cpu.build(source, tmp_path), "m", 1, BLOCK, geometry.tobytes(), 60, out, x, y, 2.0)
    expected = x.astype("f4") - y.T[:, :, None].astype("f4") * 2
    np.testing.assert_allclose((out.astype("u4") << 16).view("f4"), expected, rtol=5e-3)


_REDUCE = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "any": np.any,
    "all": np.all,
}


def _reduce_input(combine):
    x = (rng.integers(1, 4, (6, 300)) / 2).astype("f4")
    if combine in ("any", "all"):
        return (rng.random((6, 300)) < (0.004 if combine == "any" else 0.996)).astype("f4")
    x[2, 7] = x[2, 9] = 9
    x[3, 11] = x[3, 13] = np.nan
    if combine == "prod":
        x[:, 20:] = 1
    return x


def _reduce_output(combine):
    return int64 if combine.startswith("arg") else dt.bool_ if combine in ("any", "all") else float64


@needs_compiler
@pytest.mark.parametrize(
    "plan", [ReducePlan(32, 1, "reduced"), ReducePlan(256, 3, "reduced"), ReducePlan(8, 2, "kept")]
)
def test_reductions(tmp_path, plan):
    sources = [
        reduce_source(f"r_{c}", X, c, None, (float32,), _reduce_output(c), float64, 1, 1, "c", plan) for c in _REDUCE
    ]
    library = cuda_on_cpu.build(sources[0] + "".join(s.removeprefix(PRELUDE) for s in sources[1:]), tmp_path)
    geometry = np.array([6, 300, 1, 300, 1], "i8").tobytes()
    for combine, reference in _REDUCE.items():
        x, out = _reduce_input(combine), np.empty(6, _reduce_output(combine).numpy)
        partial = np.empty(6 * plan.splits * partial_bytes(combine, float64), "u1")
        cuda_on_cpu.launch(library, f"r_{combine}", 2, BLOCK, geometry, 6, 300, partial, out, x)
        if plan.splits > 1:
            cuda_on_cpu.launch(library, f"r_{combine}_finish", 1, BLOCK, geometry, 6, 300, partial, out)
        np.testing.assert_allclose(out, reference(x.astype("f8"), axis=1), rtol=1e-12, err_msg=combine)


@needs_compiler
def test_full_reduction_with_final_formula(tmp_path):
    plan = ReducePlan(256, 2, "reduced")
    source = reduce_source("mean", X * Y, "sum", X / Y, (float32, float32), float32, float32, 0, 2, "cc", plan)
    library = cuda_on_cpu.build(source, tmp_path)
    a, b = rng.normal(size=(2, 20, 30)).astype("f4")
    geometry = np.array([20, 30, 30, 1, 30, 1], "i8").tobytes()
    out, partial = np.empty(1, "f4"), np.empty(2, "f4")
    cuda_on_cpu.launch(library, "mean", 2, BLOCK, geometry, 1, 600, partial, out, a, b)
    cuda_on_cpu.launch(library, "mean_finish", 1, BLOCK, geometry, 1, 600, partial, out)
    np.testing.assert_allclose(out[0], np.mean(a * b), rtol=1e-4)


@scalar_function
def steps_to_one(x):
    count = 0
    while x > 1:
        x = x / 2
        count += 1
    return count


@needs_compiler
def test_scalar_functions_become_device_functions(tmp_path):
    source = map_source("m", (steps_to_one(X) + steps_to_one(X * 2),), (float64,), (float64,), "cc", 1)
    x = np.array([0.5, 1, 3, 100.0])
    out = np.empty(4)
    cuda_on_cpu.launch(cuda_on_cpu.build(source, tmp_path), "m", 1, BLOCK, 4, out, x)
    np.testing.assert_array_equal(out, np.maximum(np.ceil(np.log2(x)), 0) + np.maximum(np.ceil(np.log2(2 * x)), 0))


def _run_loop_kernel(kernel, kinds, tmp_path, *args, **constants):
    lowered = kernel.lower(*kinds, **constants)
    library = cuda_on_cpu.build(emit_cuda.emit(lowered), tmp_path)
    for part in emit_cuda.launches(lowered):
        cuda_on_cpu.launch(library, part.name, 2 if part.parallel else 1, 4 if part.parallel else 1, *args)


@needs_compiler
def test_loop_kernels(tmp_path):
    x = rng.normal(size=(5, 40)).astype("f4")
    out = np.empty_like(x)
    _run_loop_kernel(softmax.softmax_rows, (float32, float32, int, int), tmp_path, out, x, 5, 40)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)
    _run_loop_kernel(scan.cumulate, (float32, float32, int, int, int), tmp_path, out, x, 5, 8, 5, op="sum")
    np.testing.assert_allclose(out, np.cumsum(x.reshape(5, 8, 5), 1).reshape(5, 40), rtol=1e-5, atol=1e-5)
    values, order = x.copy(), np.empty(x.shape, "i8")
    spare, spare_order = np.empty_like(x), np.empty_like(order)
    kinds = (float32, int64, float32, int64, int, int)
    _run_loop_kernel(sort.sort_rows, kinds, tmp_path, values, order, spare, spare_order, 5, 40)
    np.testing.assert_array_equal(values, np.sort(x, 1))
    np.testing.assert_array_equal(order, np.argsort(x, 1, kind="stable"))


@loop_kernel
def spiral(out, x, n):
    for i in prange(n):
        z = x[i]
        z = z * z / (z + 1j)
        out[i] = loop_exp(z) + x[n - 1 - i]


@needs_compiler
def test_complex_numbers_are_pairs(tmp_path):
    x = (rng.normal(size=30) + 1j * rng.normal(size=30)).astype("c8")
    out = np.empty_like(x)
    _run_loop_kernel(spiral, (dt.complex64, dt.complex64, int), tmp_path, out.view("f4"), x.view("f4"), 30)
    np.testing.assert_allclose(out, np.exp(x * x / (x + 1j)) + x[::-1], rtol=2e-5, atol=1e-5)


@needs_compiler
def test_integer_arithmetic_is_the_cpus(tmp_path):
    roots = (floordiv(X, Y), X % Y, X << (Y & 3), maximum(X, Y), cast(cast(X, dt.uint8), int64))
    source = map_source("m", roots, (int64, int64), (int64,) * 5, "c" * 7, 1)
    x = np.array([7, -7, 7, -7, 0, 5, -(2**63)])
    y = np.array([2, 2, -2, -2, 3, 0, -1])
    outs = [np.empty(7, "i8") for _ in roots]
    cuda_on_cpu.launch(cuda_on_cpu.build(source, tmp_path), "m", 1, BLOCK, 7, *outs, x, y)
    assert outs[0].tolist() == [3, -4, -4, 3, 0, 0, -(2**63)]
    assert outs[1].tolist() == [1, 1, -1, -1, 0, 0, 0]
    assert outs[2][:5].tolist() == [28, -28, 28, -28, 0]
    assert outs[4].tolist() == [7, 249, 7, 249, 0, 5, 0]


def test_inf_starts_running_maxima():
    @loop_kernel
    def top(out, x, n):
        best = like(x, -inf)
        for i in range(n):
            best = max(best, x[i])
        out[0] = best

    source = emit_cuda.emit(top.lower(float64, float64, int))
    assert "fb_max<double>(v_best, v_x[" in source and "__longlong_as_double(0xfff0000000000000LL)" in source
