"""CUDA source of loop nests: what the text says. test_cuda_programs.py runs it."""

from __future__ import annotations

import pytest

from flambeau.core import dtype as dt
from flambeau.core.dtype import bfloat16, float16, float32, float64, int64
from flambeau.kernels import cuda_values, emit_cuda
from flambeau.kernels.library import softmax
from flambeau.kernels.loops import inf, like, loop_kernel, prange

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


def test_inf_starts_running_maxima():
    @loop_kernel
    def top(out, x, n):
        best = like(x, -inf)
        for i in range(n):
            best = max(best, x[i])
        out[0] = best

    source = emit_cuda.emit(top.lower(float64, float64, int))
    assert "fb_max<double>(v_best, v_x[" in source and "__longlong_as_double(0xfff0000000000000LL)" in source
