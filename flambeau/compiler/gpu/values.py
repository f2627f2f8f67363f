"""Values on a GPU that are kept and compared: those of a step that ran eagerly, and of the graph that replaces it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...core.backend import backend_of
from ...core.dtype import float32
from ...core.layout import has_internal_overlap
from ...core.size import Size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, new_tensor
from ...graph.replay import modes_off
from ...ops.creation.construct import from_numpy
from ...ops.creation.ranges import arange
from ...ops.shape.joining import cat
from ..record.comparison import WEIGHTS, kind_of, numbers
from ..record.recording import extent

_NOISE = 1e-2  # by how much the changes of one step may differ: sums of atomic additions have no fixed order
_OF_SWING = 4.0  # times the difference that rounding alone makes
# The range of relative perturbations, by bytes of a number.
_RELATIVE = {1: 2.0**-2, 2: 2.0**-7, 4: 2.0**-15, 8: 2.0**-40}
_GOLDEN = 0.6180339887498949
_FEW = 1 << 12
_PIECE = 1 << 22  # numbers that are compared at once
_MUCH = 1 << 28  # bytes of a result of which no copy is kept
_ON_HOST = 1 << 18  # bytes that are compared on the host: kernels for that would have to be compiled first


def sums(t: Tensor) -> Tensor | Bytes:
    """Return a summary of a tensor to compare others with: its bytes, or for very many floating-point numbers a weighted sum of each
    32, on their device."""
    if _is_brief(t):
        return Bytes(t)
    with modes_off():
        t = t.detach()
        if t.numel() < _FEW or not t.dtype.is_floating_point:
            return t.clone()
        wide, width = t.dtype if t.dtype.itemsize >= 4 else float32, len(WEIGHTS)
        weights = from_numpy(WEIGHTS).to(wide).to(t.device)
        x = t.reshape(-1)
        whole = len(x) // width * width
        pieces = (x[at : min(at + _PIECE, whole)].to(wide) for at in range(0, whole, _PIECE))  # one after the other
        return cat([*((piece.reshape(-1, width) * weights).sum(1) for piece in pieces), x[whole:].to(wide)])


def summary(t: Tensor) -> Tensor | Bytes:
    """Return a result without its history, or the `sums` of a very large one."""
    return t.detach() if extent(t) <= _MUCH else sums(t)


class Bytes:
    """The bytes between a tensor's first and last element, kept on the host: the device may have no memory to spare."""

    def __init__(self, t: Tensor):
        self.shape, self._strides, self._contig = t.shape, t._strides, t._contig
        self.dtype, self.device = t.dtype, t.device
        self.size = extent(t)
        self.memory = UntypedStorage(self.size)
        if self.size:
            backend_of(t.device).read(self.memory.ptr, t.data_ptr(), self.size, t.device)

    def raw(self) -> bytes:
        return ctypes.string_at(self.memory.ptr, self.size) if self.size else b""

    def tensor(self, with_values: bool = True) -> Tensor:
        """Return a tensor with these bytes on the original device, or, without values, one whose memory was freed."""
        memory = self._there(0, self.size) if with_values else UntypedStorage(0, self.device)
        if not with_values:
            memory.version = -1
        return new_tensor(memory, self.shape, self._strides, 0, self.dtype, self.device, self._contig)

    def piece(self, at: int, count: int) -> Tensor:
        """Return `count` elements from `at` on, in the order of memory."""
        width = self.dtype.itemsize
        memory = self._there(at * width, count * width)
        return new_tensor(memory, Size((count,)), (1,), 0, self.dtype, self.device, True)

    def _there(self, start: int, size: int) -> UntypedStorage:
        memory = UntypedStorage(size, self.device)
        if size:
            backend_of(self.device).write(memory.ptr, self.memory.ptr + start, size, self.device)
        return memory


class Copy(Bytes):
    """The bytes of a tensor, which `put_back` restores."""

    def __init__(self, t: Tensor):
        super().__init__(t)
        self.of = t

    def put_back(self) -> None:
        """Write the bytes back into the tensor without raising its version."""
        if self.size:
            backend_of(self.of.device).write(self.of.data_ptr(), self.memory.ptr, self.size, self.of.device)


def _is_brief(t: Tensor | Bytes) -> bool:
    """Return whether a tensor is compared on the host: it is small and dense in memory."""
    if isinstance(t, Bytes):
        return True
    size = extent(t)
    return size <= _ON_HOST and size == t.numel() * t.dtype.itemsize


def _distance_on_host(a: Bytes, b: Bytes, old: Bytes | None) -> Distance | None:
    if a.raw() == b.raw():
        return None
    kind = kind_of(a.dtype)
    if kind is None:
        return _FAR
    x, y = (numbers(t.memory.ptr, t.size, kind).astype(np.float64) for t in (a, b))
    if not all(np.array_equal(test(x), test(y)) for test in (np.isnan, np.isposinf, np.isneginf)):
        return _FAR
    start = 0.0 if old is None else numbers(old.memory.ptr, old.size, kind).astype(np.float64)
    with np.errstate(invalid="ignore"):
        far, change, size = (float(np.abs(d[np.isfinite(d)]).sum()) for d in (x - y, y - start, y))
    return Distance(far, change, size, _precision(a.dtype))


