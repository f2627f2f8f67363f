"""Conversions between all dtypes, and numbers out of tensors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tensors import COMPLEX, EVERY, FLOATS, REAL, check, samples


@pytest.mark.parametrize("target", EVERY)
@given(samples(EVERY, low=-100, high=100))
def test_to_every_dtype(target, x):
    """In range of the target: what C does with larger numbers is not defined."""
    if target == "uint8":
        check(lambda lib, t: t.abs().to(lib.uint8), (x,))
        return

    def oracle(a):
        return (a.real if target not in (*COMPLEX, "bool") else a).astype("float32" if target == "bfloat16" else target)

    check(lambda lib, t: t.to(getattr(lib, target)), (x,), oracle)


@given(samples(FLOATS, flavours=("special",)), st.sampled_from((*FLOATS, *COMPLEX, "bool")))
def test_special_values_survive_conversion(x, target):
    check(lambda lib, t: t.to(getattr(lib, target)), (x,))


@given(samples(("int64", "int32", "int16"), low=-3000, high=3000), st.sampled_from(("int8", "uint8", "int16", "int32")))
def test_integers_wrap_around(x, target):
    check(lambda lib, t: t.to(getattr(lib, target)), (x,), lambda a: a.astype(target))


@given(samples(EVERY), samples(EVERY))
def test_result_type_and_can_cast(x, y):
    check(lambda lib, a, b: str(lib.result_type(a, b)), (x, y))
    check(lambda lib, a, b: lib.can_cast(a.dtype, b.dtype), (x, y))
    check(lambda lib, a, b: str(lib.promote_types(a.dtype, b.dtype)), (x, y))
    check(lambda lib, a, b: a.type_as(b).dtype == b.dtype, (x, y))


@given(samples(EVERY, most=2))
def test_numbers_out_of_tensors(x):
    check(lambda lib, t: t.item(), (x,))
    check(lambda lib, t: repr(t.tolist()), (x,), lambda a: repr(a.tolist()))
    for convert in (bool, int, float, complex, len):
        check(lambda lib, t, convert=convert: convert(t), (x,))


@given(samples(EVERY), st.sampled_from(EVERY))
def test_reinterpreting_memory(x, target):
    check(lambda lib, t: t.view(getattr(lib, target)).shape == () or t.view(getattr(lib, target)).shape, (x,))


@given(samples(REAL, flavours=("plain", "special"), most=3))
def test_printed_form(x):
    check(lambda lib, t: str(t), (x,))


@given(samples(tuple(d for d in EVERY if d != "bfloat16")))
def test_numpy_round_trip(x):
    check(lambda lib, t: lib.from_numpy(t.numpy()), (x,), lambda a: a)
    check(lambda lib, t: t.numpy().strides == tuple(s * t.element_size() for s in t.stride()) or not t.numel(), (x,))
    check(lambda lib, t: lib.tensor(t.numpy()), (x,))
    check(lambda lib, t: np.asarray(t).dtype.name, (x,), lambda a: a.dtype.name)
