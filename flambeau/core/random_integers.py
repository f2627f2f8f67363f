"""Random integers and permutations with PyTorch's bits: `random_`, `randint`, `randperm`."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from flambeau.core import random_math as rm
from flambeau.core.dtype import ALL_DTYPES, bfloat16, bool_, dtype, float16, float32, float64, int64
from flambeau.core.generator import Generator

# A range this large takes a 64-bit number, so that the remainder stays nearly uniform.
WIDE_RANGE = 1 << 28
# Up to 2**digits + 1 consecutive integers are exact in a floating dtype.
_DIGITS = {d: d.limits.precision for d in ALL_DTYPES if d.limits}
_UNSIGNED = ("uint16", "uint32", "uint64")
_INT64_MIN = -(2**63)
# For permutations of this size 32-bit numbers would be too coarse.
COARSE = 0xFFFFFFFF // 20
# From here on resolving all swaps of a shuffle at once is faster than making them one by one.
_MANY_SWAPS = 4096


def random_full(generator: Generator, n: int, to: dtype) -> np.ndarray[Any, Any]:
    """Draw the samples of `random_()`: all non-negative values of an integer dtype, 0 ... 2**digits of a floating one."""
    if to.is_complex or to.name in _UNSIGNED:
        raise NotImplementedError(f'"random_" not implemented for {to}')
    if to is bool_:
        return (generator.raw(n) & np.uint64(1)).astype(np.bool_)
    span = (1 << _DIGITS[to]) + 1 if to.is_floating_point else int(np.iinfo(to.numpy).max) + 1
    return _cast(_remainders(generator, n, span, to is int64 or to is float64), 0, to)


def random_range(generator: Generator, n: int, to: dtype, low: int, high: int | None) -> np.ndarray[Any, Any]:
    """Draw the samples of `random_(low, high)` and `randint(low, high, ...)`; `high` is excluded, and None means the dtype's own limit."""
    if to.is_complex:
        raise NotImplementedError(f'"random_" not implemented for {to}')
    if high is None and low == _INT64_MIN:
        return _full_64_bits(generator, n, to)
    low, span = bounds(to, low, high)
    return _cast(_remainders(generator, n, span, span >= WIDE_RANGE), low, to)


def _remainders(generator: Generator, n: int, span: int, wide: bool) -> np.ndarray[Any, Any]:
    if wide:
        words = generator.random64(n)
        words %= np.uint64(span)
        return words
    words = generator.raw(n)
    if span & (span - 1) == 0:
        words &= np.uint64(span - 1)
        return words
    narrow = words.astype(np.uint32)
    narrow %= np.uint32(span)
    return narrow


def _cast(offsets: np.ndarray[Any, Any], low: int, to: dtype) -> np.ndarray[Any, Any]:
    """Return low + offsets (modulo 2**64, as in C) as dtype `to`."""
    numbers = offsets.astype(np.uint64, copy=False).view(np.int64)
    if low:
        numbers = numbers + np.int64(low)
    return _from_int64(numbers, to)


def _from_int64(numbers: np.ndarray[Any, Any], to: dtype) -> np.ndarray[Any, Any]:
    if to is float16 or to is bfloat16:
        return rm.narrow(numbers.astype(np.float32), to)
    return numbers.astype(to.numpy, copy=False)


def _full_64_bits(generator: Generator, n: int, to: dtype) -> np.ndarray[Any, Any]:
    if to not in (int64, float64, float32, bfloat16):
        message = f"random_ over all 64-bit integers handles int64, float64, float32 and bfloat16, but got {to}"
        unknown = to is bool_ or to is float16 or to.name in _UNSIGNED  # PyTorch's two exceptions for one mistake
        raise NotImplementedError(message) if unknown else RuntimeError(message)
    return _from_int64(generator.random64(n).view(np.int64), to)


def bounds(to: dtype, low: int, high: int | None) -> tuple[int, int]:
    """Return the first value and the number of values, after PyTorch's checks."""
    if high is None:
        return _bounds_to_limit(to, low)
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    _check_bound("from", low, to)
    _check_bound("to - 1", high - 1, to)
    if to.is_floating_point:
        low, high = _representable_low(to, low), _representable_high(to, high)
        if low >= high:
            raise RuntimeError(f"random_ finds no representable {to} value in [from, to): from={low}, to={high}")
    return low, high - low


def _bounds_to_limit(to: dtype, low: int) -> tuple[int, int]:
    _check_bound("from", low, to)
    if to.name == "uint64":
        raise RuntimeError(f"random_ needs 'to' for {to}, whose largest value is not a 64-bit signed integer")
    if not to.is_floating_point:
        return low, _limits(to)[1] - low + 1
    last, low = 1 << _DIGITS[to], _representable_low(to, low)
    if low >= last:
        raise RuntimeError(f"random_ expects 'from' to be at most {last - 1} for {to}, but got from={low}")
    return low, last - low + 1


@functools.cache
def _limits(to: dtype) -> tuple[int, int]:
    """Return the least and the largest number of an integer or bool dtype."""
    if to is bool_:
        return 0, 1
    found = np.iinfo(to.numpy)
    return int(found.min), int(found.max)


