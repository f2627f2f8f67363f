"""`Size` against `torch.Size`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from answers import judge

from flambeau.core.size import Size, make_size


class Index:
    def __index__(self) -> int:
        return 3


def test_prints_as_torch_size():
    assert repr(Size([2, 3])) == str(Size((2, 3))) == f"{Size(range(2, 4))}" == "torch.Size([2, 3])"
    assert repr(Size()) == "torch.Size([])"


def test_is_a_tuple():
    size = Size([2, 3])
    assert size == (2, 3) and hash(size) == hash((2, 3)) and isinstance(size, tuple) and size != [2, 3]
    first, second = size
    assert (first, second) == (2, 3) and size.index(3) == 1 and max(size) == 3


def test_slices_sums_and_products_stay_sizes():
    size = Size([2, 3, 4])
    for result, expected in [
        (size[:2], (2, 3)),
        (size[::-1], (4, 3, 2)),
        (size + size[:1], (2, 3, 4, 2)),
        (size + (5,), (2, 3, 4, 5)),  # noqa: RUF005 - the operator is what is tested
        ((5,) + size, (5, 2, 3, 4)),  # noqa: RUF005 - the operator is what is tested
        (size[:1] * 2, (2, 2)),
        (2 * size[:1], (2, 2)),
    ]:
        assert type(result) is Size and result == expected
    assert type(size[0]) is int


def test_numel():
    assert Size([2, 3]).numel() == 6
    assert Size().numel() == 1
    assert Size([0, 5]).numel() == 0
    assert Size([2**40, 2**40]).numel() == 2**80  # the exact product; PyTorch wraps around to 0


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_and_copies(protocol):
    size = Size([2, 3])
    for again in (pickle.loads(pickle.dumps(size, protocol)), copy.copy(size), copy.deepcopy(size)):
        assert type(again) is Size and again == size


def test_holds_plain_ints():
    assert [type(item) for item in Size([True, np.int32(2), Index()])] == [int, int, int]


def test_internal_constructor_gives_the_same():
    assert type(make_size((2, 3))) is Size and make_size((2, 3)) == Size((2, 3))


def test_refuses_what_no_int64_holds():
    for size in (2**63, -(2**63) - 1, 2**70):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            Size([1, size])


def test_has_no_attributes_of_its_own():
    with pytest.raises(AttributeError):
        Size([1]).name = "x"
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (Size,), {})


CONSTRUCTIONS: list[Any] = [
    [], (2, 3), range(3), {1: 2}, "", [np.int64(2)], [True], [Index()], [-1], np.array([1, 2]), [2**63 - 1], [-(2**63)],
    [1.5], ["a"], "a", 3, None, [None], [(1,)], [np.float64(2)], np.array([1.0, 2]),
]  # fmt: skip

OPERATIONS = """
s + (1.5,) | s + ('a',) | (1.5,) + s | s + (True,) | s + (np.int64(3),) | s * 0 | s * -1 | s * True
s * np.int64(2) | s * 1.5 | s * 'a' | 'a' * s | s['a'] | s[5] | s[1.0] | s[np.int64(0)] | s < (3,) | [1] + s
s + [1] | s + 1 | 1 + s | s + None | 2 in s | f'{s:>5}' | s.count(3) | s.missing | S([2], 3) | S(a=1)
s.__reduce__()[1] | S([s]) | s[0:0] | s.__add__([1]) | s[-1]
"""


@pytest.fixture(scope="module")
def torch():
    return judge("torch")


def outcome(action: Any) -> Any:
    try:
        return action()
    except Exception as problem:
        return problem


@pytest.mark.parametrize("data", CONSTRUCTIONS, ids=range(len(CONSTRUCTIONS)))
def test_construction_agrees_with_torch(torch, data):
    ours, theirs = outcome(lambda: Size(data)), outcome(lambda: torch.Size(data))
    assert type(ours).__name__ == type(theirs).__name__
    assert str(ours) == str(theirs)
    if isinstance(theirs, torch.Size):
        assert ours == theirs


@pytest.mark.parametrize(
    "source", [part.strip() for line in OPERATIONS.strip().splitlines() for part in line.split("|")]
)
def test_operations_agree_with_torch(torch, source):
    ours = outcome(lambda: eval(source, {"s": Size([2, 3]), "S": Size, "np": np}))
    theirs = outcome(lambda: eval(source, {"s": torch.Size([2, 3]), "S": torch.Size, "np": np}))
    assert type(ours).__name__ == type(theirs).__name__
    if not isinstance(theirs, Exception):
        assert repr(ours) == repr(theirs)
