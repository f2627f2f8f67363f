"""LAPACK's routines for real matrices, called in the library that NumPy uses.

NumPy exposes some of them, in double precision only. Here each is called for a batch of matrices in their own precision, from a native loop.
A batch is a C-ordered array of columns: `columns[k, j, i]` is the element (i, j) of matrix k. If NumPy's library uses other names or is not
found, `available` returns False and callers use NumPy's functions.
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError, _umath_linalg

from ...core.aliases import AnyFunction, Values
from ...core.caching import remember
from ...kernels.llvm_text import Function
from . import jit, threads

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


_allowed = 0  # how many threads NumPy's library was told to use


def use_threads(small: bool) -> None:
    """Set the threads of NumPy's library: one for small problems, else as many as configured. Its threads wait for each other by
    spinning, which costs time slices where other programs crowd the cores."""
    global _allowed
    wanted = 1 if small else threads.get_num_threads()
    if wanted == _allowed:
        return
    limit = _set_threads()
    if limit is not None:
        limit(ctypes.c_int(wanted))
    _allowed = wanted


def available(d: np.dtype) -> bool:
    return d in _LETTERS and _library() is not None


@lru_cache
def _integer() -> Any:
    found = _library()
    assert found is not None
    return found[2]


def integers(*shape: int) -> np.ndarray:
    """Return zeros of the routines' integer type."""
    return np.zeros(shape, np.int64 if _integer() is ctypes.c_int64 else np.int32)


# -- calls -------------------------------------------------------------------------------------------------------------


@lru_cache
def _routine(name: str, d: np.dtype) -> Any:
    found = _library()
    assert found is not None
    library, pattern, _ = found
    function = getattr(library, pattern.format(_LETTERS[d] + name))
    function.restype = None
    return function


@lru_cache
def _address(name: str, d: np.dtype) -> int:
    return ctypes.cast(_routine(name, d), ctypes.c_void_p).value or 0


@lru_cache(1024)
def _boxed(value: str | int) -> tuple[int, Any]:
    """Return the address of a letter or number in memory, as Fortran expects it, and the object that holds it."""
    box = ctypes.c_char(value.encode()) if isinstance(value, str) else _integer()(value)
    return ctypes.addressof(box), box


@lru_cache
def _loop(count: int, letters: int) -> AnyFunction | None:
    """Return loop(routine, places, steps, n): n calls of a routine with `count` pointers, moved by their steps after each, and Fortran's
    hidden lengths of its letters. None if nothing can be compiled."""
    if not jit.available():
        return None
    f = Function("define void @loop(ptr %routine, ptr %places, ptr %steps, i64 %count)")
    with f.loop("%count") as i:
        far = [f.add(f.item("%places", k), f.mul(i, f.item("%steps", k))) for k in range(count)]
        f.call("void", "%routine", *(f"ptr {f.new(f'inttoptr i64 {x} to ptr')}" for x in far), *["i64 1"] * letters)
    return jit.support_function(f, signature="pppl", brief=False)


