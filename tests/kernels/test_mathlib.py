"""Mathematical functions in primitive operations: accuracy, special values, and that nothing but primitives is left.

Every test runs on the formulas themselves (NumPy reference) and, where llvmlite is installed, on compiled kernels.
"""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest

from flambeau.backends.compiled import map_kernel
from flambeau.core import dtype as dt
from flambeau.expr import arg, binary, const, node
from flambeau.expr import functions as f
from flambeau.expr.node import rebuild, walk
from flambeau.expr.typing import infer
from flambeau.kernels.emit_numpy import evaluate
from flambeau.kernels.mathlib import lower
from flambeau.kernels.numpy_ops import OPERATIONS

INF, NAN = math.inf, math.nan
PRIMITIVES = {
    "arg", "const", "add", "sub", "mul", "div", "fma", "neg", "abs", "floor", "round", "trunc", "sqrt", "minimum",
    "maximum", "where", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "shl", "shr", "not", "bitcast", "cast",
}  # fmt: skip
# Largest error allowed, in units in the last place.
FLOAT32 = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.7, "log": 1.0, "log2": 1.1, "log10": 1.1, "log1p": 1.5, "sin": 1.7, "cos": 1.7,
    "tan": 0.6, "asin": 1.9, "acos": 1.5, "atan": 1.5, "sinh": 1.6, "cosh": 2.0, "tanh": 2.2, "asinh": 0.6,
    "acosh": 0.6, "atanh": 0.6, "erf": 1.6, "erfc": 1.0, "erfinv": 1.0, "lgamma": 0.7, "digamma": 0.7,
}  # fmt: skip
FLOAT64 = {
    "exp": 1.1, "exp2": 1.1, "expm1": 2.0, "log": 1.0, "log2": 1.1, "log10": 1.1, "log1p": 1.5, "asin": 2.2,
    "acos": 1.5, "atan": 1.6, "sinh": 2.0, "cosh": 2.0, "tanh": 2.1,
}  # fmt: skip
POSITIVE = {"lgamma", "digamma"}  # between negative poles only the absolute error is small
ENGINES = ["formula", pytest.param("native", marks=pytest.mark.skipif(not importlib.util.find_spec("llvmlite"), reason="needs llvmlite"))]  # fmt: skip


def lowered(root, dtypes):
    """Apply `lower` bottom-up until only primitives are left, as the native emitters do."""
    while True:
        types = infer((root,), dtypes)
        done = {}
        for x in walk((root,)):
            new = rebuild(x, [done[id(k)] for k in x.operands]) if x.operands else x
            types.update(infer((new,), dtypes))
            replaced = lower(new, types)
            done[id(x)] = new if replaced is None else replaced
        if done[id(root)] is root:
            return root
        root = done[id(root)]


def compute(engine, root, *arrays):
    d = dt.FROM_NUMPY[arrays[0].dtype]
    dtypes = (d,) * len(arrays)
    if engine == "formula":
        return evaluate((lowered(root, dtypes),), arrays, dtypes, (d,))[0]
    out = np.empty_like(arrays[0])
    arrays = [np.ascontiguousarray(a) for a in arrays]
    kernel = map_kernel((root,), dtypes, (d,), "c" * (1 + len(arrays)), 1)
    kernel(out.size, out.ctypes.data, *(a.ctypes.data for a in arrays))
    return out


def reference(name, *arrays):
    """In the next wider precision."""
    wider = np.float64 if arrays[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return OPERATIONS[name](*(a.astype(wider) for a in arrays))


def errors(got, exact):
    """Distance to the exact value in ulps; wrong specials count as infinite."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        spacing = np.spacing(np.where(np.isfinite(rounded), np.abs(rounded), 1)).astype(exact.dtype)
        distance = np.abs(got.astype(exact.dtype) - exact) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    wrong_zero = same & (got == 0) & (np.signbit(got) != np.signbit(rounded))
    distance = np.where(same & ~np.isfinite(distance), 0, distance)
    return np.where(wrong_zero | np.isnan(distance), np.inf, distance)


def sweep(dtype, name=""):
    """Random bit patterns, every power of two with its neighbours, the usual range, special values."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 63, 20000, dtype=np.uint64) * 2 + random.integers(0, 2, 20000, dtype=np.uint64)
    info = np.finfo(dtype)
    powers = np.ldexp(np.ones(1, dtype), np.arange(info.minexp - info.nmant, info.maxexp)).astype(dtype)
    powers = np.concatenate([powers, np.nextafter(powers, dtype(0)), np.nextafter(powers, dtype(INF))])
    parts = [
        bits.view(np.float64) if dtype == np.float64 else bits.astype(np.uint32).view(np.float32),
        powers, -powers,
        random.uniform(-20, 20, 20000), random.uniform(-2, 2, 20000), 1 + random.uniform(-0.1, 0.1, 5000),
        1 - np.exp2(-random.uniform(0, info.nmant, 5000)),
        [0.0, -0.0, INF, -INF, NAN, 1, -1, info.max, -info.max, info.tiny, info.smallest_subnormal],
        [88.72283, 88.72284, -87.33655, -103.97208, 89.41599, 709.782712893384, -745.1332191019411, 710.475860073944],
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        values = np.concatenate([np.asarray(p).astype(dtype) for p in parts])
    return values[~(values < 0)] if name in POSITIVE else values


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FLOAT32)
def test_float32_functions_are_accurate_everywhere(name, engine):
    x = sweep(np.float32, name)
    wrong = errors(compute(engine, node(name, arg(0)), x), reference(name, x))
    assert wrong.max() <= FLOAT32[name], f"{name}({x[wrong.argmax()]!r})"


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="needs extended precision as the reference")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FLOAT64)
def test_float64_functions_are_accurate_everywhere(name, engine):
    x = sweep(np.float64)
    wrong = errors(compute(engine, node(name, arg(0)), x), reference(name, x))
    assert wrong.max() <= FLOAT64[name], f"{name}({x[wrong.argmax()]!r})"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "limit"), [("erf", 2.0), ("erfc", 5.0), ("erfinv", 3.0)])
