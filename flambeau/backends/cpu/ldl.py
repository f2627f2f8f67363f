"""Symmetric indefinite matrices: A = L D L^T (or L D L^H) with Bunch-Kaufman pivoting, stored as LAPACK's sytrf does.

D has blocks of one or two rows. A positive pivot says that its row was swapped with that one (counted from 1); two equal
negative pivots mark a block of two rows, the second of which was swapped."""

from __future__ import annotations

import math

import numpy as np

from .lapack import pivot_size

_ALPHA = (1 + math.sqrt(17)) / 8  # balances the growth of elements in one- and two-row steps


def factor(a: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Factor one matrix, given by its lower triangle: return L and D in one matrix, pivots, and the place of a zero pivot."""
    work = np.tril(a)
    n = len(work)
    pivots = np.zeros(n, np.int32)
    info = k = 0
    while k < n:
        other, step = _choose(work, k)
        if other is None:
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        last = k + step - 1
        if other != last:
            _swap(work, k, last, other, hermitian)
        elif hermitian:
            work[last, last] = work[last, last].real
        _eliminate(work, k, step, hermitian)
        pivots[k : k + step] = other + 1 if step == 1 else -(other + 1)
        k += step
    return work, pivots, info


def _choose(work: np.ndarray, k: int) -> tuple[int | None, int]:
    """Return the row to swap in and how many rows the step takes; None if the whole column is zero."""
    here = float(pivot_size(work[k, k]))
    below = pivot_size(work[k + 1 :, k])
    largest = float(below.max(initial=0))
    if max(here, largest) == 0 or math.isnan(here):
        return None, 1
    if here >= _ALPHA * largest:
        return k, 1
    i = k + 1 + int(below.argmax())
    row = max(float(pivot_size(work[i, k:i]).max(initial=0)), float(pivot_size(work[i + 1 :, i]).max(initial=0)))
    if here >= _ALPHA * largest * (largest / row):
        return k, 1
    return (i, 1) if float(pivot_size(work[i, i])) >= _ALPHA * row else (i, 2)


def _swap(work: np.ndarray, k: int, a: int, b: int, hermitian: bool) -> None:
    """Exchange rows and columns a < b of the remaining matrix, in the lower triangle only."""
    turned = np.conj if hermitian else np.array
    work[b + 1 :, [a, b]] = work[b + 1 :, [b, a]]
    between = work[a + 1 : b, a].copy()
    work[a + 1 : b, a] = turned(work[b, a + 1 : b])
    work[b, a + 1 : b] = turned(between)
    if hermitian:
        work[b, a] = np.conj(work[b, a])
    work[a, a], work[b, b] = work[b, b], work[a, a]
    if a > k:
        work[a, k], work[b, k] = work[b, k], work[a, k]


def _eliminate(work: np.ndarray, k: int, step: int, hermitian: bool) -> None:
    rest = slice(k + step, None)
    columns = work[rest, k : k + step].copy()
    if not columns.size:
        return
    scaled = columns @ np.linalg.inv(_block(work, k, step, hermitian))
    product = columns @ (scaled.conj() if hermitian else scaled).T
    left = work[rest, rest]
    left -= np.tril(product)
    work[rest, k : k + step] = scaled


def _block(work: np.ndarray, k: int, step: int, hermitian: bool) -> np.ndarray:
    """Return the block of D that begins in row k."""
    d = work[k : k + step, k : k + step].copy()
    if step == 2:
        d[0, 1] = np.conj(d[1, 0]) if hermitian else d[1, 0]
    return d


def solve(packed: np.ndarray, pivots: np.ndarray, b: np.ndarray, hermitian: bool) -> np.ndarray:
    """Return x with a @ x = b for one matrix and its right-hand sides."""
    x = np.array(b)
    steps = _steps(pivots)
    for k, step in steps:
        _exchange(x, k + step - 1, abs(int(pivots[k])) - 1)
        rows = slice(k, k + step)
        x[k + step :] -= packed[k + step :, rows] @ x[rows]
        x[rows] = np.linalg.inv(_block(packed, k, step, hermitian)) @ x[rows]
    for k, step in reversed(steps):
        rows = slice(k, k + step)
        lower = packed[k + step :, rows]
        x[rows] -= (lower.conj() if hermitian else lower).T @ x[k + step :]
        _exchange(x, k + step - 1, abs(int(pivots[k])) - 1)
    return x


def _steps(pivots: np.ndarray) -> list[tuple[int, int]]:
    found, k = [], 0
    while k < len(pivots):
        step = 1 if pivots[k] > 0 else 2
        found.append((k, step))
        k += step
    return found


def _exchange(x: np.ndarray, a: int, b: int) -> None:
    if a != b:
        x[[a, b]] = x[[b, a]]
