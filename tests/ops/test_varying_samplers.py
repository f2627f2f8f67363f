"""Samplers that take a varying number of draws: native kernels against PyTorch, and against their Python originals."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.core import random_samplers as originals
from flambeau.ops.random import gamma_gradient

RNG = np.random.default_rng(0)
RATES = np.concatenate([[0.0, 1e-8, 9.99, 10.0, 1e6, 1e9], RNG.exponential(20, 300)])
SHAPES = np.concatenate([[0.0, 1e-3, 1.0, 1e5, 0.3], RNG.gamma(0.5, 5, 300)])
COUNTS = np.concatenate([[0, 5, 7, -1, 9, 1e6, 30], RNG.integers(0, 60, 300)])
CHANCES = np.concatenate([[0.5, 0.0, 1.0, 0.3, np.nan, 0.4, 0.999], RNG.uniform(0, 1, 300)])
WEIGHTS = np.concatenate(
    [RNG.uniform(0, 1, (40, 6)), [[0, 0, 0, 0, 0, 1.0], [1, 0, 0, 0, 0, 0], [1e-8, 1e8, 0, 1, 1, 1]]]
)

CASES = {
    "poisson": lambda T, t: T.poisson(t(RATES)),
    "binomial": lambda T, t: T.binomial(t(COUNTS), t(CHANCES)),
    "gamma": lambda T, t: T._standard_gamma(t(SHAPES)),
    "gamma after an odd normal": lambda T, t: (T.randn(3), T._standard_gamma(t(SHAPES)), T.randn(3))[1],
    "dirichlet": lambda T, t: T._sample_dirichlet(t(np.abs(SHAPES[1:]) + 0.01).reshape(-1, 4)),
    "dirichlet of next to nothing": lambda T, t: T._sample_dirichlet(t(np.full((3, 2), 1e-6))),
    "multinomial": lambda T, t: T.multinomial(t(WEIGHTS), 50, True),
    "multinomial, many": lambda T, t: T.multinomial(t(WEIGHTS[0]), 5000, True),
    "transposed": lambda T, t: T.poisson(t(RATES[:300]).reshape(20, 15).t()),
    "broadcast": lambda T, t: T.binomial(t(COUNTS[:40]).unsqueeze(1), t(CHANCES[7:20])),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_pytorchs_bits(name, dtype):
    torch = judge("torch")
    for seed in range(3):
        results = []
        for T in (flambeau, torch):
            T.manual_seed(seed)
            drawn = CASES[name](T, lambda values, T=T: T.tensor(values, dtype=getattr(T, dtype)))
            results.append((drawn.numpy(), T.rand(3).numpy(), T.randn(3).numpy()))
        for mine, theirs in zip(*results, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_native_kernels_agree_with_their_originals(dtype):
    d = getattr(flambeau, dtype)
    cases = [
        (lambda t: flambeau.poisson(t(RATES)), lambda g, a: originals.poisson(g, a(RATES), d)),
        (lambda t: flambeau._standard_gamma(t(SHAPES)), lambda g, a: originals.standard_gamma(g, a(SHAPES), d)),
        (
            lambda t: flambeau.binomial(t(COUNTS), t(CHANCES)),
            lambda g, a: originals.binomial(g, a(COUNTS), a(CHANCES), d),
        ),
        (
            lambda t: flambeau.multinomial(t(WEIGHTS), 9, True),
            lambda g, a: originals.multinomial(g, a(WEIGHTS), d, 9, True),
        ),
    ]
    for native, original in cases:
        flambeau.manual_seed(0)
        mine = native(lambda values: flambeau.tensor(values, dtype=d)).numpy()
        flambeau.manual_seed(0)
        expected = original(flambeau.default_generator, lambda values: np.asarray(values, dtype))
        np.testing.assert_array_equal(mine, expected)


def test_half_width_rates():
    flambeau.manual_seed(0)
    counts = flambeau.poisson(flambeau.full((1000,), 4.0, dtype=flambeau.bfloat16))
    assert counts.dtype is flambeau.bfloat16
    assert 3.7 < counts.float().mean() < 4.3


def test_bad_parameters_are_refused():
    for call, message in (
        (lambda: flambeau.poisson(flambeau.tensor([1.0, -1.0])), "invalid Poisson rate"),
        (lambda: flambeau.multinomial(flambeau.tensor([1.0, -1.0]), 5, True), "probability entry < 0"),
        (lambda: flambeau.multinomial(flambeau.tensor([1.0, float("inf")]), 5, True), "infinity or NaN"),
        (lambda: flambeau.multinomial(flambeau.zeros(2), 5, True), "sum of probabilities <= 0"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


def test_empty_tensors():
    for shape in ((0,), (2, 0)):
        empty = flambeau.empty(shape)
        assert flambeau.poisson(empty).shape == flambeau._standard_gamma(empty).shape == shape
        assert flambeau.binomial(empty, empty).shape == flambeau._sample_dirichlet(empty).shape == shape


def test_gradient_by_series_agrees_with_quadrature():
    a = np.exp(RNG.uniform(-3, 6, 2000))
    x = np.maximum(RNG.gamma(a), 1e-30)
    np.testing.assert_allclose(
        gamma_gradient.gamma_gradient(a, x), gamma_gradient._gamma_by_quadrature(a, x), rtol=1e-6
    )
    a, b = np.exp(RNG.uniform(-1, 5, (2, 2000)))
    x = np.clip(RNG.beta(a, b), 1e-6, 1 - 1e-6)
    np.testing.assert_allclose(
        gamma_gradient.dirichlet_gradient(x, a, a + b), gamma_gradient._beta_by_quadrature(x, a, a + b), rtol=1e-6
    )


def test_gradient_by_finite_differences_of_the_quantile():
    special = pytest.importorskip("scipy.special", reason="quantiles of the gamma distribution")
    for a, p in ((0.3, 0.2), (1.0, 0.5), (4.0, 0.99), (4.0, 1 - 1e-9), (2000.0, 0.3)):
        x, step = special.gammaincinv(a, p), 1e-4 * a
        expected = (special.gammaincinv(a + step, p) - special.gammaincinv(a - step, p)) / (2 * step)
        found = gamma_gradient.gamma_gradient(np.array([a]), np.array([x]))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