def _check_bound(name: str, value: int, to: dtype) -> None:
    if to.limits is not None:
        exact = 1 << _DIGITS[to]
        if abs(value) > min(to.limits.max, 2**64):
            raise RuntimeError(f"{name} is out of bounds for {to}: {value}")
        if abs(value) > exact:
            warnings.warn(
                f"{name} is out of bounds [-{exact}, {exact}], where every integer is a {to}: got {value}; the samples"
                " are not evenly distributed",
                UserWarning,
                stacklevel=5,
            )
        return
    least, largest = _limits(to)
    if not least <= value <= largest:
        raise RuntimeError(f"{name} is out of bounds for {to}: {value}")


def _rounded(value: int, to: dtype) -> int:
    """Return `value` after a conversion to `to` and back to a 64-bit integer; 2**63 becomes the least one, as in C."""
    there_and_back = int(rm.widen(_from_int64(np.array([value], np.int64), to), to)[0])
    return there_and_back if there_and_back < 2**63 else _INT64_MIN


def _representable_low(to: dtype, low: int) -> int:
    """Return `low`, raised to the next value of `to` if rounding would take it below the range."""
    rounded = _rounded(low + 1, to)
    if rounded >= low:
        return low
    return rounded + (1 << (abs(low + 1).bit_length() - _DIGITS[to]))


def _representable_high(to: dtype, high: int) -> int:
    rounded = _rounded(high - 1, to)
    if rounded < high:
        return high
    return rounded - (1 << (abs(high - 1).bit_length() - _DIGITS[to]))


# -- permutations -----------------------------------------------------------------------------------------------------


def randperm(generator: Generator, n: int, to: dtype = int64) -> np.ndarray[Any, Any]:
    """Draw `randperm(n)`: a shuffle that swaps each place with itself or a later one (an earlier one for a huge n)."""
    check_permutation(n, to)
    if n < COARSE:
        return _from_int64(_shuffle(_swap_targets(generator, n)), to)
    words = generator.random64(n)
    words %= np.arange(1, n + 1, dtype=np.uint64)
    return _from_int64(_apply_swaps(words.view(np.int64)), to)


def check_permutation(n: int, to: dtype) -> None:
    """Raise for a permutation that the dtype cannot hold."""
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    if to is bool_ or to.is_complex or to.name in _UNSIGNED:
        raise NotImplementedError(f'"randperm" not implemented for {to}')
    if to.is_floating_point and to is not bfloat16 and n > (1 << _DIGITS[to]) + 1:
        raise RuntimeError(f"n cannot be greater than 2^{_DIGITS[to]}+1 for {to}, but got {n}")
    if not to.is_floating_point and n - 1 > np.iinfo(to.numpy).max:
        raise RuntimeError(f"value cannot be converted to type {to} without overflow: {n - 1}")


def _swap_targets(generator: Generator, n: int) -> np.ndarray[Any, Any]:
    """Return the place that each place is swapped with; the last one stays and takes no draw."""
    places = np.arange(n, dtype=np.int64)
    words = generator.random32(max(n - 1, 0))
    words %= np.arange(n, 1, -1, dtype=np.uint32)
    places[:-1] += words
    return places


def _apply_swaps(targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return 0 ... n-1 after swapping place i with targets[i] for i = 0, 1, ... in turn; targets[i] <= i.

    The inverse permutation makes the same swaps in the opposite order. Counting places from the other end turns that
    into a shuffle with later targets.
    """
    last = targets.size - 1
    inverse = last - _shuffle(last - targets[::-1])[::-1]
    result = np.empty_like(inverse)
    result[inverse] = np.arange(targets.size)
    return result


def _shuffle(targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return 0 ... n-1 after swapping place i with targets[i] for i = 0, 1, ... in turn; targets[i] >= i."""
    if not _MANY_SWAPS <= targets.size < 2**31:
        result = list(range(targets.size))
        for place, target in enumerate(targets.tolist()):
            result[place], result[target] = result[target], result[place]
        return np.array(result, np.int64)
    return _shuffled_at_once(targets)


def _shuffled_at_once(targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Shuffle `0..n-1` by the given swap targets, with array operations.

    Swap i brings to place i what place t = targets[i] held then: what the last earlier swap j with target t had put
    there, or t itself. Swap j had put there what place j held at time j, which by the same rule came from the last
    swap with target j, and so on: chains of earlier swaps, followed for all places at once by pointer doubling.
    """
    n = targets.size
    places = np.arange(n, dtype=np.int64)
    grouped = np.sort((targets << 32) | places)  # by target, then by time
    target, time = grouped >> 32, grouped & 0xFFFFFFFF
    repeated = np.empty(n, np.bool_)
    repeated[0] = False
    np.equal(target[1:], target[:-1], out=repeated[1:])
    earlier = np.full(n, -1, np.int64)  # the last swap before i that had i's target
    earlier[time[repeated]] = time[:-1][repeated[1:]]
    source = places.copy()  # the last swap before i that had target i; i itself if none
    source[target] = time  # repeated indices: the last, that is the latest, is stored
    own = targets == places
    source[own] = np.where(earlier[own] >= 0, earlier[own], places[own])
    while True:
        further = source[source]
        if np.array_equal(further, source):
            break
        source = further
    return np.where(earlier >= 0, source[earlier], targets)
