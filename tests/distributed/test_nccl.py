"""The NCCL engine: what it asks of the library, on a stand-in that keeps its memory on the host. (A GPU is needed for more.)"""

from __future__ import annotations

import ctypes
from datetime import timedelta

import pytest

import flambeau as torch
import flambeau.distributed as dist
from flambeau.distributed import nccl_engine
from flambeau.distributed.pieces import memory_of
from flambeau.distributed.reduce_op import RedOpType


class OneRank:
    """NCCL for one rank: everything is a copy. Notes what was called with which stream."""

    def __init__(self):
        self.calls, self.queue, self.depth, self.async_error = [], [], 0, 0

    def ncclGetUniqueId(self, name):
        name._obj.internal = b"an address"
        return 0

    def ncclCommInitRank(self, comm, size, name, rank):
        assert name.internal == b"an address" and (size, rank) == (1, 0)
        comm._obj.value = 77
        return 0

    def ncclCommGetAsyncError(self, comm, error):
        error._obj.value = self.async_error
        return 0

    def ncclGetErrorString(self, code):
        return b"remote process exited"

    def ncclGetLastError(self, comm):
        return b"socket closed"

    def ncclCommDestroy(self, comm):
        self.calls.append("destroy")

    def ncclCommAbort(self, comm):
        self.calls.append("abort")

    def ncclGroupStart(self):
        self.depth += 1
        return 0

    def ncclGroupEnd(self):
        self.depth -= 1
        return 0

    def __getattr__(self, name):
        def call(*arguments):
            *rest, comm, stream = arguments
            assert comm.value == 77 and stream == 5
            self.calls.append((name, *rest[-3:]))
            widths = {0: 1, 1: 1, 2: 4, 4: 8, 6: 2, 7: 4, 8: 8, 9: 2}
            if name in ("ncclSend", "ncclRecv"):
                address, count, kind, _ = rest
                self.queue.append((address, count * widths[kind]))
                if len(self.queue) == 2:
                    (source, nbytes), (target, _) = self.queue
                    ctypes.memmove(target, source, nbytes)
                    self.queue.clear()
            else:
                ctypes.memmove(rest[1], rest[0], rest[2] * widths[rest[3]])
            return 0

        return call


@pytest.fixture
def engine():
    library = OneRank()
    arguments = (dist.HashStore(), 0, 1, timedelta(seconds=5), [0], torch.device("cpu"))
    return nccl_engine.NcclEngine(*arguments, library=library, stream=lambda where: 5)


def test_operations(engine):
    x, y = torch.arange(6.0), torch.zeros(6)
    calls = engine.nccl.calls
    engine.all_reduce(memory_of(x), x.dtype, RedOpType.SUM, 1)
    assert calls.pop() == ("ncclAllReduce", 6, 7, 0)
    engine.all_gather(memory_of(x), [memory_of(y)], 1)
    assert calls.pop() == ("ncclAllGather", memory_of(y).address, 24, 1) and torch.equal(x, y)
    y.zero_()
    engine.reduce_scatter(memory_of(y), [memory_of(x)], x.dtype, RedOpType.MAX, 1)
    assert calls.pop() == ("ncclReduceScatter", 6, 7, 2) and torch.equal(x, y)
    y.zero_()
    engine.all_to_all([memory_of(x)], [memory_of(y)], 1)
    assert torch.equal(x, y) and engine.nccl.depth == 0
    y.zero_()
    with engine.together():
        assert engine.nccl.depth == 1
        engine.isend(memory_of(x), 0, 0, 1)
        assert engine.irecv(memory_of(y), 0, 0, 1).wait() == 0
    assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("dtype", "op", "expected"),
    [
        (torch.bfloat16, RedOpType.AVG, (4, 9, 0)),
        (torch.bool, RedOpType.SUM, (4, 1, 2)),
        (torch.bool, RedOpType.PRODUCT, (4, 1, 3)),
        (torch.complex64, RedOpType.SUM, (8, 7, 0)),
        (torch.int64, RedOpType.MIN, (4, 4, 3)),
    ],
)
def test_datatypes(engine, dtype, op, expected):
    x = torch.zeros(4, dtype=dtype)
    assert engine._reduction(memory_of(x), dtype, op) == expected


def test_what_nccl_cannot_do(engine):
    x = torch.zeros(4, dtype=torch.int16)
    with pytest.raises(TypeError, match="not supported for NCCL"):
        engine.all_reduce(memory_of(x), x.dtype, RedOpType.SUM, 1)
    with pytest.raises(ValueError, match=r"Cannot use ReduceOp\.BAND"):
        engine.all_reduce(memory_of(x), torch.int32, RedOpType.BAND, 1)
    with pytest.raises(RuntimeError, match="recvAnysource"):
        engine.irecv(memory_of(x), None, 0, 1)


def test_errors_of_other_ranks(engine):
    engine.nccl.async_error = 6
    x = torch.zeros(4)
    with pytest.raises(dist.DistBackendError, match="remote process exited"):
        engine.all_reduce(memory_of(x), x.dtype, RedOpType.SUM, 1)
    engine.close()
    assert engine.nccl.calls == ["abort"] and not engine.comm
