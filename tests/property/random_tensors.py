"""Random tensors of every shape, layout and dtype, and the comparison of results with NumPy and with PyTorch.

A `Sample` describes a tensor as memory plus shape, strides and offset, so that the same tensor can be made as a Flambeau
tensor, a NumPy array and a PyTorch tensor. `check` runs a call on all of them."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import flambeau

pytorch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
COMPLEX = ("complex64", "complex128")
REAL = (*FLOATS, *INTEGERS, "bool")
EVERY = (*REAL, *COMPLEX)
EXACT = (
    "float32",
    "float64",
    "int64",
    "int32",
    "uint8",
    "bool",
)  # those most programs use, and NumPy computes as PyTorch does

# relative and absolute tolerance of a short computation
TOLERANCE = {
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "float32": (2e-5, 2e-5),
    "float64": (1e-10, 1e-10),
    "complex64": (5e-5, 5e-5),
    "complex128": (1e-10, 1e-10),
}
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 88.0, -120.0)
WHOLE = tuple(range(-6, 7))


@dataclass(frozen=True)
class Sample:
    """One tensor, independent of any library. `memory` holds float32 for bfloat16, which NumPy does not know."""

    dtype: str
    memory: np.ndarray
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def numpy(self) -> np.ndarray:
        size = self.memory.itemsize
        if 0 in self.shape:
            return np.zeros(self.shape, self.memory.dtype)
        flat = self.memory.copy()
        return as_strided(flat[self.offset :], self.shape, [s * size for s in self.strides])

    def tensor(self, library: Any) -> Any:
        flat = library.from_numpy(self.memory).clone()  # NumPy's own memory could not be resized by out=
        if self.dtype == "bfloat16":
            flat = flat.to(library.bfloat16)
        return flat.as_strided(self.shape, self.strides, self.offset)

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.shape} strides {self.strides} offset {self.offset}: {self.memory.tolist()}>"


def dtype_of(library: Any, name: str) -> Any:
    return getattr(library, name)


# -- strategies ------------------------------------------------------------------------------------------------------
def _fits(shape: tuple[int, ...]) -> bool:
    return int(np.prod(shape, dtype=np.int64)) <= 600


def sizes(zero: bool = True) -> st.SearchStrategy:
    return st.sampled_from((2, 3, 1, 4, 7, 17, 0) if zero else (2, 3, 1, 4, 7, 17))


def shapes(least: int = 0, most: int = 5, zero: bool = True) -> st.SearchStrategy:
    return st.lists(sizes(zero), min_size=least, max_size=most).map(tuple).filter(_fits)


@st.composite
def layouts(draw: Callable, shape: tuple[int, ...], overlap: bool | str = True) -> tuple[tuple[int, ...], int]:
    """Strides and offset: row-major, or dimensions in another order with gaps, repeats and overlaps. `overlap` may be False, or
    "expanded": elements repeat along whole dimensions at most, as PyTorch notices."""
    kinds = ("contiguous", "permuted", "sliced", "expanded", "overlapping")
    kind = draw(st.sampled_from(kinds if overlap is True else kinds[:4] if overlap else kinds[:3]))
    order = list(range(len(shape)))
    if kind != "contiguous":
        order = draw(st.permutations(order))
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        if kind == "sliced":
            step *= draw(st.sampled_from((1, 2, 3)))
        strides[d] = step
        step *= max(shape[d], 1)
    if kind in ("expanded", "overlapping") and shape:
        changed = draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
        strides = [s if d not in changed else 0 if kind == "expanded" else min(s, 1) for d, s in enumerate(strides)]
    return tuple(strides), 0 if kind == "contiguous" else draw(st.sampled_from((0, 1, 5)))


def _memory(dtype: str, count: int, seed: int, flavour: str, low: float, high: float) -> np.ndarray:
    random = np.random.RandomState(seed)
    if dtype == "bool":
        return random.rand(count) < 0.5
    if dtype in INTEGERS:
        whole = random.randint(int(np.ceil(low)), int(high) + 1, count)
        return (np.abs(whole) if dtype == "uint8" else whole).astype(dtype)
    values = random.uniform(low, high, count)
    if flavour == "special":
        values = np.where(random.rand(count) < 0.4, random.choice(SPECIAL, count), values)
    elif flavour == "ties":
        values = np.clip(np.round(values), low, high)
    if dtype in COMPLEX:
        return (values + 1j * random.permutation(values)).astype(dtype)
    if dtype == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@st.composite
def samples(
    draw: Callable,
    dtypes: tuple[str, ...] = EXACT,
    shape: tuple[int, ...] | None = None,
    flavours: tuple[str, ...] = ("plain", "ties"),
    low: float = -4.0,
    high: float = 4.0,
    least: int = 0,
    most: int = 5,
    overlap: bool | str = True,
    zero: bool = True,
) -> Sample:
    dtype = draw(st.sampled_from(dtypes))
    if shape is None:
        shape = draw(shapes(least, most, zero))
    strides, offset = draw(layouts(shape, overlap))
    count = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides) if n > 1) if 0 not in shape else offset
    seed = draw(st.integers(0, 1 << 20))
    return Sample(
        dtype, _memory(dtype, count, seed, draw(st.sampled_from(flavours)), low, high), shape, strides, offset
    )


@st.composite
def broadcastable(draw: Callable, count: int, most: int = 4) -> list[tuple[int, ...]]:
    """Shapes that broadcast together: leading dimensions left out, some dimensions of size 1."""
    full = draw(shapes(0, most))
    result = []
    for _ in range(count):
        start = draw(st.integers(0, len(full))) if draw(st.booleans()) else 0
        result.append(tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in full[start:]))
    return result


def valid_dims(rank: int) -> st.SearchStrategy:
    return st.integers(-max(rank, 1), max(rank, 1) - 1)


def dims(rank: int) -> st.SearchStrategy:
    """Mostly valid dimension arguments, positive and negative, sometimes out of range or huge."""
    valid = valid_dims(rank)
    wrong = st.sampled_from((rank, -rank - 1, rank + 3, 10**6, -(10**6), 2**40))
    return st.integers(0, 9).flatmap(lambda i: wrong if i == 0 else valid)


# -- comparison ------------------------------------------------------------------------------------------------------
class Raised:
    def __init__(self, error: Exception):
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {str(self.error).splitlines()[0][:200] if str(self.error) else ''}"


def outcome(call: Callable, *arguments: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return call(*arguments)
        except Exception as error:  # the property under test is which exception it is
            return Raised(error)


def flatten(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)) and not hasattr(result, "numel"):
        return [leaf for part in result for leaf in flatten(part)]
    return [result]


def to_numpy(x: Any) -> np.ndarray:
    """The values of a tensor, or of a number or array."""
    if hasattr(x, "detach"):
        x = x.detach()
        if str(x.dtype).endswith("bfloat16"):
            x = x.float()
        if x.dtype.is_complex:
            x = x.resolve_conj()
        return x.numpy()
    return np.asarray(x)


def assert_close(got: np.ndarray, expected: np.ndarray, dtype: str, slack: float, what: str) -> None:
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    if dtype not in TOLERANCE:
        assert np.array_equal(got, expected), f"{what}:\n{got}\nexpected\n{expected}"
        return
    rtol, atol = TOLERANCE[dtype]
    with np.errstate(all="ignore"):
        close = np.isclose(got, expected, rtol * slack, atol * slack, equal_nan=True)
    assert bool(np.all(close)), f"{what}:\n{got}\nexpected\n{expected}"


def significant(x: Any) -> list[tuple[int, int]]:
    """Sizes and strides that decide where elements lie."""
    return [(n, s) for n, s in zip(x.shape, x.stride()) if n != 1] if x.numel() else []


def check(
    call: Callable,
    given: tuple[Sample, ...],
    oracle: Callable | None = None,
    slack: float = 1.0,
    strides: bool = True,
    written: bool = False,
) -> Any:
    """`call(library, *tensors)` must give what `oracle(*arrays)` gives and what PyTorch gives: values, dtype, shape, strides,
    or the same kind of error. With `written`, the tensors themselves are compared afterwards too."""
    inputs = [s.tensor(flambeau) for s in given]
    mine = outcome(call, flambeau, *inputs)
    if oracle is not None:
        _check_numpy(mine, outcome(oracle, *[s.numpy() for s in given]), slack)
    if pytorch is not None:
        twins = [s.tensor(pytorch) for s in given]
        theirs = outcome(call, pytorch, *twins)
        _check_pytorch(mine, theirs, slack, strides)
        if written and not isinstance(theirs, Raised):  # PyTorch may have written a part before it found the error
            for i, (a, b) in enumerate(zip(inputs, twins)):
                assert_close(to_numpy(a), to_numpy(b), given[i].dtype, slack, f"argument {i} afterwards")
    return mine


def _check_numpy(mine: Any, expected: Any, slack: float) -> None:
    if isinstance(expected, Raised):
        assert isinstance(mine, Raised), f"got {mine}, but NumPy raises {expected}"
        return
    assert not isinstance(mine, Raised), f"raised {mine!r}, but NumPy gives {expected}"
    got, wanted = flatten(mine), flatten(expected)
    assert len(got) == len(wanted)
    for i, (a, b) in enumerate(zip(got, wanted)):
        name = str(getattr(a, "dtype", "")).replace("torch.", "").replace("flambeau.", "")
        assert_close(to_numpy(a), np.asarray(b), name, slack, f"result {i} against NumPy")


def _check_pytorch(mine: Any, theirs: Any, slack: float, strides: bool) -> None:
    if isinstance(theirs, Raised):
        assert isinstance(mine, Raised), f"got {mine}, but PyTorch raises {theirs!r}"
        assert isinstance(mine.error, type(theirs.error)), f"raised {mine!r}, PyTorch raises {theirs!r}"
        return
    assert not isinstance(mine, Raised), f"raised {mine!r}, but PyTorch gives {theirs}"
    got, wanted = flatten(mine), flatten(theirs)
    assert len(got) == len(wanted)
    for i, (a, b) in enumerate(zip(got, wanted)):
        if not hasattr(b, "stride"):
            assert a == b or (a != a and b != b), f"result {i}: {a}, PyTorch gives {b}"
            continue
        assert str(a.dtype) == str(b.dtype), f"result {i} is {a.dtype}, PyTorch's {b.dtype}"
        assert_close(to_numpy(a), to_numpy(b), str(b.dtype).replace("torch.", ""), slack, f"result {i} against PyTorch")
        if strides:
            assert significant(a) == significant(b), (
                f"result {i} has strides {a.stride()}, PyTorch's {b.stride()}, {tuple(b.shape)}"
            )