def _precision(d: Any) -> float:
    return 1e-6 if d.itemsize >= 4 else 1e-3


class Distance(NamedTuple):
    """Distance between two runs of one step in one tensor: sums of magnitudes."""

    apart: float
    change: float  # from before the step
    size: float
    precision: float

    def is_noise(self, swing: float = 0.0) -> bool:
        """Return whether rounding explains the difference. `swing` is that of two runs from states which differ by rounding alone."""
        return self.apart <= _NOISE * self.change + self.precision * self.size + _OF_SWING * swing

    def __str__(self) -> str:
        return f"by {self.apart:.3g} in all, where a step changes it by {self.change:.3g}"


_FAR = Distance(math.inf, 0.0, 0.0, 0.0)


def alike(a: Any, b: Any, old: Any = None) -> bool:
    """Return whether two tensors are equal, or as near as two runs of one step that started from `old` (or from zero) may be."""
    found = distance(a, b, old)
    return found is None or found.is_noise()


def distance(a: Any, b: Any, old: Any = None) -> Distance | None:
    """Measure how far two tensors, or `Bytes`, are apart; None if they are equal. `old` is the value that both runs started from. Large
    tensors are compared piece by piece."""
    if b is None or a.shape != b.shape or a.dtype is not b.dtype:
        return _FAR
    if a._strides == b._strides and _is_brief(a) and _is_brief(b) and (old is None or isinstance(old, Bytes)):
        return _distance_on_host(_on_host(a), _on_host(b), old)
    if not a.numel() or all(bool((x == y).all()) for x, y in _pieces(a, b)):
        return None
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return _FAR
    wide = a.dtype if a.dtype.itemsize >= 4 else float32
    far = change = size = 0.0
    for x, y in _pieces(a, b) if old is None else [(a.detach(), b.detach())]:
        x, y = x.to(wide), y.to(wide)
        if not bool(((x == y) | (x.isfinite() & y.isfinite()) | (x.isnan() & y.isnan())).all()):
            return _FAR
        far += _total(x - y)
        size += _total(y)
        change += _total(y if old is None else y - old.detach().to(wide))
    return Distance(far, change, size, _precision(a.dtype))


def _on_host(t: Tensor | Bytes) -> Bytes:
    return t if isinstance(t, Bytes) else Bytes(t)


def _total(t: Any) -> float:
    """Return the sum of magnitudes, with infinities and nan counted as zero."""
    return float(t.abs().nan_to_num(0.0, 0.0, 0.0).sum())


def _pieces(a: Tensor, b: Tensor | Bytes) -> Iterator[tuple[Any, Any]]:
    """Yield both tensors, or pieces of them if they are large and dense in the same order."""
    n = a.numel()
    if n <= _PIECE or a._strides != b._strides or extent(a) != n * a.dtype.itemsize:
        yield a.detach(), b.tensor() if isinstance(b, Bytes) else b.detach()
        return
    for at in range(0, n, _PIECE):
        count = min(_PIECE, n - at)
        yield _part(a, at, count), b.piece(at, count) if isinstance(b, Bytes) else _part(b, at, count)


def _part(t: Tensor, at: int, count: int) -> Tensor:
    return new_tensor(t._storage, Size((count,)), (1,), t._offset + at, t.dtype, t.device, True)


class Outcome(NamedTuple):
    """Results of one run of a step: states, changed arguments, returned tensors, and new gradients by the id of their leaf."""

    states: list[Any]
    arguments: list[Any]
    results: list[Any]
    shapes: list[Size]  # of the results
    gradients: dict[int, Any]

    def distances(self, other: Outcome, before: list[Any]) -> Iterator[tuple[str, Any, Distance]]:
        """Yield each difference from another run as (kind, index, distance). `before` has the states that both runs started from."""
        for i, (a, b) in enumerate(zip(self.states, other.states)):
            yield from _compare_values("state", i, a, b, before[i])
        for i, (a, b) in enumerate(zip(self.arguments, other.arguments)):
            yield from _compare_values("argument", i, a, b)
        for i, (a, b) in enumerate(zip(self.results, other.results)):
            yield from _compare_values("result", i, a, b)
        for i, a in self.gradients.items():
            yield from _compare_values("gradient", i, a, other.gradients.get(i))


def _compare_values(what: str, which: Any, a: Any, b: Any, old: Any = None) -> Iterator[tuple[str, Any, Distance]]:
    if a is None and b is None:
        return
    found = _FAR if a is None else distance(a, b, old)
    if found is not None:
        yield what, which, found


def perturb(t: Tensor) -> None:
    """Change floating-point values in place by at most a rounding error, by a different share each."""
    if not t.dtype.is_floating_point or not t.numel() or has_internal_overlap(t.shape, t._strides):
        return
    with modes_off():
        wide = t.dtype if t.dtype.itemsize >= 4 else float32
        shares = arange(t.numel(), dtype=wide, device=t.device).mul_(_GOLDEN).frac_().sub_(0.5)
        t.detach().mul_(shares.mul_(_RELATIVE[t.dtype.itemsize]).add_(1.0).reshape(t.shape).to(t.dtype))
