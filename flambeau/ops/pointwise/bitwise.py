"""Operators of integers: bits, shifts, greatest common divisors."""

from __future__ import annotations

from ...expr import functions as f
from ...kernels.loops import scalar_function
from ..machinery.declare import pointwise
from ..machinery.quirks import Quirks

_BOTH = ("input", "other")


@pointwise(kinds="bi", numbers=_BOTH, differentiable=False)
def bitwise_and(input, other):
    """input & other"""
    return input & other


@pointwise(kinds="bi", numbers=_BOTH, differentiable=False)
def bitwise_or(input, other):
    """input | other"""
    return input | other


@pointwise(kinds="bi", numbers=_BOTH, differentiable=False)
def bitwise_xor(input, other):
    """input ^ other"""
    return input ^ other


@pointwise(out="exact", kinds="bi", differentiable=False, quirks=Quirks(inplace_function=False))
def bitwise_not(input):
    """~input"""
    return ~input


@pointwise(kinds="i", kernel="lshift_cpu", numbers=_BOTH, differentiable=False)
def bitwise_left_shift(input, other):
    """input << other; amounts that are negative or too large shift everything out."""
    return input << other


@pointwise(kinds="i", kernel="rshift_cpu", numbers=_BOTH, differentiable=False)
def bitwise_right_shift(input, other):
    """input >> other, keeping the sign."""
    return input >> other


@scalar_function
def _gcd(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@pointwise(kinds="i", numbers=(), differentiable=False, quirks=Quirks(inplace_function=True))
def gcd(input, other):
    """The greatest common divisor."""
    return f.abs_(_gcd(input, other))


@pointwise(kinds="i", numbers=(), differentiable=False, quirks=Quirks(inplace_function=True))
def lcm(input, other):
    """The least common multiple."""
    divisor = f.abs_(_gcd(input, other))
    return f.where(divisor == 0, 0, f.abs_(input // f.where(divisor == 0, 1, divisor) * other))