class _Call:
    """Call of a routine for a number of matrices with given letters and numbers: everything but the addresses of its arrays."""

    def __init__(self, name: str, d: np.dtype, count: int, pattern: Values) -> None:
        boxes = [None if x is None else _boxed(x) for x in (*pattern, None)]
        self.boxes = boxes  # keeps them alive
        self.places = [0 if box is None else box[0] for box in boxes]
        self.arrays = [i for i, box in enumerate(boxes) if box is None]
        self.letters = sum(isinstance(x, str) for x in pattern)
        self.routine, self.address = _routine(name, d), _address(name, d)
        self.loop = _loop(len(boxes), self.letters)
        self.pack = struct.Struct(f"{len(boxes)}q").pack
        self.steps: list[int] = []
        self.packed_steps = b""
        self.small = True

    def learn(self, arrays: tuple[np.ndarray, ...], count: int) -> None:
        """Take strides and sizes from the arrays' shapes, which are the same in every call."""
        self.steps = [0] * len(self.places)
        for i, x in zip(self.arrays, arrays):
            each = len(x) == count
            self.steps[i] = x.strides[0] if each else 0
            self.small &= (x.size // count if each else x.size) <= _SMALL * _SMALL
        self.packed_steps = self.pack(*self.steps)

    def run(self, arrays: tuple[np.ndarray, ...], count: int) -> None:
        places = self.places.copy()
        for i, x in zip(self.arrays, arrays):
            places[i] = _addressof(_first_byte(x))
        use_threads(self.small)
        if self.loop is not None:
            self.loop(self.address, self.pack(*places), self.packed_steps, count)
            return
        lengths = [ctypes.c_size_t(1)] * self.letters
        for i in range(count):
            self.routine(*(ctypes.c_void_p(p + i * s) for p, s in zip(places, self.steps)), *lengths)


_addressof: Any = ctypes.addressof
_first_byte: Any = ctypes.c_char.from_buffer
_calls: dict[tuple[Any, ...], _Call] = {}


def _call(name: str, d: np.dtype, count: int, pattern: Values, *arrays: np.ndarray) -> np.ndarray:
    """Call a routine for `count` matrices; return the `info` of each. `pattern` lists its letters and numbers, with None in the places of
    arrays. The first dimension of an array counts the matrices, or is 1 for memory that all of them use."""
    key = (name, d, count, pattern)
    call = _calls.get(key)
    info = integers(count)
    arrays = (*arrays, info)
    if call is None:
        call = remember(_calls, key, _Call(name, d, count, pattern))
        call.learn(arrays, count)
    call.run(arrays, count)
    if (info[0] if count == 1 else info.any()) and info.min() < 0:
        raise ValueError(f"LAPACK's {name}: argument {-info.min()} is wrong")
    return info


_sizes: dict[tuple[Any, ...], tuple[int, int]] = {}  # of workspaces, by routine and its letters and numbers


def _workspace(
    name: str, d: np.dtype, pattern: Values, *arrays: np.ndarray, after: Values = (), whole: bool = False
) -> tuple[np.ndarray, ...]:
    """Return the memory that a routine asks for when called with a workspace of size -1, and the arrays it takes `after` that; with `whole`
    also the memory for integers that it asks for in the same way."""
    key = (name, d, pattern)
    found = _sizes.get(key)
    if found is None:
        size, more = np.zeros((1, 1), d), integers(1, 1)
        rest = (None, -1, *(None for _ in after), *((None, -1) if whole else ()))
        given = [x[:1] for x in arrays]
        _call(name, d, 1, (*pattern, *rest), *given, size, *after, *((more,) if whole else ()))
        found = remember(_sizes, key, (int(size[0, 0]), int(more[0, 0])))
    memory = np.empty((1, found[0]), d)
    return (memory, integers(1, found[1])) if whole else (memory,)


# -- routines ----------------------------------------------------------------------------------------------------------


def lu(columns: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    """Factor m x n matrices in place; pivots are counted from 1."""
    count, n, m = columns.shape
    return _call("getrf", columns.dtype, count, (m, n, None, max(m, 1), None), columns, pivots)


def lu_solve(columns: np.ndarray, pivots: np.ndarray, right: np.ndarray) -> None:
    """Solve in place for the columns `right`, with the factors of `lu`."""
    count, sides, n = right.shape
    _call("getrs", columns.dtype, count, ("N", n, sides, None, n, None, None, n), columns, pivots, right)


def lu_inverse(columns: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    """Compute the inverses in place of the factors of `lu`."""
    count, n, _ = columns.shape
    pattern = n, None, n, None
    (work,) = _workspace("getri", columns.dtype, pattern, columns, pivots)
    return _call("getri", columns.dtype, count, (*pattern, None, work.size), columns, pivots, work)


def solve_triangular(columns: np.ndarray, right: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """Solve in place for the columns `right`; a zero on the diagonal is reported before anything is changed."""
    count, sides, n = right.shape
    letters = "U" if upper else "L", "N", "U" if unit else "N"
    return _call("trtrs", columns.dtype, count, (*letters, n, sides, None, n, None, n), columns, right)


def cholesky(columns: np.ndarray) -> np.ndarray:
    """Compute the lower Cholesky factors in place; the upper triangle is not touched."""
    count, n, _ = columns.shape
    return _call("potrf", columns.dtype, count, ("L", n, None, n), columns)


def reflectors(columns: np.ndarray) -> np.ndarray:
    """Compute R and the Householder vectors in place; return their factors tau."""
    count, n, m = columns.shape
    tau = np.empty((count, min(m, n)), columns.dtype)
    pattern = m, n, None, m, None
    (work,) = _workspace("geqrf", columns.dtype, pattern, columns, tau)
    _call("geqrf", columns.dtype, count, (*pattern, None, work.size), columns, tau, work)
    return tau


def orthogonal(columns: np.ndarray, tau: np.ndarray) -> None:
    """Compute the products of Householder reflections in place of their vectors."""
    count, n, m = columns.shape
    pattern = m, n, tau.shape[1], None, m, None
    (work,) = _workspace("orgqr", columns.dtype, pattern, columns, tau)
    _call("orgqr", columns.dtype, count, (*pattern, None, work.size), columns, tau, work)


def svd(columns: np.ndarray, full: bool, vectors: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns of U, singular values and columns of V^T; the matrices are destroyed."""
    count, n, m = columns.shape
    k, d = min(m, n), columns.dtype
    job = "N" if not vectors else "A" if full else "S"
    wide, tall = (m, n) if full else (k, k)
    nothing = np.empty((1, 1, 1), d)
    u, vh = (np.empty((count, wide, m), d), np.empty((count, n, tall), d)) if vectors else (nothing, nothing)
    s, whole = np.empty((count, k), d), integers(1, 8 * k)
    pattern = job, m, n, None, m, None, None, u.shape[2], None, vh.shape[2]
    arrays = columns, s, u, vh
    (work,) = _workspace("gesdd", d, pattern, *arrays, after=(whole,))
    if _call("gesdd", d, count, (*pattern, None, work.size, None), *arrays, work, whole).any():
        raise LinAlgError("SVD did not converge")
    return u, s, vh


def eigh(columns: np.ndarray, lower: bool, vectors: bool) -> np.ndarray:
    """Return the eigenvalues of symmetric matrices, of which one triangle is read; the columns become eigenvectors."""
    count, n, _ = columns.shape
    d, values = columns.dtype, np.empty((count, n), columns.dtype)
    pattern = "V" if vectors else "N", "L" if lower else "U", n, None, n, None
    work, whole = _workspace("syevd", d, pattern, columns, values, whole=True)
    sizes = None, work.size, None, whole.size
    if _call("syevd", d, count, (*pattern, *sizes), columns, values, work, whole).any():
        raise LinAlgError("Eigenvalues did not converge")
    return values


def full_rank_least_squares(columns: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compute `least_squares` for matrices of full rank. Return the rows of R that show a lower rank, else 0."""
    count, n, m = columns.shape
    pattern = "N", m, n, right.shape[1], None, m, None, right.shape[2]
    (work,) = _workspace("gels", columns.dtype, pattern, columns, right)
    return _call("gels", columns.dtype, count, (*pattern, None, work.size), columns, right, work)


def least_squares(columns: np.ndarray, right: np.ndarray, rcond: float) -> np.ndarray:
    """Compute the shortest least-squares solutions in place of the columns `right` (as long as the longer side of the matrix); the matrices
    are destroyed. Return their ranks."""
    count, n, m = columns.shape
    d, pivots, ranks = columns.dtype, integers(count, n), integers(count)
    limit = np.full((1, 1), rcond, d)
    pattern = m, n, right.shape[1], None, m, None, right.shape[2], None, None, None
    arrays = columns, right, pivots, limit, ranks
    (work,) = _workspace("gelsy", d, pattern, *arrays)
    _call("gelsy", d, count, (*pattern, None, work.size), *arrays, work)
    return ranks
