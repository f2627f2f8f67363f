"""Work of a captured call that is needed late: gradients of weights and biases, which are read when the parameters are updated.

A small product of this kind leaves most of a GPU idle. It is captured on a second stream, so that the graph runs it concurrently with
the next kernels; an operator that uses its result, or overwrites its operands, waits for it. The memory of its operands is held until
then."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ...backends.nvidia import graphs, streams
from ...core.device import device
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor
from ...graph.memory import instances

MOST = 3  # pieces at a time: the memory they read cannot be reused meanwhile
_SMALL = 1 << 24  # bytes that a piece may read; larger ones fill a GPU, and two at a time only slow each other down
_NO_WORK = ("composite", "view")


class _Piece(NamedTuple):
    """Work on the second stream, followed by `event`: the addresses that it reads and writes, and the memory that is held for it."""

    event: streams.Event
    reads: frozenset[int]
    writes: tuple[tuple[int, int], ...]  # from, to
    held: list[UntypedStorage]


class Beside:
    """The second stream of a capture, with at most `most` pieces of work at a time; both streams use the graph's memory."""

    def __init__(self, capture: graphs.CUDAGraph, most: int):
        self.most = most
        where = device("cuda", capture.index)
        self.first = streams.Stream(where, handle=capture.stream)
        self.second = _second(capture.index)
        capture.admit(self.second.cuda_stream)
        self.pieces: collections.deque[_Piece] = collections.deque()
        self.making: list[UntypedStorage] | None = None  # while a piece is captured, the storages it makes

    def placed(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Callable:
        """Return the call to make in place of an operator: itself after waiting for its operands, or on the second stream."""
        if op.kind in _NO_WORK:
            return function
        given = instances((args, kwargs), Tensor)
        changes = bool(op.writes) or op.in_place or kwargs.get("out") is not None
        self.wait_for([t._storage for t in given if hasattr(t, "_storage")], changes)
        if not self.most or sum(t._storage.size_bytes for t in given if hasattr(t, "_storage")) > _SMALL:
            return function
        if op.beside is True and args and type(args[0]) is list:  # a rewritten call gets the memory of its results
            return lambda outs, *read: self._run(lambda *read: function(outs, *read) or outs, given, read, {})
        if not changes and (op.beside(**op.bind(args, kwargs)) if callable(op.beside) else op.beside):
            return lambda *args, **kwargs: self._run(function, given, args, kwargs)
        return function

    def _prepare(self) -> None:
        while len(self.pieces) >= self.most:
            self._join(1)
        self.second.wait_stream(self.first)

    def _run(self, function: Callable, given: list[Tensor], args: tuple, kwargs: dict) -> Any:
        self._prepare()
        held: list[UntypedStorage] = []
        self.making = held
        try:
            with streams.StreamContext(self.second):
                result = function(*args, **kwargs)
        finally:
            self.making = None
        made = [t._storage for t in (result if isinstance(result, (tuple, list)) else (result,))]
        held[:] = [*(t._storage for t in given), *(s for s in held if not any(s is m for m in made))]
        writes = tuple((s.ptr, s.ptr + s.size_bytes) for s in (*held[len(given) :], *made))
        reads = frozenset(t._storage.ptr for t in given)
        self.pieces.append(_Piece(self.second.record_event(), reads, writes, held))
        return result

    def wait_for(self, touched: list[UntypedStorage], changes: bool) -> None:
        """Make the first stream wait for work on the second that writes this memory, and, if it `changes`, for work that reads it."""
        for n in range(len(self.pieces), 0, -1):
            piece = self.pieces[n - 1]
            for s in touched:
                written = any(start < s.ptr + s.size_bytes and s.ptr < end for start, end in piece.writes)
                if written or (changes and s.ptr in piece.reads):
                    self._join(n)
                    return

    def made(self, new: UntypedStorage) -> None:
        """Note new memory. It may be reused and hold a result on the second stream that was never read, which is waited for."""
        if self.making is not None:
            self.making.append(new)
        else:
            self.wait_for([new], True)

    def _join(self, count: int) -> None:
        """Make the first stream wait for the first `count` pieces: the second stream runs them in order."""
        self.pieces[count - 1].event.wait(self.first)
        for _ in range(count):
            self.pieces.popleft()

    def end(self) -> None:
        if self.pieces:
            self._join(len(self.pieces))


@functools.cache
def _second(index: int) -> streams.Stream:
    return streams.Stream(device("cuda", index))
