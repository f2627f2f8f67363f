"""Zeros keep the sign that PyTorch gives them, and windows are rounded step by step as there; the answers are PyTorch's."""

from __future__ import annotations

import math

import pytest

import flambeau
import flambeau.nn.functional as F


def negative(values: flambeau.Tensor) -> list[bool]:
    return [math.copysign(1, v) < 0 for v in values.tolist()]


def test_limits_at_zero_keep_negative_zero() -> None:
    x = flambeau.tensor([-0.0, 0.0, -1.0])
    assert negative(F.relu6(x)) == [True, False, False]
    assert negative(F.hardtanh(x, 0.0, 6.0)) == [True, False, False]
    assert F.relu6(flambeau.tensor([math.nan, 7.0])).tolist()[1] == 6.0
    assert F.relu6(flambeau.tensor([math.nan])).isnan().all()


def test_softshrink_keeps_the_sign_of_what_it_shrinks_to_zero() -> None:
    x = flambeau.tensor([-0.0, 0.0, -0.3, 0.3])
    assert negative(F.softshrink(x)) == [True, False, True, False]
    assert F.softshrink(flambeau.tensor([math.nan])).isnan().all()


@pytest.mark.parametrize(
    "name",
    [
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "legendre_polynomial_p",
    ],
)
def test_odd_polynomials_keep_negative_zero(name: str) -> None:
    values = getattr(flambeau.special, name)(flambeau.tensor([-0.0, 0.0]), flambeau.tensor(1))
    assert negative(values) == [True, False]


def test_windows_are_rounded_in_their_own_dtype() -> None:
    assert flambeau.blackman_window(2).tolist() == [-2.9802322387695312e-08, 1.0]
    wide = flambeau.blackman_window(4, dtype=flambeau.float64)
    assert wide.tolist() == [0.0, 0.33999999999999997, 1.0, 0.3400000000000001]
    symmetric = flambeau.blackman_window(3, periodic=False, dtype=flambeau.float64)
    assert symmetric.tolist() == [0.0, 1.0, 0.0]


def test_windows_of_half_precision_round_their_numbers_too() -> None:
    hamming = flambeau.hamming_window(7, periodic=False, dtype=flambeau.float16)
    assert hamming.tolist() == [0.080078125, 0.309814453125, 0.76953125, 1.0, 0.7705078125, 0.310791015625, 0.080078125]
    blackman = flambeau.blackman_window(8, dtype=flambeau.bfloat16)
    assert blackman.tolist() == [0.0, 0.06640625, 0.33984375, 0.7734375, 1.0, 0.7734375, 0.3359375, 0.06640625]
    bartlett = flambeau.bartlett_window(7, periodic=False, dtype=flambeau.bfloat16)
    assert bartlett.tolist() == [0.0, 0.333984375, 0.66796875, 1.0, 0.6640625, 0.328125, 0.0]
