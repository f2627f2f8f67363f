"""The NumPy reference: formulas, reductions and loop nests against NumPy itself, known values and PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from answers import judge

from flambeau.core import dtype as dt
from flambeau.expr import arg, binary, const, node
from flambeau.expr import functions as f
from flambeau.kernels import ir
from flambeau.kernels.emit_numpy import evaluate, reduce, run

INF, NAN = math.inf, math.nan
x, y, z = arg(0), arg(1), arg(2)


def compute(formula, *arrays, out=None):
    arrays = [np.asarray(a) for a in arrays]
    dtypes = [dt.FROM_NUMPY[a.dtype] for a in arrays]
    return evaluate((formula,), arrays, dtypes, [out or dtypes[0]])[0]


def floats(*numbers):
    return np.array(numbers, dtype=np.float32)


def test_broadcasts_and_returns_every_root():
    a, b = np.arange(3, dtype=np.float32)[:, None], np.arange(4, dtype=np.float32)
    total, product = evaluate((x + y, x * y), [a, b], [dt.float32] * 2, [dt.float32, dt.float64])
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(product, a * b)
    assert product.dtype == np.float64


def test_constants_take_the_dtype_they_meet():
    assert compute(x + 300, np.array([1], np.uint8)).tolist() == [45]
    assert compute(x * 0.1, floats(3)).tolist() == [np.float32(0.1) * np.float32(3)]
    half = evaluate((x * 0.5,), [np.array([3], np.int64)], [dt.int64], [dt.float32])
    assert half[0].tolist() == [1.5]


def test_half_width_floats_round_once():
    third = np.array([1], np.float16)
    out = evaluate(((x / 3) * 3,), [third], [dt.float16], [dt.float16])[0]
    assert out.dtype == np.float16 and out[0] == 1
    bits = evaluate((x + y,), [np.array([0x3F80], np.uint16)] * 2, [dt.bfloat16] * 2, [dt.bfloat16])[0]
    assert bits.tolist() == [0x4000]
    nan_bits = evaluate((x - x,), [np.array([0x7F80], np.uint16)], [dt.bfloat16], [dt.bfloat16])[0]
    assert nan_bits.tolist() == [0x7FC0]


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (dt.int64, [-(2**63), -(2**63), -(2**63), -1, 300, 3 * 10**9]),
        (dt.int32, [-(2**31), -(2**31), -(2**31), -1, 300, -(2**31)]),
        (dt.int8, [0, 0, 0, -1, 44, 0]),
        (dt.uint8, [0, 0, 0, 255, 44, 0]),
        (dt.bool_, [True, True, True, True, True, True]),
    ],
)
def test_float_to_integer_casts_are_total(to, expected):
    values = np.array([NAN, INF, -INF, -1.5, 300.6, 3e9])
    assert compute(f.cast(x, to), values, out=to).tolist() == expected


def test_integer_division_by_zero_is_quiet():
    a, b = np.array([7, -7, 7, -7, -(2**31)], np.int32), np.array([2, 2, 0, 0, -1], np.int32)
    with np.errstate(all="raise"):
        assert compute(x // y, a, b)[:2].tolist() == [3, -4]
        assert compute(x % y, a, b)[:2].tolist() == [1, 1]
        assert compute(f.fmod(x, y), a, b)[:2].tolist() == [1, -1]


def test_integer_power_wraps_and_truncates():
    base, exponent = np.array([3, 2, -1, -1, 1, 0, 3]), np.array([4, -1, -3, -2, -5, 0, 41])
    assert compute(x**y, base, exponent).tolist() == [81, 0, -1, 1, 1, 1, pow(3, 41, 2**64) - 2**64]


def test_shifts_out_of_range():
    a, b = np.array([1, 1, 1, -8], np.int32), np.array([31, 32, -1, 40], np.int32)
    assert compute(x << y, a, b).tolist() == [-(2**31), 0, 0, 0]
    assert compute(x >> y, a, b).tolist() == [0, 0, 0, -1]


def test_bitcast_of_values_and_constants():
    assert compute(f.bitcast(x, dt.int32), floats(1), out=dt.int32).tolist() == [0x3F800000]
    assert compute(x + f.bitcast(const(0x40000000), dt.float32), floats(1)).tolist() == [3]
    with pytest.raises(TypeError, match="keeps the size"):
        compute(f.bitcast(x, dt.int64), floats(1), out=dt.int64)


def test_fma_rounds_once():
    a = floats(1 + 2**-12)
    assert compute(f.fma(x, x, -1.0), a)[0] == np.float32((1 + 2.0**-12) ** 2 - 1)
    b = np.array([1 + 2.0**-30])
    assert compute(f.fma(x, x, -1.0), b)[0] == 2.0**-29 + 2.0**-60
    big = compute(f.fma(x, x, x), np.array([1e300, INF, NAN]))
    assert big[0] == INF and big[1] == INF and math.isnan(big[2])


def test_sign_rounding_and_predicates():
    values = floats(NAN, -0.0, -2.5, 0.5, 1.5, INF)
    assert compute(f.sign(x), values).tolist() == [0, 0, -1, 1, 1, 1]
    assert compute(f.round_(x), values)[2:5].tolist() == [-2, 0, 2]
    assert compute(f.signbit(x), values, out=dt.bool_)[1:3].tolist() == [True, True]
    assert compute(f.isfinite(x), np.array([1, 2]), out=dt.bool_).tolist() == [True, True]
    assert math.isnan(compute(f.maximum(x, 0), floats(NAN))[0])
    assert compute(f.fmax(x, 0), floats(NAN))[0] == 0


def test_bool_arithmetic_is_logic():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert compute(x + y, a, b).tolist() == [True, True, False]
    assert compute(x * y, a, b).tolist() == [True, False, False]
    assert compute(~x, a).tolist() == [False, False, True]


def test_known_values_of_special_functions():
    gamma = 0.5772156649015329
    np.testing.assert_allclose(
        compute(f.digamma(x), np.array([1, 0.5, 2, -0.5])),
        [-gamma, -gamma - 2 * math.log(2), 1 - gamma, -gamma - 2 * math.log(2) + 2],
        rtol=2e-15,
    )
    assert compute(f.digamma(x), np.array([0.0, -0.0, INF])).tolist() == [-INF, INF, INF]
    assert np.isnan(compute(f.digamma(x), np.array([-1.0, -INF, NAN]))).all()
    assert abs(compute(f.digamma(x), np.array([1.4616321449683622]))[0]) < 1e-15
    assert compute(f.lgamma(x), np.array([0.0, -3.0, INF, -INF, 1.0])).tolist() == [INF, INF, INF, INF, 0]
    p = np.array([1e-300, 1e-3, 0.3, 0.5, 0.9, 0.999, 1 - 1e-15, -0.7])
    np.testing.assert_allclose(compute(f.erf(f.erfinv(x)), p), p, rtol=1e-15)
    assert compute(f.erfinv(x), np.array([1.0, -1.0, 0.0])).tolist() == [INF, -INF, 0]


def test_complex_numbers():
    a = np.array([3 + 4j, -1 + 0j, 0j])
    assert compute(abs(x), a, out=dt.float64).tolist() == [5, 1, 0]
    np.testing.assert_allclose(compute(f.exp(f.log(x)), a[:2]), a[:2], rtol=1e-15)
    np.testing.assert_allclose(compute(f.sign(x), a), [0.6 + 0.8j, -1, 0], rtol=1e-15)
    assert compute(f.complex_(f.imag(x), f.real(x)), a).tolist() == [4 + 3j, -1j, 0]
    with pytest.raises(TypeError, match="complex"):
        compute(f.erf(x), a)


def test_unknown_operations_are_refused():
    with pytest.raises(NotImplementedError, match="frobnicate"):
        compute(node("frobnicate", x), floats(1))


def test_calls_of_scalar_functions():
    class Halve:  # what kernels.scalar_function provides
        name = "halve"

        def numpy(self, a):
            return a / 2

    assert compute(f.call(Halve(), x) + 1, floats(3)).tolist() == [2.5]


# ---- reductions


def test_reduce_over_axes_with_map_and_final():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    mean_square = reduce(x * x, "sum", x / 6, [a], [dt.float32], dt.float32, dt.float32, (0, 1), True)
    np.testing.assert_allclose(mean_square, (a * a).mean((0, 1), keepdims=True))
    assert reduce(x, "sum", None, [a], [dt.float32], dt.float32, dt.float32, None).shape == ()


def test_nan_wins_in_extremes():
    a = np.array([[1, NAN, 3, NAN], [5, 2, 5, 2]], np.float32)
    for combine, expected in [("argmax", [1, 0]), ("argmin", [1, 1])]:
        assert reduce(x, combine, None, [a], [dt.float32], dt.int64, dt.int64, (1,)).tolist() == expected
    top = reduce(x, "max", None, [a], [dt.float32], dt.float32, dt.float32, (-1,))
    assert math.isnan(top[0]) and top[1] == 5


def test_index_counts_through_all_reduced_axes():
    a = np.zeros((2, 3, 4), np.int32)
    a[1, :, 2] = 1
    assert reduce(x, "argmax", None, [a], [dt.int32], dt.int64, dt.int64, (0, 2)).tolist() == [6, 6, 6]


def test_any_and_all_of_nan_are_true():
    a = floats(NAN, NAN)
    for combine in ("any", "all"):
        assert reduce(x, combine, None, [a], [dt.float32], dt.bool_, dt.bool_, None)


def test_unknown_reduction():
    with pytest.raises(ValueError, match="median"):
        reduce(x, "median", None, [floats(1)], [dt.float32], dt.float32, dt.float32, None)


# ---- loop nests


def test_matrix_product_kernel():
    a, b, c = (ir.Buffer(n, dt.float32) for n in "abc")
    n = ir.var("n", dt.int64)
    i, j, k = (ir.var(name, dt.int64) for name in "ijk")
    total = ir.var("total", dt.float32)
    inner = ir.Assign("total", dt.float32, total + ir.load(a, i * n + k) * ir.load(b, k * n + j))
    zero, one = const(0), const(1)
    body = [
        ir.Assign("total", dt.float32, const(0.0)),
        ir.For("k", zero, n, one, [inner]),
        ir.Store(c, i * n + j, total),
    ]
    nest = ir.For("i", zero, n, one, [ir.For("j", zero, n, one, body)], parallel=True)
    left, right = np.random.default_rng(0).random((2, 3, 3), dtype=np.float32)
    out = np.zeros((3, 3), np.float32)
    run(ir.Kernel("matmul", [a, b, c, ir.Scalar("n", dt.int64)], [nest]), [left, right, out, 3])
    np.testing.assert_allclose(out, left @ right, rtol=1e-6)


def test_control_flow_locals_and_guarded_loads():
    out = ir.Buffer("out", dt.int64)
    scratch = ir.Buffer("scratch", dt.int64, local_size=8)
    i = ir.var("i", dt.int64)
    found = ir.var("found", dt.int64)
    kernel = ir.Kernel(
        "squares",
        [out],
        [
            ir.DeclareLocal(scratch),
            ir.For(
                "i", const(0), const(100), const(1),
                [
                    ir.If(i == 3, [ir.Continue()]),
                    ir.If(i >= 6, [ir.Break()]),
                    ir.Store(scratch, i, i * i),
                ],
            ),
            ir.Assign("found", dt.int64, const(0)),
            ir.While(found * found < 50, [ir.Assign("found", dt.int64, found + 1)]),
            ir.For("i", const(0), const(8), const(1), [ir.Store(out, i, f.where(i < 7, ir.load(scratch, i + 1), -1))]),
            ir.Store(out, const(6), found),
        ],
    )  # fmt: skip
    result = np.zeros(8, np.int64)
    run(kernel, [result])
    assert result.tolist() == [1, 4, 0, 16, 25, 0, 8, -1]


def test_out_of_bounds_is_an_error():
    out = ir.Buffer("out", dt.float32)
    with pytest.raises(IndexError, match="index 4 is outside buffer 'out' of 4"):
        run(ir.Kernel("k", [out], [ir.Store(out, const(4), const(1.0))]), [np.zeros(4, np.float32)])
    with pytest.raises(TypeError, match="needs a contiguous float32"):
        run(ir.Kernel("k", [out], []), [np.zeros(4)])


# ---- PyTorch

SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-30, 100.0, -7.25, INF, -INF, NAN]


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "atan2", "copysign", "fmax", "maximum", "pow"])
def test_binary_functions_agree_with_pytorch(name):
    torch = judge("torch")
    formula = {"remainder": "mod", "floor_divide": "floordiv"}.get(name, name)
    a, b = (v.ravel() for v in np.meshgrid(floats(*SPECIALS), floats(*SPECIALS)))
    expected = getattr(torch, name)(torch.tensor(a), torch.tensor(b)).numpy()
    got = compute(binary(formula, x, y), a, b)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    if name not in ("maximum", "fmax"):  # which of two zeros is the larger is nobody's promise
        np.testing.assert_array_equal(np.signbit(got)[expected == 0], np.signbit(expected)[expected == 0])


@pytest.mark.parametrize(
    "name",
    ["sign", "angle", "round", "digamma", "lgamma", "erfinv", "log1p", "expm1", "rsqrt", "sqrt", "acosh", "atanh"],
)
def test_unary_functions_agree_with_pytorch(name):
    torch = judge("torch")
    a = np.array(SPECIALS)
    expected = getattr(torch, name)(torch.tensor(a)).numpy()
    np.testing.assert_allclose(compute(node(name, x), a), expected, rtol=1e-12)


@pytest.mark.parametrize("to", ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "bool", "complex64"])
@pytest.mark.parametrize("source", ["float64", "float32", "int64", "complex128"])
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_casts_agree_with_pytorch(source, to):
    torch = judge("torch")
    numbers = [300.7, -300.2, 1e10, -7e4, 65519.9, 1e-8, 2.5] + ([] if source == "int64" else [INF, -INF, NAN])
    a = np.array(numbers).astype(source)
    expected = torch.tensor(a).to(getattr(torch, to))
    shown = dt.float32 if to == "bfloat16" else dt.BY_NAME[to]
    expected = (expected.float() if to == "bfloat16" else expected).numpy()
    np.testing.assert_array_equal(compute(f.cast(x, dt.BY_NAME[to]), a, out=shown), expected)
