"""Fourier transforms by compiled kernels: the lines of a tensor, the tables, and the division into parts.

Lengths with large prime factors are transformed as convolutions; only very long ones of them are left to NumPy."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...backends.cpu.threads import get_num_threads
from ...core.dtype import dtype, float64
from ...core.size import make_size
from ...core.tensor import Tensor, empty, new_tensor
from ...kernels.library.chirp import chirp_lines, multiply_lines, unchirp_lines
from ...kernels.library.fourier import LANES, transform_half_lines, transform_lines, transform_real_lines
from ..machinery.plan import NATIVE

# A line longer than this does not stay in the second-level cache LANES times over: it is cut into short ones.
_LONG = 8192
# With too few lines to fill a vector, shorter ones are cut already.
_LONG_ALONE = 256
_LARGEST_RADIX = 100  # the work of a pass grows with its radix
_LONGEST = 1 << 23  # beyond this the tables of a cut line would be large themselves


@lru_cache(1024)
def _radices(n: int) -> tuple[int, ...] | None:
    """Return the passes of a transform of n > 0 elements, or None if a factor is too large."""
    twos = (n & -n).bit_length() - 1
    eights, rest = divmod(twos, 3)
    if rest == 1 and eights:  # two passes by four instead of one by eight and one by two
        eights, rest = eights - 1, 4
    found = [8] * eights + {0: [], 1: [2], 2: [4], 4: [4, 4]}[rest]
    n >>= twos
    radix = 3
    while n > 1 and radix <= _LARGEST_RADIX:
        while n % radix == 0:
            found.append(radix)
            n //= radix
        radix += 2
    return tuple(found) if n == 1 else None


def is_supported(sizes: list[int]) -> bool:
    """Return whether the kernels can transform lines of these lengths."""
    return NATIVE and all(n <= _LONGEST if _radices(n) is not None else 2 * n <= _LONGEST for n in sizes)


class _Tables(NamedTuple):
    radices: np.ndarray
    passes: int
    factors: np.ndarray  # of all passes, as real numbers


def _roots(exponents: np.ndarray, n: int, d: dtype) -> np.ndarray:
    """Return exp(-2 pi i e / n), as pairs of real numbers."""
    angles = (exponents % n) * (-2 * math.pi / n)
    pairs = np.stack([np.cos(angles), np.sin(angles)], -1)
    return np.ascontiguousarray(pairs.reshape(-1), d.numpy)


@lru_cache(256)
def _tables(n: int, d: dtype) -> _Tables:
    radices = _radices(n)
    assert radices is not None
    factors, left = [np.zeros(0, d.numpy)], n
    for radix in radices:
        m = left // radix
        factors.append(_roots(np.arange(m)[:, None] * np.arange(1, radix), left, d))
        if radix not in (2, 3, 4, 5, 8):
            factors.append(_roots(np.arange(radix), radix, d))
        left = m
    return _Tables(np.array([*radices, 1], np.int64), len(radices), np.concatenate([*factors, np.zeros(2, d.numpy)]))


@lru_cache(4)
def _turns(rows: int, n: int, d: dtype) -> np.ndarray:
    """Return the factors that combine transforms of n elements to one of rows * n: root number j * k at (j, k)."""
    return _roots(np.arange(rows)[:, None] * np.arange(n), rows * n, d)


class _Chirp(NamedTuple):
    chirp: np.ndarray
    padded: int  # the length of the transforms that convolve
    spectrum: np.ndarray  # what the other chirp is there, divided by that length


@lru_cache(64)
def _chirp(n: int, d: dtype) -> _Chirp:
    padded = next(m for m in range(2 * n - 1, _LONGEST + 1) if (_radices(m) or (9,))[-1] <= 5)
    turns = _roots(np.arange(n, dtype=np.int64) ** 2, 2 * n, float64)
    other = np.zeros(padded, np.complex128)
    other[:n] = turns.view(np.complex128).conj()
    other[padded - n + 1 :] = other[n - 1 : 0 : -1]
    spectrum = np.fft.fft(other) / padded
    return _Chirp(turns.astype(d.numpy), padded, spectrum.view(np.float64).astype(d.numpy))


class Lines(NamedTuple):
    """Lines of elements: their starts, and the distance between their elements."""

    starts: np.ndarray
    step: int


@lru_cache(64)
def _starts(sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    starts = np.zeros(1, np.int64)
    for n, stride in zip(sizes, strides):
        starts = np.add.outer(starts, np.arange(n, dtype=np.int64) * stride).reshape(-1)
    return starts


def lines_of(x: Tensor, dim: int, like: Tensor) -> Lines:
    """Return the lines of x along a dimension, in the order of those of `like` in memory."""
    rest = sorted((d for d in range(len(x.shape)) if d != dim), key=lambda d: -like._strides[d])
    return Lines(_starts(tuple(x.shape[d] for d in rest), tuple(x._strides[d] for d in rest)), x._strides[dim])


def _parts(blocks: int) -> int:
    return min(blocks, 2 * get_num_threads())


def _real_view(t: Tensor) -> Tensor:
    """Return the memory of a tensor as real numbers, from its first element on."""
    if not t.dtype.is_complex:
        return t
    real = t.dtype.to_real()
    return new_tensor(t._storage, make_size((1,)), (1,), 2 * t._offset, real, t.device, True)


def _cut(n: int) -> int | None:
    """Return a factor of n near its square root, or None."""
    factor = 1
    for radix in _radices(n) or ():
        if factor * factor >= n:
            break
        factor *= radix
    return factor if 1 < factor < n else None


def transform_along(out: Tensor, x: Tensor, dim: int, scale: float, forward: bool) -> None:
    """Compute out = the complex transform of x along one dimension; `out` may be x."""
    _transform(_real_view(out), _real_view(x), lines_of(out, dim, x), lines_of(x, dim, x), x.shape[dim], scale, forward)


def _transform(out: Tensor, x: Tensor, to: Lines, source: Lines, n: int, scale: float, forward: bool) -> None:
    count = len(source.starts)
    if _radices(n) is None:
        _convolve(out, x, to, source, n, scale, forward)
        return
    first = _cut(n) if n > _LONG or (count < LANES and n >= _LONG_ALONE) else None
    if first is None:
        _run(out, x, to, source, n, scale, forward, None)
        return
    rest = n // first
    # n = first * rest: `rest` transforms of `first` elements each, then `first` of `rest`, over a copy in between
    between = empty(make_size((2 * count * n,)), x.dtype)
    whole = np.arange(count, dtype=np.int64)[:, None] * n
    inner = np.arange(rest, dtype=np.int64)
    short = Lines((source.starts[:, None] + inner * source.step).reshape(-1), rest * source.step)
    stored = Lines((whole + inner * first).reshape(-1), 1)
    _run(between, x, stored, short, first, 1.0, forward, _turns(rest, first, x.dtype), rest)
    outer = np.arange(first, dtype=np.int64)
    read = Lines((whole + outer).reshape(-1), first)
    ends = Lines((to.starts[:, None] + outer * to.step).reshape(-1), first * to.step)
    _transform(out, between, ends, read, rest, scale, forward)


def _convolve(out: Tensor, x: Tensor, to: Lines, source: Lines, n: int, scale: float, forward: bool) -> None:
    chirp, padded, spectrum = _chirp(n, x.dtype)
    count = len(source.starts)
    rows = empty(make_size((2 * count * padded,)), x.dtype)
    places = Lines(np.arange(count, dtype=np.int64) * padded, 1)
    chirp_lines(rows, x, source.starts, chirp, count, n, padded, source.step, inverse=not forward)
    _transform(rows, rows, places, places, padded, 1.0, True)
    multiply_lines(rows, spectrum, count, padded)
    _transform(rows, rows, places, places, padded, 1.0, False)
    unchirp_lines(out, rows, to.starts, chirp, count, n, padded, to.step, float(scale), inverse=not forward)


def _run(
    out: Tensor, x: Tensor, to: Lines, source: Lines, n: int, scale: float, forward: bool, turns: np.ndarray | None,
    period: int = 1,
) -> None:  # fmt: skip
    tables, count = _tables(n, x.dtype), len(source.starts)
    parts = _parts((count + LANES - 1) // LANES)
    work = empty(make_size((parts * 4 * n * LANES,)), x.dtype)
    transform_lines(
        out, x, to.starts, source.starts, tables.factors, tables.radices, tables.passes, turns, work, count, n, to.step,
        source.step, float(scale), parts, period, inverse=not forward, turned=turns is not None,
    )  # fmt: skip


def is_real_supported(n: int) -> bool:
    """Return whether real lines of n elements are short enough to be transformed in pairs."""
    return n <= _LONG and _radices(n) is not None and is_supported([n])


def real_along(out: Tensor, x: Tensor, dim: int, n: int, scale: float, to_real: bool) -> None:
    """Transform real lines of n elements to their coefficients (all, or half of them: as many as fit `out`), or back."""
    tables, d = _tables(n, x.dtype.to_real()), x.dtype.to_real()
    to, source = lines_of(out, dim, x), lines_of(x, dim, x)
    count = len(source.starts)
    parts = _parts((count + 2 * LANES - 1) // (2 * LANES))
    work = empty(make_size((parts * 4 * (n + 1) * LANES,)), d)
    arguments = (
        _real_view(out), _real_view(x), to.starts, source.starts, tables.factors, tables.radices, tables.passes, work, count,
        n, to.step, source.step, float(scale), parts,
    )  # fmt: skip
    if to_real:
        transform_half_lines(*arguments)
    else:
        transform_real_lines(*arguments, full=out.shape[dim] == n > 1)
