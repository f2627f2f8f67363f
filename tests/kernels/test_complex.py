"""Complex formulas and reductions, compiled on pairs of real numbers, against the NumPy reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flambeau.backends.compiled import map_kernel, reduce_kernel
from flambeau.core import dtype as dt
from flambeau.expr import arg, functions, node
from flambeau.expr.complex_functions import COMPLEX, REAL
from flambeau.expr.functions import cast, complex_, where
from flambeau.kernels import complex_nests, emit_numpy, geometry, ir
from flambeau.kernels.loops import loop_kernel, prange

KINDS = {dt.complex64: np.complex64, dt.complex128: np.complex128}
ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "pow": 2, "eq": 2, "ne": 2, "fma": 3}
EPS = {dt.complex64: 2.0**-23, dt.complex128: 2.0**-52}
# how far an algorithm may be from the exact value, in units of the last place of the larger part
ULPS = {"pow": 40, "fma": 40, "tan": 8, "tanh": 8}  # a sum may cancel
A, B = arg(0), arg(1)


def numbers(shape, d, seed=0):
    r = np.random.default_rng(seed)
    return (r.standard_normal(shape) + 1j * r.standard_normal(shape)).astype(KINDS[d])


def run(root, arrays, in_dtypes, out_dtype):
    """One compiled map over arrays of any strides and Python numbers."""
    tensors = [a for a in arrays if isinstance(a, np.ndarray)]
    shape = np.broadcast_shapes(*(a.shape for a in tensors))
    out = np.zeros(shape, out_dtype.numpy)
    spread = [np.broadcast_to(a, shape) for a in tensors]
    strides = [tuple(s // a.itemsize for s in a.strides) for a in (out, *spread)]
    rank, sizes, planned, pointer_kinds = geometry.plan(shape, strides)
    rest = iter(pointer_kinds[1:])
    kinds, values = pointer_kinds[0], []
    for a in arrays:
        if isinstance(a, np.ndarray):
            kinds += next(rest)
            values.append(a.ctypes.data)
        else:
            kinds += "z"
            values += [a.real, a.imag]
    fn = map_kernel((root,), tuple(in_dtypes), (out_dtype,), kinds, rank)
    numbers_ = np.array([*sizes, *itertools.chain(*planned)], np.int64)
    fn(sizes[0] if rank == 1 and "s" not in kinds else numbers_.tobytes(), out.ctypes.data, *values)
    return out


def assert_near(got, expected, d, ulps=6):
    scale = np.maximum(np.abs(expected), np.finfo(np.float32).tiny)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if got.dtype == bool:
        np.testing.assert_array_equal(got, expected)
    elif got.size:
        assert np.max(np.abs(got - expected) / scale) <= ulps * EPS[d]


@pytest.mark.parametrize("d", KINDS, ids=str)
@pytest.mark.parametrize("name", [*COMPLEX, *REAL])
def test_every_operation_equals_the_reference(name, d):
    count = ARITY.get(name, 1)
    arrays = [numbers((37, 5), d, i) for i in range(count)]
    if name in ("eq", "ne"):
        arrays[1][::2] = arrays[0][::2]
    root = node(name, *(arg(i) for i in range(count)))
    out = d if name in COMPLEX else d.to_real() if name in ("abs", "angle", "real", "imag") else dt.bool_
    layouts = [
        arrays,  # contiguous
        [a[::2, ::-1] for a in arrays],
        [arrays[0], *(a.T.copy().T for a in arrays[1:])],
        [np.asfortranarray(arrays[0]), *(a[:1] for a in arrays[1:])],
        [a[0, 0].reshape(()) for a in arrays],
        [a[:0] for a in arrays],
    ]
    for given in layouts:
        (expected,) = emit_numpy.evaluate((root,), given, (d,) * count, (out,))
        # single precision: the reference computes in double precision, double precision: with the C library
        assert_near(run(root, given, (d,) * count, out), expected, d, ULPS.get(name, 6))


@pytest.mark.parametrize("d", KINDS, ids=str)
def test_numbers_by_value_and_real_operands(d):
    a, x = numbers((9,), d), np.arange(9, dtype=d.to_real().numpy)
    got = run(A * cast(B, d), [a, 2 - 3j], (d, dt.complex128), d)
    assert_near(got, a * KINDS[d](2 - 3j), d)
    got = run(cast(A, d) + B * 2j, [x, a], (d.to_real(), d), d)
    assert_near(got, (x + a * 2j).astype(KINDS[d]), d)
    got = run(where(A == 0, complex_(A, A + 1), B), [x, a], (d.to_real(), d), d)
    assert_near(got, np.where(x == 0, 1j, a).astype(KINDS[d]), d)


@pytest.mark.parametrize(
    "source", [dt.bool_, dt.int64, dt.float32, dt.float64, dt.bfloat16, dt.complex64, dt.complex128]
)
@pytest.mark.parametrize("target", [dt.bool_, dt.int32, dt.float32, dt.float64, dt.complex64, dt.complex128])
def test_casts(source, target):
    values = np.array([0, 1, 2, 3, 0, 5])
    if source.is_complex:
        values = values + np.array([0, 0, 0, 0, 1j, 2j])
    if source is dt.bfloat16:
        memory = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        memory = values.astype(source.numpy)
    root = cast(A, target)
    (expected,) = emit_numpy.evaluate((root,), [memory], (source,), (target,))
    np.testing.assert_array_equal(run(root, [memory], (source,), target), expected)


def test_products_and_quotients_of_infinities_are_those_of_their_parts():
    inf, nan = np.inf, np.nan
    a = np.array([complex(inf, 1), complex(1, 2), complex(1, -2), complex(0, 0)], np.complex64)
    b = np.array([complex(2, 0), complex(inf, 0), complex(0, 0), complex(0, 0)], np.complex64)
    product = run(A * B, [a, b], (dt.complex64,) * 2, dt.complex64)
    np.testing.assert_array_equal(product.real, [inf, inf, 0, 0])
    np.testing.assert_array_equal(product.imag, [nan, inf, 0, 0])
    quotient = run(A / B, [a, b], (dt.complex64,) * 2, dt.complex64)
    np.testing.assert_array_equal(quotient.real, [inf, 0, inf, nan])
    np.testing.assert_array_equal(quotient.imag[1:], [0, -inf, nan])


@pytest.mark.parametrize("d", KINDS, ids=str)
def test_magnitudes_do_not_overflow(d):
    large = np.finfo(d.to_real().numpy).max / 2
    z = np.array([complex(large, large), complex(1 / large, 0), complex(np.inf, np.nan), 3 + 4j], d.numpy)
    got = run(abs(A), [z], (d,), d.to_real())
    np.testing.assert_allclose(got, [large * np.sqrt(2), 1 / large, np.inf, 5], rtol=1e-6)


def test_branch_cuts_follow_the_sign_of_zero():
    z = np.array([complex(-4, 0.0), complex(-4, -0.0)], np.complex128)
    two = np.array([complex(2, 0.0), complex(2, -0.0)], np.complex128)
    for name, points in (("sqrt", z), ("log", z), ("asin", two), ("acos", two), ("atanh", two), ("acosh", z)):
        numpy_name = {"asin": "arcsin", "acos": "arccos", "atanh": "arctanh", "acosh": "arccosh"}.get(name, name)
        got = run(getattr(functions, name)(A), [points], (dt.complex128,), dt.complex128)
        np.testing.assert_allclose(got, getattr(np, numpy_name)(points), rtol=1e-14, atol=1e-15)


def reduced(z, combine, axes, d, final=None, out=None):
    shape = z.shape
    strides = tuple(s // z.itemsize for s in z.strides)
    kept = tuple(n for i, n in enumerate(shape) if i not in axes)
    result = np.zeros(kept, (out or d).numpy)
    spread, position = [], 0
    for i in range(len(shape)):
        spread.append(0 if i in axes else result.strides[position] // result.itemsize)
        position += i not in axes
    plan = geometry.plan_reduction(shape, [spread, strides], axes)
    fn = reduce_kernel(
        A, combine, final, (d,), out or d, out or d, plan.kept_rank, plan.reduced_rank, plan.inner, plan.kinds
    )
    fn(np.array(plan.geometry, np.int64).tobytes(), result.ctypes.data, z.ctypes.data)
    return result


@pytest.mark.parametrize("d", KINDS, ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (0, 2), (2,), (0, 1, 2)])
def test_sums_and_products(d, axes):
    z = numbers((6, 70, 9), d)
    close = {"rtol": 20 * EPS[d] * 64, "atol": 64 * EPS[d]}
    for given in (z, z[::2, ::-1], z.transpose(2, 0, 1)):
        np.testing.assert_allclose(reduced(given, "sum", axes, d), given.sum(axes), **close)
        mean = reduced(given, "sum", axes, d, final=A / B)
        np.testing.assert_allclose(mean, given.mean(axes), **close)
        unit = given / np.abs(given)
        np.testing.assert_allclose(
            reduced(unit, "prod", axes, d), unit.prod(axes), rtol=1e-2 if d is dt.complex64 else 1e-11
        )
        sparse = np.where(given.real > 1, given, 0)
        np.testing.assert_array_equal(reduced(sparse, "any", axes, d, out=dt.bool_), sparse.any(axes))


def test_long_sums_use_every_chunk():
    z = numbers((300_001,), dt.complex64)
    np.testing.assert_allclose(reduced(z, "sum", (0,), dt.complex64), z.sum(dtype=np.complex128), rtol=1e-5)


def test_real_kernels_are_left_alone():
    kernel = ir.Kernel("k", [ir.Buffer("x", dt.float32)], [])
    assert complex_nests.split(kernel) is kernel


@loop_kernel
def rotate(out, x, n):
    for i in prange(n):
        z = x[i]
        z = z * z
        out[i] = z + x[n - 1 - i]


@pytest.mark.parametrize("d", KINDS, ids=str)
def test_loop_kernels(d):
    z = numbers((50,), d)
    out = np.empty_like(z)
    rotate(out, z, 50)
    assert_near(out, z * z + z[::-1], d, 16)


def test_an_operation_without_complex_meaning_is_refused():
    with pytest.raises(TypeError, match="erf"):
        map_kernel((functions.erf(A),), (dt.complex64,), (dt.complex64,), "cc", 1)