def test_float64_error_functions(name, limit, engine):
    mpmath = pytest.importorskip("mpmath", reason="the reference needs more than double precision")
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, 500) if name == "erfinv" else random.uniform(-6, 27 if name == "erfc" else 6, 500)
    got = compute(engine, node(name, arg(0)), x)
    with mpmath.workdps(40):
        exact = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
        wrong = [abs(float((mpmath.mpf(float(g)) - e) / np.spacing(abs(float(e))))) for g, e in zip(got, exact)]
    assert max(wrong) <= limit
    specials = np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 5e-324])
    assert errors(compute(engine, node(name, arg(0)), specials), reference(name, specials)).max() <= limit


@pytest.mark.parametrize("engine", ENGINES)
def test_float64_digamma_has_a_small_absolute_error(engine):
    x = np.concatenate([np.linspace(-7.9, 30, 400), [1e3, 1e10]])
    got, exact = (
        compute(engine, f.digamma(arg(0)), x),
        evaluate((f.digamma(arg(0)),), [x], [dt.float64], [dt.float64])[0],
    )
    np.testing.assert_allclose(got, exact, rtol=2e-15, atol=4e-15)
    specials = np.array([0.0, -0.0, INF, -INF, NAN, -1.0, -2.0])
    np.testing.assert_array_equal(compute(engine, f.digamma(arg(0)), specials), [-INF, INF, INF, NAN, NAN, NAN, NAN])


@pytest.mark.parametrize("engine", ENGINES)
def test_sine_and_cosine_of_huge_numbers(engine):
    x = np.ldexp(np.float32(1.2345678), np.arange(0, 128)).astype(np.float32)
    for name in ("sin", "cos", "tan"):
        assert errors(compute(engine, node(name, arg(0)), x), reference(name, x)).max() <= 1.7


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2(engine, dtype):
    if dtype == np.float64 and np.finfo(np.longdouble).nmant <= 52:
        pytest.skip("needs extended precision as the reference")
    a = sweep(dtype)
    b = np.random.default_rng(2).permutation(a)
    specials = np.array([0.0, -0.0, INF, -INF, NAN, 1, -1, 1e-40, 3e38], dtype)
    y, x = (np.concatenate([p, q.ravel()]) for p, q in zip((a, b), np.meshgrid(specials, specials)))
    assert errors(compute(engine, f.atan2(arg(0), arg(1)), y, x), reference("atan2", y, x)).max() <= 1.8


@pytest.mark.parametrize("engine", ENGINES)
def test_float32_power(engine):
    random = np.random.default_rng(3)
    specials = np.array([0.0, -0.0, INF, -INF, NAN, 1, -1, 1e-45, 3e38, 2, 3, -2, -3, 0.5, -0.5], np.float32)
    base, exponent = np.meshgrid(specials, specials)
    base = np.concatenate([base.ravel(), random.uniform(0, 10, 20000), random.uniform(-9, 9, 9000)]).astype(np.float32)
    exponent = np.concatenate([exponent.ravel(), random.uniform(-40, 40, 20000), random.integers(-20, 20, 9000)])
    exponent = exponent.astype(np.float32)
    wrong = errors(compute(engine, arg(0) ** arg(1), base, exponent), reference("pow", base, exponent))
    assert wrong.max() <= 0.6, f"{base[wrong.argmax()]} ** {exponent[wrong.argmax()]}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [4, 5, 6, 7, 8, 4.0, 1.5])
def test_constant_powers(engine, n):
    x = sweep(np.float32)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), n)
    assert errors(compute(engine, arg(0) ** n, x), exact).max() <= 2


@pytest.mark.parametrize("engine", ENGINES)
def test_sigmoid_saturates(engine):
    x = np.array([-INF, -1000, -100, -20, 0, 20, 100, 1000, INF, NAN], np.float32)
    got = compute(engine, f.sigmoid(arg(0)), x)
    with np.errstate(all="ignore"):
        exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(got, exact, rtol=3e-7, atol=1e-38)


@pytest.mark.parametrize("name", [*FLOAT32, "atan2", "pow"])
@pytest.mark.parametrize("d", [dt.float32, dt.float64])
def test_only_primitives_are_left(name, d):
    operands = (arg(0), arg(1)) if name in ("atan2", "pow") else (arg(0),)
    root = node(name, *operands)
    result = lowered(root, (d,) * len(operands))
    left = {x.op for x in walk((result,))} - PRIMITIVES
    c_library = {"sin", "cos", "tan", "asinh", "acosh", "atanh", "lgamma", "pow"} if d is dt.float64 else set()
    assert left == ({name} if name in c_library else set())
    assert infer((result,), (d,) * len(operands))[id(result)] is d


def test_integers_become_float32():
    x = np.arange(5)
    out = evaluate((lowered(f.exp(arg(0)), (dt.int64,)),), [x], [dt.int64], [dt.float32])[0]
    np.testing.assert_allclose(out, np.exp(x), rtol=2e-7)
    assert lower(binary("add", arg(0), const(1)), infer((arg(0), const(1)), (dt.float32,))) is None
