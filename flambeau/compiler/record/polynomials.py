"""Numbers of a program as functions of one size: polynomials fitted to values at some sizes, exactly or not at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

_DEGREE = 3
_NUMERATORS = (1.0, -1.0, 2.0, -2.0)
_LARGEST = 1 << 62


class Function(NamedTuple):
    """A number as a function of a size t: (c0 + c1 t + c2 t^2 + c3 t^3) / `divisor`, an integer for every integer t. A `numerator` other than
    0 is divided by that integer (1 / n of a mean); with 0 the number is the integer itself, or its floating-point value (`real`). `narrow`
    says that the result is rounded to 32 bits. A number that does not depend on the size has its `value`."""

    coefficients: tuple[int, ...]
    divisor: int = 1
    numerator: float = 0.0
    real: bool = False
    narrow: bool = False
    value: float | None = None

    def __call__(self, t: int) -> float:
        if self.value is not None:
            return self.value
        whole = sum(c * t**k for k, c in enumerate(self.coefficients)) // self.divisor
        if not self.real:
            return whole
        value = self.numerator / whole if self.numerator else float(whole)
        return float(np.float32(value)) if self.narrow else value

    @property
    def constant(self) -> bool:
        return self.value is not None


def fitted(sizes: Sequence[int], values: Sequence[float]) -> Function | None:
    """Return the function with these values at these sizes (at least six), or None if no function of the supported kind has them."""
    if all(v is values[0] or repr(v) == repr(values[0]) for v in values):  # signs of zero count, and nan is one value
        whole = 0 if type(values[0]) is float else values[0]
        return Function((int(whole), *(0,) * _DEGREE), value=values[0])
    if type(values[0]) is float:
        return _fit_real(sizes, values)
    coefficients = _interpolate(sizes[: _DEGREE + 1], values[: _DEGREE + 1])
    divisor = math.lcm(*(c.denominator for c in coefficients))
    found = Function(tuple(int(c * divisor) for c in coefficients), divisor)
    terms = sum(abs(c) * max(sizes) ** k for k, c in enumerate(found.coefficients))
    if terms >= _LARGEST or any(found(t) != value for t, value in zip(sizes, values)):
        return None
    # A polynomial with integer values at as many consecutive integers as it has coefficients has them at all integers.
    ends = range(sizes[0], sizes[0] + _DEGREE + 1)
    if any(sum(c * t**k for k, c in enumerate(found.coefficients)) % divisor for t in ends):
        return None
    return found


def _fit_real(sizes: Sequence[int], values: Sequence[float]) -> Function | None:
    if not all(math.isfinite(v) and v for v in values):
        return None
    for numerator in (0.0, *_NUMERATORS):
        whole = [round(numerator / v if numerator else v) for v in values]
        found = fitted(sizes, whole) if all(whole) else None
        for narrow in (False, True):
            one = found and found._replace(numerator=numerator, real=True, narrow=narrow)
            if one is not None and all(one(t) == v for t, v in zip(sizes, values)):
                return one
    return None


def _interpolate(sizes: Sequence[int], values: Sequence[float]) -> list[Fraction]:
    """Return the coefficients of the polynomial through some points, by Newton's divided differences."""
    table = [Fraction(v) for v in values]
    found = [Fraction(0)] * len(sizes)
    basis = [Fraction(1)]  # the product of (t - size), for the sizes before
    for k, size in enumerate(sizes):
        for i, c in enumerate(basis):
            found[i] += table[0] * c
        table = [(b - a) / (sizes[i + k + 1] - sizes[i]) for i, (a, b) in enumerate(zip(table, table[1:]))]
        basis = [a - size * b for a, b in zip([Fraction(0), *basis], [*basis, Fraction(0)])]
    return found


class Functions:
    """Distinct functions of a size, evaluated all at once. `single` are those used as 32-bit floats in a program."""

    def __init__(self, functions: Sequence[Function], single: Collection[int]):
        self.rows = np.array([f.coefficients for f in functions], np.int64).reshape(len(functions), _DEGREE + 1)
        self.divisors = np.array([f.divisor for f in functions], np.int64)
        self.divided = bool((self.divisors != 1).any())
        self.powers = np.ones(_DEGREE + 1, np.int64)
        self.real = [(i, f, np.float32 if i in single else np.float64) for i, f in enumerate(functions) if f.real]

    def values(self, t: int, into: np.ndarray) -> None:
        """Write the values at a size, those of floating-point numbers as their bits."""
        self.powers[1:] = t, t * t, t**3
        np.dot(self.rows, self.powers, out=into)
        if self.divided:
            np.floor_divide(into, self.divisors, out=into)
        for i, f, kind in self.real:
            into[i] = int.from_bytes(kind(f(t)).tobytes(), "little", signed=True)

    def at(self, sizes: np.ndarray) -> np.ndarray:
        """Return the integers at many sizes, a row for each function that varies."""
        return (self.rows @ np.stack([sizes**k for k in range(_DEGREE + 1)])) // self.divisors[:, None]
