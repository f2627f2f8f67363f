"""LAPACK's routines for real matrices, out of the library that NumPy computes with.

NumPy hands out some of them, and those in double precision only. Here each is called for one matrix in the precision it has.
A matrix is a C-ordered array of its columns: `columns[j, i]` is its element (i, j). Where NumPy's library has other names or is
not to be found, `available` says no and callers use what NumPy hands out.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError, _umath_linalg

from ...core.caching import remember
from . import threads

_SMALL = 128  # matrices up to this size are not worth a second thread
_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
# Names of a routine, by who built the library, and the integers it takes.
_NAMES: tuple[tuple[str, type], ...] = (
    ("scipy_{}_64_", ctypes.c_int64),
    ("{}_64_", ctypes.c_int64),
    ("{}_", ctypes.c_int32),
)


@lru_cache
def _library() -> tuple[Any, str, type] | None:
    try:
        library = ctypes.CDLL(_umath_linalg.__file__)
    except OSError:
        return None
    for pattern, integer in _NAMES:
        if hasattr(library, pattern.format("sgesdd")):
            return library, pattern, integer
    return None


@lru_cache
def _set_threads() -> Any:
    found = _library()
    for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads"):
        if found is not None and hasattr(found[0], name):
            return getattr(found[0], name)
    return None


def use_threads(small: bool) -> None:
    """Let NumPy's library use one thread for what is small, else as many as were asked for: its threads wait for each other
    by spinning, which costs time slices where other programs crowd the cores."""
    limit = _set_threads()
    if limit is not None:
        limit(ctypes.c_int(1 if small else threads.get_num_threads()))


def available(d: np.dtype) -> bool:
    return d in _LETTERS and _library() is not None


@lru_cache
def _routine(name: str, d: np.dtype) -> Any:
    found = _library()
    assert found is not None
    library, pattern, _ = found
    function = getattr(library, pattern.format(_LETTERS[d] + name))
    function.restype = None
    return function


@lru_cache
def _integer() -> Any:
    found = _library()
    assert found is not None
    return found[2]


def integers(*shape: int) -> np.ndarray:
    """Zeros of the type that the routines' integers have."""
    return np.zeros(shape, np.int64 if _integer() is ctypes.c_int64 else np.int32)


def _call(name: str, d: np.dtype, *arguments: Any) -> int:
    """Call a routine with letters, numbers and arrays; returns its `info`."""
    integer = _integer()
    passed: list[Any] = []
    for x in arguments:
        if isinstance(x, np.ndarray):
            passed.append(ctypes.c_void_p(x.__array_interface__["data"][0]))  # quicker than x.ctypes
        elif isinstance(x, str):
            passed.append(ctypes.c_char_p(x.encode()))
        else:
            passed.append(ctypes.byref(integer(x)))
    info = integer()
    lengths = [ctypes.c_size_t(1) for x in arguments if isinstance(x, str)]  # Fortran's hidden arguments
    use_threads(all(x.size <= _SMALL * _SMALL for x in arguments if isinstance(x, np.ndarray)))
    _routine(name, d)(*passed, ctypes.byref(info), *lengths)
    if info.value < 0:
        raise ValueError(f"LAPACK's {name}: argument {-info.value} is wrong")
    return info.value


_sizes: dict[tuple, tuple[int, ...]] = {}  # of workspaces, by routine and its arguments other than arrays


