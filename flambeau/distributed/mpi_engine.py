"""Collectives through MPI: every operation is MPI's non-blocking one, polled with sleeps in between.

(MPI's blocking calls spin: they would take a core from the ranks that compute.)"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..core.dtype import BY_NAME
from ..core.tensor import empty
from . import mpi_world, window
from .errors import DistBackendError
from .reduce_op import RedOpType, array_at, combiner
from .shared_engine import Memory
from .store import Store

_POLLING_SECONDS = 2e-3  # seconds of looking at a request again and again, the core offered to others between two looks
_PAUSE, _LONG_PAUSE = 2e-4, 1e-3  # seconds of sleep between two looks after that, and after a second
_LIVE_CHECK = 0.5

_OPS = {
    RedOpType.SUM: "SUM", RedOpType.AVG: "SUM", RedOpType.PREMUL_SUM: "SUM", RedOpType.PRODUCT: "PROD", RedOpType.MIN: "MIN",
    RedOpType.MAX: "MAX", RedOpType.BAND: "BAND", RedOpType.BOR: "BOR", RedOpType.BXOR: "BXOR",
}  # fmt: skip
_LOGICAL = {"SUM": "LOR", "MAX": "LOR", "BOR": "LOR", "PROD": "LAND", "MIN": "LAND", "BAND": "LAND", "BXOR": "LXOR"}


class _Request:
    """A pending message between two ranks."""

    def __init__(self, engine: MpiEngine, request: Any, peer: int | None, what: str, timeout: float, owner: Any):
        self.engine, self.request, self.peer, self.what, self.timeout, self.owner = (
            engine,
            request,
            peer,
            what,
            timeout,
            owner,
        )
        self.status = engine.MPI.Status()
        self._done = False

    def done(self) -> bool:
        self._done = self._done or self.request.Test(self.status)
        return self._done

    def wait(self, seconds: float | None = None) -> int:
        suspects = [self.peer] if self.peer is not None else None
        self.engine.sleep_until(self.done, self.what, seconds or self.timeout, suspects)
        return self.status.Get_source() if self.peer is None else self.peer


class MpiEngine:
    """Engine for ranks on any machines. Runs one collective at a time; the caller ensures that."""

    name = "MPI"

    def __init__(self, rank: int, size: int, timeout: timedelta, ranks: Sequence[int], store: Store):
        self.MPI = MPI = mpi_world.world()
        self.rank, self.size, self.store, self.ranks = rank, size, store, list(ranks)
        self.detail = ""
        self._count = 0
        members = MPI.COMM_WORLD.Get_group().Incl(self.ranks)
        self.comm = MPI.COMM_WORLD.Create_group(members)
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._neighbours = self._processes_here()

    def _processes_here(self) -> tuple[list[int], window.Peers] | None:
        """Return the ranks on this machine, and their processes, whose end is noticed at once."""
        told = self.store.multi_get([f"process/{r}" for r in range(self.size)])
        here = window.machine().encode()
        places = [r for r, text in enumerate(told) if text.rpartition(b" ")[0] == here]
        return places, window.Peers([int(told[r].rpartition(b" ")[2]) for r in places])

    # -- waiting ----------------------------------------------------------------------------------------------------------

    def sleep_until(
        self, done: Callable[[], bool], what: str, timeout: float, suspects: Sequence[int] | None = None
    ) -> None:
        start = now = looked = time.monotonic()
        while not done():
            # MPI makes progress only when it is polled, and a large message has many stages: long pauses would add up.
            waited = now - start
            if waited < _POLLING_SECONDS:
                os.sched_yield()
            else:
                time.sleep(_PAUSE if waited < 1 else _LONG_PAUSE)
            now = time.monotonic()
            if now - looked > _LIVE_CHECK:
                looked = now
                self._check_lives(what, suspects)
            if now - start > timeout:
                self._raise_timeout(what, timeout, suspects)

    def _check_lives(self, what: str, suspects: Sequence[int] | None) -> None:
        self.store.set(f"progress/{self.rank}", str(self._count))
        places, peers = self._neighbours or ([], None)
        dead = [places[i] for i in peers.dead()] if peers is not None else []
        dead = [r for r in dead if suspects is None or r in suspects]
        if dead:
            names = ", ".join(str(self.ranks[r]) for r in dead)
            raise DistBackendError(
                f"[Rank {self.ranks[self.rank]}]: {what}: rank {names} has ended. Connection closed by peer"
            )

    def _raise_timeout(self, what: str, timeout: float, suspects: Sequence[int] | None) -> None:
        """Raise an error that names the ranks which have not reached the operation that this rank is in."""
        missing = []
        for r in suspects if suspects is not None else [r for r in range(self.size) if r != self.rank]:
            key = f"progress/{r}"
            if not self.store.check([key]) or int(self.store.get(key)) < self._count:
                missing.append(str(self.ranks[r]))
        names = ", ".join(missing) or "?"
        raise DistBackendError(
            f"[Rank {self.ranks[self.rank]}]: {what}: rank {names} did not come. Timed out waiting {timeout * 1000:.0f}ms for it"
        )

    def _finish(self, request: Any, what: str, timeout: float) -> None:
        self._count += 1
        self.sleep_until(request.Test, what + self.detail, timeout)

    def _bytes(self, memory: Memory) -> list:
        return [self.MPI.memory.fromaddress(memory.address, memory.nbytes), self.MPI.BYTE]

    # -- collectives --------------------------------------------------------------------------------------------------------

    def barrier(self, timeout: float, what: str = "barrier") -> None:
        self._finish(self.comm.Ibarrier(), what, timeout)

    def broadcast(self, memory: Memory, root: int, timeout: float) -> None:
        self._finish(self.comm.Ibcast(self._bytes(memory), root), f"broadcast from {root}", timeout)

    def _mpi_reduction(self, memory: Memory, dtype: Any, op: RedOpType) -> tuple[list, Any] | None:
        """Return buffer and operation for a reduction by MPI; None if MPI does not support the dtype."""
        combiner(op, dtype)  # an error for what makes no sense
        if dtype.mpi is None:
            return None
        name = _OPS[op]
        operation = getattr(self.MPI, _LOGICAL[name] if dtype.name == "bool" else name)
        datatype = getattr(self.MPI, dtype.mpi)
        return [self.MPI.memory.fromaddress(memory.address, memory.nbytes), datatype], operation

    def all_reduce(self, memory: Memory, dtype: Any, op: RedOpType, timeout: float) -> None:
        typed = self._mpi_reduction(memory, dtype, op)
        what = f"all_reduce {op.name} of {dtype}"
        if typed is not None:
            self._finish(self.comm.Iallreduce(self.MPI.IN_PLACE, *typed), what, timeout)
        else:
            self._reduce_with_kernels(memory, dtype, op, timeout)

    def _reduce_with_kernels(self, memory: Memory, dtype: Any, op: RedOpType, timeout: float) -> None:
        """Reduce dtypes that MPI does not support: each rank reduces a share with our kernels, then shares are gathered."""
        count = memory.nbytes // dtype.itemsize
        share = -(-count // self.size)
        bounds = [min(r * share, count) for r in range(self.size + 1)]
        parts = [
            Memory(
                memory.address + bounds[r] * dtype.itemsize, (bounds[r + 1] - bounds[r]) * dtype.itemsize, memory.owner
            )
            for r in range(self.size)
        ]
        self.reduce_scatter(parts[self.rank], parts, dtype, op, timeout)
        self._exchange("all_reduce", [parts[self.rank]] * self.size, parts, timeout)

    def reduce(self, memory: Memory, dtype: Any, op: RedOpType, root: int, timeout: float) -> None:
        typed = self._mpi_reduction(memory, dtype, op)
        if typed is None:
            held = empty((memory.nbytes,), BY_NAME["uint8"])
            copy = Memory(held._storage.ptr, memory.nbytes, held)
            window.memmove(copy.address, memory.address, memory.nbytes)
            self._reduce_with_kernels(copy, dtype, op, timeout)
            if self.rank == root:
                window.memmove(memory.address, copy.address, memory.nbytes)
            return
        buffer, operation = typed
        if self.rank == root:
            request = self.comm.Ireduce(self.MPI.IN_PLACE, buffer, operation, root)
        else:
            request = self.comm.Ireduce(buffer, None, operation, root)
        self._finish(request, f"reduce {op.name} of {dtype} to {root}", timeout)

    def all_gather(self, memory: Memory, outputs: Sequence[Memory], timeout: float) -> None:
        self._exchange("all_gather", [memory] * self.size, outputs, timeout)

    def gather(self, memory: Memory, outputs: Sequence[Memory], root: int, timeout: float) -> None:
        nothing = Memory(0, 0, None)
        inputs = [memory if r == root else nothing for r in range(self.size)]
        targets = list(outputs) if self.rank == root else [nothing] * self.size
        self._exchange(f"gather to {root}", inputs, targets, timeout)

    def scatter(self, memory: Memory, inputs: Sequence[Memory], root: int, timeout: float) -> None:
        nothing = Memory(0, 0, None)
        sources = list(inputs) if self.rank == root else [nothing] * self.size
        self._exchange(
            f"scatter from {root}", sources, [memory if r == root else nothing for r in range(self.size)], timeout
        )

    def all_to_all(self, inputs: Sequence[Memory], outputs: Sequence[Memory], timeout: float) -> None:
        self._exchange("all_to_all", inputs, outputs, timeout)

    def _exchange(self, what: str, inputs: Sequence[Memory], outputs: Sequence[Memory], timeout: float) -> None:
        """Send inputs[r] to rank r and receive outputs[r] from rank r, by address: no byte is copied on the way."""
        MPI = self.MPI
        low_in = min((m.address for m in inputs if m.nbytes), default=0)
        low_out = min((m.address for m in outputs if m.nbytes), default=0)
        types = [MPI.BYTE] * self.size
        send = [MPI.memory.fromaddress(low_in, _address_span(inputs, low_in)), *_layout(inputs, low_in), types]
        receive = [MPI.memory.fromaddress(low_out, _address_span(outputs, low_out)), *_layout(outputs, low_out), types]
        self._finish(self.comm.Ialltoallw(send, receive), what, timeout)

    def reduce_scatter(
        self, memory: Memory, inputs: Sequence[Memory], dtype: Any, op: RedOpType, timeout: float
    ) -> None:
        """Set memory to the sum over all ranks of their inputs[this rank]."""
        combine = combiner(op, dtype)
        parts = empty((max(1, memory.nbytes * self.size),), BY_NAME["uint8"])
        places = [Memory(parts._storage.ptr + r * memory.nbytes, memory.nbytes, parts) for r in range(self.size)]
        self._exchange(f"reduce_scatter {op.name} of {dtype}", inputs, places, timeout)
        count = memory.nbytes // dtype.itemsize
        if count:
            arrays = [array_at(place.address, count, dtype) for place in places]
            for other in arrays[1:]:
                combine(arrays[0], other, arrays[0])
            window.memmove(memory.address, places[0].address, memory.nbytes)

    # -- between two ranks --------------------------------------------------------------------------------------------------

    def isend(self, memory: Memory, peer: int, tag: int, timeout: float) -> _Request:
        request = self.comm.Isend(self._bytes(memory), peer, tag)
        return _Request(self, request, peer, f"send to rank {self.ranks[peer]}", timeout, memory)

    def irecv(self, memory: Memory, peer: int | None, tag: int, timeout: float) -> _Request:
        source = self.MPI.ANY_SOURCE if peer is None else peer
        request = self.comm.Irecv(self._bytes(memory), source, tag)
        name = "any rank" if peer is None else f"rank {self.ranks[peer]}"
        return _Request(self, request, peer, f"recv from {name}", timeout, memory)

    def close(self) -> None:
        """Do nothing: freeing the communicator would wait for ranks that may have ended."""
        if self._neighbours is not None:
            self._neighbours[1].close()
            self._neighbours = None


def _address_span(memories: Sequence[Memory], low: int) -> int:
    return max((m.address + m.nbytes for m in memories if m.nbytes), default=low) - low


def _layout(memories: Sequence[Memory], low: int) -> tuple[list[int], list[int]]:
    """Return the size of each memory in bytes, and its offset from `low`."""
    return [m.nbytes for m in memories], [m.address - low if m.nbytes else 0 for m in memories]
