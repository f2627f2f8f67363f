"""The backend "fake": a world in which this process is the only one that is there.

Every collective ends at once, as if the others had sent the same as this rank: what is gathered is its own tensor again and again, what is
reduced stays as it is. For programs that want to see what one rank of many would do, and not what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .store import HashStore
from .window import memmove


class FakeStore(HashStore):
    """The store of such a world: nobody else writes to it."""


class _Done:
    """A message that has arrived."""

    def __init__(self, peer: int | None) -> None:
        self.peer = peer or 0

    def done(self) -> bool:
        return True

    def wait(self, seconds: float | None = None) -> int:
        return self.peer


class FakeEngine:
    """Moves bytes between this rank and itself."""

    name = "fake"
    detail = ""

    def __init__(self, rank: int, size: int, ranks: Sequence[int]) -> None:
        self.rank, self.size, self.ranks = rank, size, list(ranks)

    def barrier(self, timeout: float, what: str = "barrier") -> None:
        pass

    def broadcast(self, memory: Any, root: int, timeout: float) -> None:
        pass

    def all_reduce(self, memory: Any, dtype: Any, op: Any, timeout: float) -> None:
        pass

    def reduce(self, memory: Any, dtype: Any, op: Any, root: int, timeout: float) -> None:
        pass

    def all_gather(self, memory: Any, outputs: Sequence[Any], timeout: float) -> None:
        self._copied([memory] * len(outputs), outputs)

    def gather(self, memory: Any, outputs: Sequence[Any], root: int, timeout: float) -> None:
        self._copied([memory] * len(outputs), outputs)

    def scatter(self, memory: Any, inputs: Sequence[Any], root: int, timeout: float) -> None:
        if inputs:
            self._copied([inputs[self.rank]], [memory])

    def all_to_all(self, inputs: Sequence[Any], outputs: Sequence[Any], timeout: float) -> None:
        self._copied(inputs, outputs)

    def reduce_scatter(self, memory: Any, inputs: Sequence[Any], dtype: Any, op: Any, timeout: float) -> None:
        self._copied([inputs[self.rank]], [memory])

    def isend(self, memory: Any, peer: int, tag: int, timeout: float) -> _Done:
        return _Done(peer)

    def irecv(self, memory: Any, peer: int | None, tag: int, timeout: float) -> _Done:
        return _Done(peer)

    def close(self) -> None:
        pass

    @staticmethod
    def _copied(sources: Sequence[Any], places: Sequence[Any]) -> None:
        for source, place in zip(sources, places):
            count = min(source.nbytes, place.nbytes)
            if count and source.address != place.address:
                memmove(place.address, source.address, count)
