"""Prints of memory: what they notice and what they let pass."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.compiler.record.comparison import TensorPrint

SIZES = (7, 100_003)  # bytes are kept of the first, sums of the second


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [flambeau.float32, flambeau.float64, flambeau.float16, flambeau.bfloat16])
def test_numbers(size, dtype):
    flambeau.manual_seed(0)
    t = flambeau.randn(size).to(dtype)
    mine = TensorPrint(t)
    assert mine.matches(t.clone())
    step = {2: 1e-3, 4: 1e-6, 8: 1e-12}[dtype.itemsize]
    assert mine.matches((t.double() * (1 + step * flambeau.randn(size).double().clamp(-1, 1))).to(dtype))
    for place in (0, size // 2, size - 1):
        other = t.clone()
        other[place] += 0.5
        assert not mine.matches(other)
    assert not mine.matches(-t) and not mine.matches(t * 1.5) and not mine.matches(t.roll(1))
    assert not mine.matches(None) and not mine.matches(t[1:]) and not mine.matches(t.int())


@pytest.mark.parametrize("size", SIZES)
def test_infinities_and_nan_count_by_their_kind_and_place(size):
    t = flambeau.randn(size)
    for value in (np.nan, np.inf, -np.inf):
        t[3] = value
        mine = TensorPrint(t)
        assert mine.matches(t.clone())
        for other in (np.nan, np.inf, -np.inf, 0.0):
            changed = t.clone()
            changed[3] = other
            assert mine.matches(changed) == (other == value or (other != other and value != value))
        assert not mine.matches(t.roll(1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [flambeau.int64, flambeau.uint8, flambeau.bool])
def test_integers_must_be_equal(size, dtype):
    t = flambeau.randint(0, 2, (size,)).to(dtype)
    mine = TensorPrint(t)
    other = t.clone()
    other[size // 2] = 1 - other[size // 2].int()
    assert mine.matches(t.clone()) and not mine.matches(other)


def test_layouts_do_not_matter():
    t = flambeau.randn(300, 200)
    assert TensorPrint(t).matches(t.t().contiguous().t()) and not TensorPrint(t).matches(t.flip(0))
