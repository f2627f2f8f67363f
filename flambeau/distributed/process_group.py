"""Process group: its collectives, and the engine that transfers the data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ..core import watching
from ..core.device import cpu
from ..core.graph import unrecorded
from ..core.layout import is_non_overlapping_and_dense
from ..core.tensor import Tensor, empty
from .options import NO_TIMEOUT
from .ordered_group import OrderedGroup, observers, shapes_of
from .pieces import (
    Share,
    contiguous,
    even_memories,
    even_pieces,
    flattened,
    lay_out,
    memory_of,
    put_back,
    shares_of,
    split,
    unflatten,
    written,
)
from .reduce_op import RedOpType, ReduceOp, kind_of
from .shared_engine import Parts
from .sparse_reduce import sparse_all_reduce
from .work import TransferWork, Work


def _check(tensor: Tensor, what: str) -> None:
    if tensor.device is not cpu and tensor.device.type != "cuda":
        raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")
    if tensor.is_sparse:
        raise RuntimeError(f"{what}(): sparse tensors are only supported by all_reduce")
    if not tensor._contig and not is_non_overlapping_and_dense(tensor.shape, tensor._strides):
        raise ValueError("Tensors must be contiguous")


def _one(tensors: Any, what: str) -> Tensor:
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise RuntimeError(f"{what}: requires a single tensor, got {len(tensors)}")
    return tensors[0]


def _same_size(what: str, tensor: Tensor, others: Sequence[Tensor]) -> None:
    for index, other in enumerate(others):
        name = "size" if other.numel() != tensor.numel() else "type" if other.dtype is not tensor.dtype else None
        if name:
            given = [f"({', '.join(map(str, t.shape))})" if name == "size" else t.dtype for t in (tensor, other)]
            at = f"invalid tensor {name} at index {index} (expected {given[0]}, got {given[1]})"
            raise RuntimeError(f"ProcessGroupGloo::{what}: {at}")


class ProcessGroup(OrderedGroup):
    """A group of ranks that communicate. Made by `init_process_group` and `new_group`; its methods return a `Work`."""

    def _one_each(self, what: str, which: str, tensors: Sequence[Tensor]) -> None:
        if len(tensors) != self._size:
            raise RuntimeError(
                f"ProcessGroupGloo::{what}: Incorrect {which} list size {len(tensors)}. {which.capitalize()} list size should be"
                f" {self._size}, same as size of the process group."
            )

    def _root(self, opts: Any, what: str) -> tuple[int, timedelta]:
        root, limit = (opts, NO_TIMEOUT) if isinstance(opts, int) else (opts.rootRank, opts.timeout)
        if not 0 <= root < self._size:
            raise RuntimeError(f"ProcessGroupGloo::{what}: invalid root rank: {root}")
        return root, limit

    # -- collectives --------------------------------------------------------------------------------------------------

    def _reduce_settings(self, opts: Any) -> tuple[RedOpType, Any, timedelta]:
        if opts is None:
            return RedOpType.SUM, None, NO_TIMEOUT
        if isinstance(opts, ReduceOp):
            return kind_of(opts), getattr(opts, "factor", None), NO_TIMEOUT
        return kind_of(opts.reduceOp), getattr(opts.reduceOp, "factor", None), opts.timeout

    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, _wait: bool = False
    ) -> Work:
        tensor = _one(tensors, "allreduce")
        op, factor, limit = self._reduce_settings(opts)
        if tensor.is_sparse:
            return self._run(
                "all_reduce",
                lambda e: sparse_all_reduce(e, tensor, op, self._seconds(limit)),
                [tensor],
                [tensor],
                _wait,
            )
        _check(tensor, "all_reduce")
        memory, dtype, seconds = memory_of(tensor), tensor.dtype, self._seconds(timeout or limit)

        def function(engine: Any) -> None:
            self._before(tensor, op, factor)
            engine.all_reduce(memory, dtype, op, seconds)
            self._after(tensor, op)

        return self._run("all_reduce", function, [tensor], [tensor], _wait)

    def _before(self, tensor: Tensor, op: RedOpType, factor: Any) -> None:
        if op is RedOpType.PREMUL_SUM:
            unrecorded(tensor.mul_, factor)

    def _after(self, tensor: Tensor, op: RedOpType) -> None:
        if op is RedOpType.AVG:
            mode = None if tensor.dtype.is_floating_point or tensor.dtype.is_complex else "trunc"
            unrecorded(tensor.div_, self._size, rounding_mode=mode)
        written([tensor])

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None, *, _wait: bool = False) -> Work:
        """Reduce several tensors of one dtype in one operation."""
        tensors = list(tensors)
        op, factor, limit = self._reduce_settings(opts)
        for tensor in tensors:
            _check(tensor, "all_reduce_coalesced")

        def function(engine: Any) -> None:
            flat = flattened(tensors)
            self._before(flat, op, factor)
            engine.all_reduce(memory_of(flat), flat.dtype, op, self._seconds(limit))
            self._after(flat, op)
            unflatten(flat, tensors)

        return self._run("all_reduce", function, tensors, tensors, _wait)

    def broadcast(self, tensors: Any, opts: Any = 0, timeout: timedelta | None = None, *, _wait: bool = False) -> Work:
        tensor = _one(tensors, "broadcast")
        root, limit = self._root(opts, "broadcast")
        _check(tensor, "broadcast")
        memory = memory_of(tensor)

        def function(engine: Any) -> None:
            engine.broadcast(memory, root, self._seconds(timeout or limit))
            if root != self._rank:
                written([tensor])

        return self._run("broadcast", function, [tensor], [tensor], _wait)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, *, _wait: bool = False) -> Work:
        tensor = _one(tensors, "reduce")
        root, _ = self._root(opts or 0, "reduce")
        kind, factor, limit = self._reduce_settings(op if op is not None else None if isinstance(opts, int) else opts)
        _check(tensor, "reduce")
        memory = memory_of(tensor)

        def function(engine: Any) -> None:
            self._before(tensor, kind, factor)
            engine.reduce(memory, tensor.dtype, kind, root, self._seconds(limit))
            if root == self._rank:
                self._after(tensor, kind)

        return self._run("reduce", function, [tensor], [tensor], _wait)

    def allgather(self, output_lists: Any, tensors: Any, opts: Any = None, *, _wait: bool = False) -> Work:
        tensor = _one(tensors, "allgather")
        outputs = output_lists[0] if output_lists and not isinstance(output_lists[0], Tensor) else output_lists
        if len(outputs) != self._size:
            lengths = f"(expected length {self._size}, got {len(outputs)})"
            raise RuntimeError(f"ProcessGroupGloo::allgather: invalid output tensor list at index 0 {lengths}")
        _same_size("allgather", tensor, outputs[self._rank : self._rank + 1])
        source = contiguous(tensor)
        limit = self._seconds(getattr(opts, "timeout", None))
        uneven = any(o.numel() != source.numel() for o in outputs)

        def function(engine: Any) -> None:
            places = [contiguous(o) for o in outputs]
            if uneven:
                engine.all_to_all([memory_of(source)] * self._size, [memory_of(o) for o in places], limit)
            else:
                engine.all_gather(memory_of(source), [memory_of(o) for o in places], limit)
            put_back(places, outputs)

        return self._run("all_gather", function, [list(outputs)], [tensor], _wait)

    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = None, *, _wait: bool = False) -> Work:
        if output.numel() != tensor.numel() * self._size:
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
        _check(output, "all_gather_into_tensor")
        return self.allgather(list(even_pieces(output, self._size)), tensor, opts, _wait=_wait)

    all_gather_single = all_gather_into_tensor = _allgather_base

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        for output, tensor in zip(outputs, inputs):
            if output.numel() != tensor.numel() * self._size:
                raise ValueError("output tensor size must be equal to world_size times input tensor size")
        written(outputs)
        return self.all_gather_parts(outputs, inputs)

    def all_gather_parts(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, _wait: bool = False) -> Work:
        """Gather every rank's inputs[i] into outputs[i], concatenated, in one operation. The outputs' versions do not change."""
        sources = [memory_of(contiguous(t)) for t in inputs]
        sizes, targets = [m.nbytes for m in sources], [memory_of(t) for t in outputs]

        def function(engine: Any) -> None:
            if getattr(engine, "takes_parts", False):
                places = [Parts(shares_of(targets, sizes, r), sizes) for r in range(self._size)]
                engine.all_gather(Parts(sources, sizes), places, self._seconds(None))
                return
            for source, target in zip(sources, targets):  # one after the other: their engines copy nothing on the way
                engine.all_gather(source, even_memories(target, self._size), self._seconds(None))

        return self._run("all_gather", function, [list(outputs)], list(inputs), _wait)

    def allgather_coalesced(
        self, output_lists: Sequence[Any], inputs: Sequence[Tensor], opts: Any = None, *, _wait: bool = False
    ) -> Work:
        """Gather several tensors of every rank on all ranks; output_lists[rank][i] receives inputs[i] of that rank."""
        limit = self._seconds(getattr(opts, "timeout", None))

        def function(engine: Any) -> None:
            for position, tensor in enumerate(inputs):
                outputs = [one[position] for one in output_lists]
                places = [contiguous(o) for o in outputs]
                engine.all_gather(memory_of(contiguous(tensor)), [memory_of(o) for o in places], limit)
                put_back(places, outputs)

        return self._run("all_gather", function, list(output_lists), list(inputs), _wait)

    def gather(self, output_lists: Any, tensors: Any, opts: Any = 0, *, _wait: bool = False) -> Work:
        tensor = _one(tensors, "gather")
        root, limit = self._root(opts, "gather")
        outputs = list(output_lists[0]) if output_lists else []
        if self._rank == root:
            self._one_each("gather", "output", outputs)
            _same_size("gather", tensor, outputs)
        source = contiguous(tensor)

        def function(engine: Any) -> None:
            places = [contiguous(o) for o in outputs]
            engine.gather(memory_of(source), [memory_of(o) for o in places], root, self._seconds(limit))
            put_back(places, outputs)

        return self._run("gather", function, [outputs], [tensor], _wait)

    def scatter(self, tensors: Any, input_lists: Any, opts: Any = 0, *, _wait: bool = False) -> Work:
        tensor = _one(tensors, "scatter")
        root, limit = self._root(opts, "scatter")
        inputs = [contiguous(t) for t in input_lists[0]] if input_lists else []
        if self._rank == root:
            self._one_each("scatter", "input", inputs)
            _same_size("scatter", tensor, inputs)
        _check(tensor, "scatter")

        def function(engine: Any) -> None:
            engine.scatter(memory_of(tensor), [memory_of(t) for t in inputs], root, self._seconds(limit))
            written([tensor])

        return self._run("scatter", function, [tensor], [tensor], _wait)

    def reduce_scatter(self, tensors: Any, input_lists: Any, opts: Any = None, *, _wait: bool = False) -> Work:
        tensor = _one(tensors, "reduce_scatter")
        inputs = input_lists[0] if input_lists and not isinstance(input_lists[0], Tensor) else input_lists
        self._one_each("reduce_scatter", "input", inputs)
        _same_size("reduce_scatter", tensor, inputs[self._rank : self._rank + 1])
        op, factor, limit = self._reduce_settings(opts)
        _check(tensor, "reduce_scatter")
        parts = [contiguous(t) for t in inputs]
        if op is RedOpType.PREMUL_SUM:
            parts = [unrecorded(t.mul, factor) for t in parts]

        def function(engine: Any) -> None:
            memories = [memory_of(t) for t in parts]
            engine.reduce_scatter(memory_of(tensor), memories, tensor.dtype, op, self._seconds(limit))
            self._after(tensor, op)

        return self._run("reduce_scatter", function, [tensor], [tensor], _wait)

    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, opts: Any = None, *, _wait: bool = False) -> Work:
        if tensor.numel() != output.numel() * self._size:
            raise ValueError("input tensor must be the same size as output size times world size")
        return self.reduce_scatter(output, list(even_pieces(contiguous(tensor), self._size)), opts, _wait=_wait)

    reduce_scatter_single = reduce_scatter_tensor = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        return [self._reduce_scatter_base(output, tensor, opts) for output, tensor in zip(outputs, inputs)][-1]

    def reduce_scatter_parts(
        self, output: Tensor, shares: Sequence[Sequence[Share]], opts: Any = None, *, _wait: bool = False
    ) -> Work:
        """Reduce the shares[r] of all ranks for rank r, which receives them one after another in `output`. Where a share is shorter than
        its reserved space, the rest is undefined."""
        op, _, limit = self._reduce_settings(opts)
        if op is RedOpType.PREMUL_SUM:
            raise NotImplementedError("reduce_scatter_parts() with ReduceOp.PREMUL_SUM")
        width = output.dtype.itemsize

        def function(engine: Any) -> None:
            if getattr(engine, "takes_parts", False):
                parts: list = [
                    Parts([share.memory(width) for share in own], [share.room * width for share in own])
                    for own in shares
                ]
                flat = None
            else:
                flat = empty((output.numel() * self._size,), output.dtype, output.device)
                parts = even_memories(memory_of(flat), self._size)
                lay_out(flat, shares)
            engine.reduce_scatter(memory_of(output), parts, output.dtype, op, self._seconds(limit))
            self._after(output, op)

        return self._run("reduce_scatter", function, [output], [output], _wait)

    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None, *, _wait: bool = False
    ) -> Work:
        limit = self._seconds(getattr(opts, "timeout", None))
        if len(inputs) != self._size or len(outputs) != self._size:
            raise RuntimeError(
                f"alltoall: expected {self._size} inputs and outputs, got {len(inputs)} and {len(outputs)}"
            )
        for output in outputs:
            _check(output, "all_to_all")
        sources = [contiguous(t) for t in inputs]

        def function(engine: Any) -> None:
            engine.all_to_all([memory_of(t) for t in sources], [memory_of(t) for t in outputs], limit)
            written(outputs)

        return self._run("all_to_all", function, list(outputs), list(inputs), _wait)

    def alltoall_base(
        self,
        output: Tensor,
        tensor: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
        *,
        _wait: bool = False,
    ) -> Work:
        _check(output, "all_to_all_single")
        outputs = split(output, output_split_sizes, self._size)
        inputs = split(contiguous(tensor), input_split_sizes, self._size)
        limit = self._seconds(getattr(opts, "timeout", None))

        def function(engine: Any) -> None:
            engine.all_to_all([memory_of(t) for t in inputs], [memory_of(t) for t in outputs], limit)
            written([output])

        return self._run("all_to_all", function, [output], [tensor], _wait)

    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None, timeout: timedelta | None = None, *, _wait: bool = False) -> Work:
        seconds = self._seconds(timeout if timeout is not None else getattr(opts, "timeout", None))
        return self._run("barrier", lambda engine: engine.barrier(seconds), [], [], _wait)

    # -- between two ranks --------------------------------------------------------------------------------------------

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        tensor = _one(tensors, "send")
        _check(tensor, "send")
        return self._message(
            "send", [tensor], self.engine_of(tensor).isend(memory_of(tensor), dstRank, tag, self._seconds(None))
        )

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        tensor = _one(tensors, "recv")
        _check(tensor, "recv")
        return self._message(
            "recv", [tensor], self.engine_of(tensor).irecv(memory_of(tensor), srcRank, tag, self._seconds(None))
        )

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        tensor = _one(tensors, "recv")
        _check(tensor, "recv")
        transfer = self.engine_of(tensor).irecv(memory_of(tensor), None, tag, self._seconds(None))
        return self._message("recvAnySource", [tensor], transfer)

    def _message(self, what: str, tensors: list[Tensor], transfer: Any) -> Work:
        if watching.active:
            watching.tell_sent(what)
        if observers:
            now = time.perf_counter()
            for observe in list(observers):
                observe(f"{self.backend_name}:{what}", shapes_of(tensors), now, now)
        return TransferWork(transfer, tensors, what != "send")

    # -- the barrier that tells who is missing --------------------------------------------------------------------------

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Barrier at which rank 0 waits for every other rank and raises an error that names the missing ones."""
        if watching.active:
            watching.tell_sent("monitored_barrier")
        limit = self._timeout if timeout is None else timeout
        self._monitored += 1
        key = f"monitored/{self._monitored}"
        if self._rank == 0:
            self._monitor(key, limit, wait_all_ranks)
            return
        self.store.set(f"{key}/{self._rank}", "1")
        try:
            self.store.wait([f"{key}/done"], max(limit * 2, timedelta(seconds=1)))
            passed = self.store.get(f"{key}/done") == b"1"
        except RuntimeError:
            passed = False
        if not passed:
            raise RuntimeError(
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from"
                " rank 0. Please check rank 0 logs for faulty rank."
            )

    def _monitor(self, key: str, limit: timedelta, wait_all_ranks: bool) -> None:
        deadline = time.monotonic() + limit.total_seconds()
        milliseconds = int(limit.total_seconds() * 1000)
        failed: list[int] = []
        for other in range(1, self._size):
            left = deadline - time.monotonic()
            if left <= 0 and not failed:
                raise RuntimeError(f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms.")
            try:
                self.store.wait([f"{key}/{other}"], timedelta(seconds=max(left, 0.001)))
            except RuntimeError:
                failed.append(other)
                if not wait_all_ranks:
                    break
        self.store.set(f"{key}/done", "0" if failed else "1")
        if failed:
            names = ", ".join(str(self.ranks[r]) for r in failed)
            title = f"Ranks {names}" if wait_all_ranks else f"Rank {names}"
            raise RuntimeError(f"[Rank 0]: {title} failed to pass monitoredBarrier in {milliseconds} ms")
