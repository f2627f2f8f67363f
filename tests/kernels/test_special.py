"""Special functions against multiprecision values, identities and PyTorch."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from answers import judge

from flambeau.backends.compiled import map_kernel
from flambeau.core import dtype as dt
from flambeau.expr import arg
from flambeau.kernels import special, special_bessel, special_loops
from flambeau.kernels.emit_numpy import evaluate

INF, NAN = math.inf, math.nan
ENGINES = [
    "formula",
    pytest.param("native", marks=pytest.mark.skipif(not importlib.util.find_spec("llvmlite"), reason="needs llvmlite")),
]


def compute(engine, formula, *arrays, dtype=np.float64):
    arrays = [np.ascontiguousarray(a, dtype=dtype) for a in arrays]
    dtypes = (dt.FROM_NUMPY[np.dtype(dtype)],) * len(arrays)
    root = formula(*(arg(i) for i in range(len(arrays))))
    if engine == "formula":
        return evaluate((root,), arrays, dtypes, dtypes[:1])[0]
    out = np.empty_like(arrays[0])
    kernel = map_kernel((root,), dtypes, dtypes[:1], "c" * (1 + len(arrays)), 1)
    kernel(out.size, out.ctypes.data, *(a.ctypes.data for a in arrays))
    return out


# name -> function, what mpmath calls it, range, relative tolerance (absolute where the function has roots)
UNARY = {
    "erfcx": (special.erfcx, lambda m, x: m.exp(x * x) * m.erfc(x), (-20, 60), 2e-15),
    "ndtr": (special.ndtr, lambda m, x: m.ncdf(x), (-8, 8), 2e-14),
    "log_ndtr": (special.log_ndtr, lambda m, x: m.log(m.ncdf(x)), (-30, 5), 1e-14),
    "trigamma": (special.trigamma, lambda m, x: m.psi(1, x), (-5, 40), 2e-15),
    "i0": (special.i0, lambda m, x: m.besseli(0, x), (-40, 40), 1e-15),
    "i0e": (special.i0e, lambda m, x: m.besseli(0, x) * m.exp(-abs(x)), (-40, 40), 1e-15),
    "i1": (special.i1, lambda m, x: m.besseli(1, x), (-40, 40), 2e-15),
    "i1e": (special.i1e, lambda m, x: m.besseli(1, x) * m.exp(-abs(x)), (-40, 40), 2e-15),
    "bessel_j0": (special_bessel.bessel_j0, lambda m, x: m.besselj(0, x), (-40, 40), 2e-15),
    "bessel_j1": (special_bessel.bessel_j1, lambda m, x: m.besselj(1, x), (-40, 40), 2e-15),
    "bessel_y0": (special_bessel.bessel_y0, lambda m, x: m.bessely(0, x), (0, 40), 2e-15),
    "bessel_y1": (special_bessel.bessel_y1, lambda m, x: m.bessely(1, x), (0, 40), 4e-15),
    "modified_bessel_k0": (special_bessel.modified_bessel_k0, lambda m, x: m.besselk(0, x), (0, 20), 2e-15),
    "modified_bessel_k1": (special_bessel.modified_bessel_k1, lambda m, x: m.besselk(1, x), (0, 20), 2e-15),
    "scaled_modified_bessel_k0": (
        special_bessel.scaled_modified_bessel_k0, lambda m, x: m.besselk(0, x) * m.exp(x), (0, 20), 2e-15,
    ),
    "scaled_modified_bessel_k1": (
        special_bessel.scaled_modified_bessel_k1, lambda m, x: m.besselk(1, x) * m.exp(x), (0, 20), 2e-15,
    ),
    "airy_ai": (special_bessel.airy_ai, lambda m, x: m.airyai(x), (-30, 12), 1e-14),
    "polygamma3": (lambda x: special_loops.polygamma(3, x), lambda m, x: m.psi(3, x), (-4, 30), 1e-14),
}  # fmt: skip
HAS_ROOTS = {"bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", UNARY)
def test_values(name, engine):
    mpmath = pytest.importorskip("mpmath", reason="the reference needs more than double precision")
    function, exact_function, (low, high), tolerance = UNARY[name]
    x = np.random.default_rng(0).uniform(low, high, 60)
    with mpmath.workdps(30):
        exact = np.array([float(exact_function(mpmath, mpmath.mpf(float(v)))) for v in x])
    limits = {"rtol": 0, "atol": tolerance} if name in HAS_ROOTS else {"rtol": tolerance}
    np.testing.assert_allclose(compute(engine, function, x), exact, **limits)


@pytest.mark.parametrize("engine", ENGINES)
def test_float32_results_are_rounded_once(engine):
    x = np.linspace(-5, 5, 101, dtype=np.float32)
    single = compute(engine, special.i0, x, dtype=np.float32)
    np.testing.assert_array_equal(single, compute(engine, special.i0, x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("engine", ENGINES)
def test_ndtri_inverts_ndtr(engine):
    p = np.concatenate([np.linspace(0.001, 0.999, 200), 10.0 ** -np.arange(2, 300, 7)])
    np.testing.assert_allclose(compute(engine, lambda q: special.ndtr(special.ndtri(q)), p), p, rtol=5e-13)
    edges = compute(engine, special.ndtri, np.array([0, 1, 0.5, -0.1, 1.1, NAN]))
    np.testing.assert_array_equal(edges, [-INF, INF, 0, NAN, NAN, NAN])


@pytest.mark.parametrize("engine", ENGINES)
def test_special_values(engine):
    x = np.array([0.0, INF, -INF, NAN])
    np.testing.assert_array_equal(compute(engine, special.erfcx, x), [1, 0, INF, NAN])
    np.testing.assert_array_equal(compute(engine, special.i0e, x), [1, 0, 0, NAN])
    np.testing.assert_array_equal(compute(engine, special_bessel.bessel_y0, x), [-INF, 0, NAN, NAN])


@pytest.mark.parametrize("engine", ENGINES)
def test_zeta(engine):
    s, q = np.array([2.0, 4, 2, 3, 1.5, 3]), np.array([1.0, 1, 0.5, 1, 2, -0.5])
    exact = [
        math.pi**2 / 6,
        math.pi**4 / 90,
        math.pi**2 / 2,
        1.2020569031595942,
        1.6123753486854883,
        7 * 1.2020569031595942 - 8,
    ]
    np.testing.assert_allclose(compute(engine, special_loops.zeta, s, q), exact, rtol=1e-14)
    edges = compute(engine, special_loops.zeta, np.array([1.0, 0.5, 2, 2.5]), np.array([1.0, 1, -1, -0.5]))
    np.testing.assert_array_equal(edges, [INF, NAN, INF, NAN])


@pytest.mark.parametrize("engine", ENGINES)
def test_incomplete_gamma_functions(engine):
    mpmath = pytest.importorskip("mpmath", reason="the reference needs more than double precision")
    random = np.random.default_rng(1)
    a = 10 ** random.uniform(-2, 2, 40)
    x = a * random.uniform(0.3, 2, 40)
    lower, upper = (compute(engine, f, a, x) for f in (special_loops.igamma, special_loops.igammac))
    with mpmath.workdps(30):
        pairs = [(mpmath.mpf(float(p)), mpmath.mpf(float(v))) for p, v in zip(a, x)]
        exact_lower = [float(mpmath.gammainc(p, 0, v, regularized=True)) for p, v in pairs]
        exact_upper = [float(mpmath.gammainc(p, v, mpmath.inf, regularized=True)) for p, v in pairs]
    np.testing.assert_allclose(lower, exact_lower, rtol=1e-12)
    np.testing.assert_allclose(upper, exact_upper, rtol=1e-12)
    edges_a, edges_x = np.array([0.0, 0, 1, INF, INF, 1, -1]), np.array([1.0, 0, 0, 1, INF, INF, 1])
    np.testing.assert_array_equal(compute(engine, special_loops.igamma, edges_a, edges_x), [1, NAN, 0, 0, NAN, 1, NAN])


@pytest.mark.parametrize("engine", ENGINES)
def test_orthogonal_polynomials(engine):
    x, n = (v.ravel() for v in np.meshgrid(np.linspace(-1.5, 1.5, 13), np.arange(0.0, 12)))
    families = {
        "chebyshev_polynomial_t": np.polynomial.chebyshev.chebval,
        "hermite_polynomial_h": np.polynomial.hermite.hermval,
        "hermite_polynomial_he": np.polynomial.hermite_e.hermeval,
        "laguerre_polynomial_l": np.polynomial.laguerre.lagval,
        "legendre_polynomial_p": np.polynomial.legendre.legval,
    }
    for name, reference in families.items():
        exact = [reference(v, np.eye(12)[int(d)]) for v, d in zip(x, n)]
        np.testing.assert_allclose(compute(engine, getattr(special_loops, name), x, n), exact, rtol=1e-10, atol=1e-11)
    assert compute(engine, special_loops.legendre_polynomial_p, np.array([0.5]), np.array([-1.0]))[0] == 0


@pytest.mark.parametrize("name", ["erfcx", "ndtr", "log_ndtr", "ndtri", "i0", "i0e", "i1", "i1e"])
def test_agreement_with_pytorch(name):
    torch = judge("torch")
    x = np.linspace(-4, 4, 41)
    expected = getattr(torch.special, name)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(compute("formula", getattr(special, name), x), expected, rtol=1e-11, atol=1e-15)
