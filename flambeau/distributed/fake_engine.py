"""The backend `fake`: one process simulates one rank of a world whose other ranks do not exist.

For plans, shapes and costs of a large world on a small machine. Nothing is sent: a rank receives what it sent itself, or its buffers are
left unchanged, so values are wrong wherever ranks differ."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ..core.tensor import Tensor
from .process_group import ProcessGroup
from .reduce_op import RedOpType
from .shared_engine import Memory
from .store import HashStore
from .work import Arrived


def _copy(source: Memory, target: Memory) -> None:
    target.write(0, min(source.nbytes, target.nbytes), source.address)


class FakeEngine:
    """Copies a rank's data as if all other ranks sent the same."""

    detail = ""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def _do_nothing(self, *args: Any) -> None:
        """Do nothing: if all ranks do the same, one needs nothing from the others."""

    barrier = broadcast = reduce = all_reduce = gather = scatter = close = _do_nothing

    def all_gather(self, memory: Memory, outputs: Sequence[Memory], timeout: float) -> None:
        for output in outputs:
            _copy(memory, output)

    def all_to_all(self, inputs: Sequence[Memory], outputs: Sequence[Memory], timeout: float) -> None:
        for source, target in zip(inputs, outputs):
            _copy(source, target)

    def reduce_scatter(
        self, memory: Memory, inputs: Sequence[Memory], dtype: Any, op: RedOpType, timeout: float
    ) -> None:
        _copy(inputs[self.rank], memory)

    def isend(self, memory: Memory, peer: int, tag: int, timeout: float) -> Arrived:
        return Arrived(peer)

    def irecv(self, memory: Memory, peer: int | None, tag: int, timeout: float) -> Arrived:
        return Arrived(self.rank if peer is None else peer)


class FakeProcessGroup(ProcessGroup):
    """A group whose other ranks are simulated: `init_process_group("fake", rank=0, world_size=1024)`."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(
            HashStore(), rank, size, lambda: FakeEngine(rank), "fake", timedelta(minutes=30), range(size), "", "",
            lambda where: FakeEngine(rank),
        )  # fmt: skip

    @classmethod
    def _create_internal(cls, rank: int, world_size: int, options: Any = None) -> FakeProcessGroup:
        return cls(rank, world_size)

    def _before(self, tensor: Tensor, op: RedOpType, factor: Any) -> None:
        pass  # a sum of one rank's values is not made, so nothing is scaled either

    def _after(self, tensor: Tensor, op: RedOpType) -> None:
        tensor._storage.version += 1

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        pass
