"""Storages as objects: made, copied, turned around; what tensors ask of them."""

from __future__ import annotations

import copy
import sys
import warnings

import pytest
from answers import judge

import flambeau

torch = judge("torch")


def outcome(function, library):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(library)
        except (RuntimeError, ValueError, TypeError) as error:
            return type(error)


BYTES = bytearray(range(1, 9))

CASES = [
    lambda t: t.UntypedStorage([1, 2, 300, -1]).tolist(),
    lambda t: t.UntypedStorage([]).tolist(),
    lambda t: t.UntypedStorage([1.5]),
    lambda t: t.UntypedStorage(2.5),
    lambda t: t.UntypedStorage(5, device="meta").nbytes(),
    lambda t: len(t.UntypedStorage(5, device="cpu")),
    lambda t: t.ByteStorage.from_buffer(BYTES).tolist(),
    lambda t: t.ShortStorage.from_buffer(BYTES),
    lambda t: t.ShortStorage.from_buffer(BYTES, "big").tolist(),
    lambda t: t.ShortStorage.from_buffer(BYTES, "little", 1, 2).tolist(),
    lambda t: t.ShortStorage.from_buffer(BYTES, "little", offset=3),
    lambda t: t.ShortStorage.from_buffer(BYTES, "little", count=9),
    lambda t: t.ShortStorage.from_buffer(BYTES, "little", offset=9),
    lambda t: t.ShortStorage.from_buffer(BYTES, "middle"),
    lambda t: t.randn(3).storage_type().__name__,
    lambda t: sys.getsizeof(t.ones(10).storage()) - sys.getsizeof(t.ones(0).storage()),
    lambda t: t.ones(2).new(t.ones(2, dtype=t.float64).storage()),
    lambda t: t.ones(2).set_(t.ones(2).untyped_storage(), 1, (2,)),
    lambda t: t.ones(2).set_(t.ones(2).untyped_storage(), 1, (3,)).untyped_storage().nbytes(),
    lambda t: t.ones(2).set_(t.ones(2).untyped_storage(), 0, (2,), (5,)).untyped_storage().nbytes(),
    lambda t: t.empty(2, 2)[0:0].data_ptr(),
    lambda t: t.empty(2, 2).resize_(0, 2).data_ptr(),
]


@pytest.mark.parametrize("case", CASES)
def test_as_in_pytorch(case):
    assert outcome(case, flambeau) == outcome(case, torch)


def test_copies_have_memory_of_their_own():
    storage = flambeau.arange(4, dtype=flambeau.uint8).untyped_storage()
    for twin in (copy.copy(storage), copy.deepcopy(storage)):
        twin[0] = 9
        assert storage.tolist() == [0, 1, 2, 3] and twin.tolist() == [9, 1, 2, 3]
    storage.byteswap(flambeau.int16)
    assert storage.tolist() == [1, 0, 3, 2]


def test_elements_in_a_shared_file(tmp_path):
    path = str(tmp_path / "numbers")
    first = flambeau.FloatTensor(flambeau.FloatStorage.from_file(path, True, 10))
    second = flambeau.FloatTensor(flambeau.FloatStorage.from_file(path, True, 10))
    first.fill_(3)
    assert second.tolist() == [3] * 10


def test_aliases_are_one_storage():
    x = flambeau.ones(3)
    assert x.untyped_storage()._cdata == x.data.untyped_storage()._cdata == x[1:].storage()._cdata
    assert x.untyped_storage()._cdata != x.clone().untyped_storage()._cdata
