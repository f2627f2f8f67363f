"""Every rule of the table of derivatives beside a difference quotient of the formula itself, by the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau.core import dtype as dt
from flambeau.expr import arg, functions, node, pullback
from flambeau.expr.derivative import RULES
from flambeau.kernels import emit_numpy

# Where functions are smooth, two points or more for each operand; formulas of complex numbers have tests of their own.
NEAR_ZERO, ABOVE_ONE, POSITIVE, ANY = (-0.6, 0.3, 0.8), (1.2, 2.5), (0.4, 1.7, 3.1), (-1.3, 0.4, 2.2)
PLACES = {
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), NEAR_ZERO), "acosh": ABOVE_ONE,
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "lgamma", "log1p"), POSITIVE),
}  # fmt: skip
OF_TWO = {"add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "fmax", "fmin", "fmod", "mod", "copysign"}
OF_COMPLEX = {"conj", "real", "imag", "complex"}
OF_ONE = sorted(set(RULES) - OF_TWO - OF_COMPLEX - {"where", "fma"})


def values(root, *operands: np.ndarray) -> np.ndarray:
    (found,) = emit_numpy.evaluate((root,), operands, [dt.float64] * len(operands), [dt.float64])
    return found


def check(root, *operands: np.ndarray, skip: tuple[int, ...] = ()) -> None:
    count, step = len(operands), 1e-6
    seed = np.linspace(0.5, 1.5, operands[0].size)
    shares = pullback(root, arg(count), tuple(arg(i) for i in range(count)))
    for i, share in enumerate(shares):
        if i in skip:
            continue
        ends = [[x + way * step if k == i else x for k, x in enumerate(operands)] for way in (1, -1)]
        slope = (values(root, *ends[0]) - values(root, *ends[1])) / (2 * step)
        ours = np.zeros_like(slope) if share is None else values(share, *operands, seed)
        np.testing.assert_allclose(ours, slope * seed, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_operand(name: str) -> None:
    check(node(name, arg(0)), np.array(PLACES.get(name, ANY)))


@pytest.mark.parametrize("name", sorted(OF_TWO))
def test_of_two_operands(name: str) -> None:
    a = np.array([1.3, 0.4, 2.2, 3.7, 0.9])
    b = np.array([0.8, 1.9, 0.7, 1.1, -1.4 if name not in ("pow", "mod") else 2.6])
    check(node(name, arg(0), arg(1)), a, b)


@pytest.mark.parametrize("power", [0, 1, 2, 3, -1, 0.5, 2.5])
def test_of_a_known_power(power: float) -> None:
    check(arg(0) ** power, np.array(POSITIVE))


def test_of_three_operands() -> None:
    a, b, c = np.array([1.3, -0.4]), np.array([0.8, 1.9]), np.array([-2.0, 0.3])
    check(node("fma", arg(0), arg(1), arg(2)), a, b, c)
    chosen = functions.where(arg(0) > 0, arg(1) * arg(1), functions.sin(arg(2)))
    check(chosen, a, b, c)


@pytest.mark.parametrize(
    ("name", "parts"), [("maximum", (0.5, 0.5)), ("minimum", (0.5, 0.5)), ("fmax", (1, 0)), ("fmin", (1, 0))]
)
def test_equal_operands_share_or_the_first_gets_all(name: str, parts: tuple[float, float]) -> None:
    same = np.array([0.7, -2.0])
    seed = np.array([1.0, 3.0])
    shares = pullback(node(name, arg(0), arg(1)), arg(2), (arg(0), arg(1)))
    for share, part in zip(shares, parts, strict=True):
        np.testing.assert_array_equal(values(share, same, same, seed), seed * part)


def test_powers_of_nothing_have_no_slope() -> None:
    base, exponent = np.array([0.0, 0.0]), np.array([0.0, 2.0])
    of_base, of_exponent = pullback(arg(0) ** arg(1), arg(2), (arg(0), arg(1)))
    ones = np.ones(2)
    assert values(of_base, base, exponent, ones).tolist() == [0, 0]
    assert values(of_exponent, base, exponent, ones).tolist() == [0, 0]
