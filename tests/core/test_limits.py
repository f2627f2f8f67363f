"""`finfo` and `iinfo` against PyTorch's."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from answers import judge

from flambeau.core import dtype as dt
from flambeau.core import promotion
from flambeau.core.numeric_limits import finfo, iinfo

FLOATS = [d for d in dt.ALL_DTYPES if d.category >= 2]
INTEGERS = [d for d in dt.ALL_DTYPES if d.category == 1]
FLOAT_FIELDS = ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype")


@pytest.mark.parametrize("kind", [dt.float16, dt.float32, dt.float64])
def test_floats_agree_with_numpy(kind):
    ours, numpys = finfo(kind), np.finfo(kind.numpy)
    for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
        assert getattr(ours, name) == float(getattr(numpys, name))


@pytest.mark.parametrize("kind", INTEGERS, ids=repr)
def test_integers_agree_with_numpy(kind):
    ours, numpys = iinfo(kind), np.iinfo(kind.numpy)
    assert (ours.bits, ours.min, ours.max, ours.dtype) == (numpys.bits, int(numpys.min), int(numpys.max), kind.name)


def test_bfloat16():
    limits = finfo(dt.bfloat16)
    assert limits.eps == 2**-7 and limits.max == (2 - 2**-7) * 2.0**127 and limits.tiny == 2.0**-126
    assert repr(limits) == (
        "finfo(resolution=0.01, min=-3.38953e+38, max=3.38953e+38, eps=0.0078125,"
        " smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=bfloat16)"
    )


def test_printed_integers():
    assert repr(iinfo(dt.int8)) == "iinfo(min=-128, max=127, dtype=int8)"
    assert repr(iinfo(dt.int64)) == "iinfo(min=-9.22337e+18, max=9.22337e+18, dtype=int64)"


def test_complex_types_describe_their_parts():
    assert finfo(dt.complex64) == finfo(dt.float32) and finfo(complex) == finfo(dt.float64)


def test_default_dtype_is_described_without_an_argument():
    before = promotion.get_default_dtype()
    try:
        promotion.set_default_dtype(dt.float16)
        assert finfo().dtype == "float16"
    finally:
        promotion.set_default_dtype(before)


def test_equality_and_hash():
    assert finfo(dt.float32) == finfo(dt.float32) != finfo(dt.float64)
    assert iinfo(dt.int8) != finfo(dt.float32) and finfo(dt.float32) != 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(finfo(dt.float32))


def test_read_only():
    with pytest.raises(AttributeError, match=r"'eps' of 'torch.finfo' objects is not writable"):
        finfo(dt.float32).eps = 1
    with pytest.raises(AttributeError, match=r"'torch.iinfo' object has no attribute 'name'"):
        iinfo(dt.int8).name = 1
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.copy(iinfo(dt.int8))


@pytest.mark.parametrize(
    "action, message",
    [
        (lambda: finfo(dt.int32), "requires a floating point input type"),
        (lambda: finfo(dt.bool_), "requires a floating point input type"),
        (lambda: finfo("float32"), "argument 'type' .position 1. must be torch.dtype, not str"),
        (lambda: finfo([]), "must be torch.dtype, not list"),
        (lambda: finfo(None), "must be torch.dtype, not NoneType"),
        (lambda: finfo(np.float32), "must be torch.dtype, not type"),
        (lambda: iinfo(dt.float32), "requires an integer input type"),
        (lambda: iinfo(dt.bool_), "torch.bool is not supported by torch.iinfo"),
        (lambda: iinfo(), "missing 1 required positional argument"),
        (lambda: iinfo("a"), "must be torch.dtype, not str"),
    ],
)
def test_wrong_arguments(action, message):
    with pytest.raises(TypeError, match=message):
        action()


@pytest.fixture(scope="module")
def torch() -> Any:
    return judge("torch")


@pytest.mark.parametrize("kind", FLOATS, ids=repr)
def test_floats_agree_with_torch(torch, kind):
    ours, theirs = finfo(kind), torch.finfo(getattr(torch, kind.name))
    assert repr(ours) == repr(theirs) and str(ours) == str(theirs)
    for name in FLOAT_FIELDS:
        value, expected = getattr(ours, name), getattr(theirs, name)
        assert type(value) is type(expected) and value == expected


@pytest.mark.parametrize("kind", INTEGERS, ids=repr)
def test_integers_agree_with_torch(torch, kind):
    ours, theirs = iinfo(kind), torch.iinfo(getattr(torch, kind.name))
    assert repr(ours) == repr(theirs)
    assert all(getattr(ours, name) == getattr(theirs, name) for name in ("bits", "min", "max", "dtype"))


def test_python_types_agree_with_torch(torch):
    assert repr(finfo(float)) == repr(torch.finfo(float)) and repr(iinfo(int)) == repr(torch.iinfo(int))
    assert math.isfinite(finfo(float).max)