def _workspace(name: str, d: np.dtype, *arguments: Any, whole: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """The memory a routine asks for when called with workspaces of size -1: of real numbers, and of integers if it wants to
    be asked with an array of one (`whole`)."""
    key = (name, d, *[None if isinstance(x, np.ndarray) else x for x in arguments])
    found = _sizes.get(key)
    if found is None:
        size = np.zeros(1, d)
        _call(name, d, *arguments, size, -1, *(() if whole is None else (whole, -1)))
        found = remember(_sizes, key, (int(size[0]), 0 if whole is None else int(whole[0])))
    memory = np.empty(found[0], d)
    return (memory,) if whole is None else (memory, integers(found[1]))


def lu(columns: np.ndarray, pivots: np.ndarray) -> int:
    """Factor an m x n matrix in place; pivots are counted from 1."""
    n, m = columns.shape
    return _call("getrf", columns.dtype, m, n, columns, max(m, 1), pivots)


def lu_solve(columns: np.ndarray, pivots: np.ndarray, right: np.ndarray) -> None:
    """Solve in place for the columns `right`, with the factors `lu` left."""
    count, n = right.shape
    _call("getrs", columns.dtype, "N", n, count, columns, n, pivots, right, n)


def lu_inverse(columns: np.ndarray, pivots: np.ndarray) -> int:
    """The inverse in place of the factors `lu` left."""
    n = len(columns)
    (work,) = _workspace("getri", columns.dtype, n, columns, n, pivots)
    return _call("getri", columns.dtype, n, columns, n, pivots, work, work.size)


def solve_triangular(columns: np.ndarray, right: np.ndarray, upper: bool, unit: bool) -> int:
    """Solve in place for the columns `right`; a zero on the diagonal is reported before anything is changed."""
    count, n = right.shape
    letters = "U" if upper else "L", "N", "U" if unit else "N"
    return _call("trtrs", columns.dtype, *letters, n, count, columns, n, right, n)


def cholesky(columns: np.ndarray) -> int:
    """The lower factor in place; the upper triangle is left as it is."""
    return _call("potrf", columns.dtype, "L", len(columns), columns, len(columns))


def reflectors(columns: np.ndarray) -> np.ndarray:
    """R and the Householder vectors in place; returns their factors tau."""
    n, m = columns.shape
    tau = np.empty(min(m, n), columns.dtype)
    (work,) = _workspace("geqrf", columns.dtype, m, n, columns, m, tau)
    _call("geqrf", columns.dtype, m, n, columns, m, tau, work, work.size)
    return tau


def orthogonal(columns: np.ndarray, tau: np.ndarray) -> None:
    """The product of Householder reflections in place of their vectors."""
    n, m = columns.shape
    (work,) = _workspace("orgqr", columns.dtype, m, n, len(tau), columns, m, tau)
    _call("orgqr", columns.dtype, m, n, len(tau), columns, m, tau, work, work.size)


def svd(columns: np.ndarray, full: bool, vectors: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of U, singular values and columns of V^T; the matrix is destroyed."""
    n, m = columns.shape
    k, d = min(m, n), columns.dtype
    job = "N" if not vectors else "A" if full else "S"
    wide, tall = (m, n) if full else (k, k)
    u, vh = (np.empty((wide, m), d), np.empty((n, tall), d)) if vectors else (np.empty((1, 1), d),) * 2
    s, whole = np.empty(k, d), integers(8 * k)
    shape = job, m, n, columns, m, s, u, u.shape[1], vh, vh.shape[1]
    size = np.zeros(1, d)
    _call("gesdd", d, *shape, size, -1, whole)
    work = np.empty(int(size[0]), d)
    if _call("gesdd", d, *shape, work, work.size, whole):
        raise LinAlgError("SVD did not converge")
    return u, s, vh


def eigh(columns: np.ndarray, lower: bool, vectors: bool) -> np.ndarray:
    """Eigenvalues of a symmetric matrix, of which one triangle is read; the columns become eigenvectors."""
    n, d = len(columns), columns.dtype
    values = np.empty(n, d)
    shape = "V" if vectors else "N", "L" if lower else "U", n, columns, n, values
    work, whole = _workspace("syevd", d, *shape, whole=integers(1))
    if _call("syevd", d, *shape, work, work.size, whole, whole.size):
        raise LinAlgError("Eigenvalues did not converge")
    return values


def full_rank_least_squares(columns: np.ndarray, right: np.ndarray) -> int:
    """`least_squares` for a matrix that has full rank. Returns the row of R that shows it has not, else 0."""
    n, m = columns.shape
    d = columns.dtype
    shape = "N", m, n, len(right), columns, m, right, right.shape[1]
    (work,) = _workspace("gels", d, *shape)
    return _call("gels", d, *shape, work, work.size)


def least_squares(columns: np.ndarray, right: np.ndarray, rcond: float) -> int:
    """The shortest least-squares solutions in place of the columns `right` (as long as the longer side of the matrix); the
    matrix is destroyed. Returns its rank."""
    n, m = columns.shape
    d, pivots, rank = columns.dtype, integers(n), integers(1)
    shape = m, n, len(right), columns, m, right, right.shape[1], pivots, np.full(1, rcond, d), rank
    (work,) = _workspace("gelsy", d, *shape)
    _call("gelsy", d, *shape, work, work.size)
    return int(rank[0])
