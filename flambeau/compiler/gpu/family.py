"""State and memory that captures of one function for many sizes have in common."""

from __future__ import annotations

from typing import Any

from ...backends.nvidia import graphs, threads
from ...backends.nvidia.memory import memories
from ...core.backend import backend_of
from ...core.device import device


class Family:
    """Shared state of the recordings of a function without side effects, for several sizes: the tensors that they read, their guard,
    and the memory of their graphs. It holds none of any call's arguments."""

    read: frozenset[int] = frozenset()  # leaves whose gradients they read

    def __init__(self, prepared: Any, guard: Any, where: device):
        self.state, self.storages, self.reach = prepared.state, prepared.storages, prepared.reach
        self.guard, self._where, self._index = guard, where, where.index or 0
        self.pool = graphs.graph_pool_handle()
        self._stream: int | None = None  # in which a graph ran last

    def fits(self) -> bool:
        """Return whether all state that calls depend on is unchanged, and no code has run that might depend on more."""
        return not self.guard.difference() and not self.reach.unforeseen()

    def enter(self) -> None:
        """Wait until no graph of the family runs on another stream, before one runs on the current stream."""
        stream = threads.mine.streams[self._index]
        if self._stream not in (None, stream):
            backend_of(self._where).synchronize(self._where)
        self._stream = stream

    def in_use(self) -> int:
        """Return how many blocks of the graphs' memory are referenced from outside."""
        pool = graphs.shared_pool(self._index, self.pool)
        return sum(block.pool is pool for block in memories()[self._index].blocks.values()) if pool else 0
