"""Collectives between GPUs through NCCL.

Operations are put on the current stream of the tensors' device and run there in order, like kernels: the host does not wait for them. The
communicator of a device is made by the first operation on it, by all ranks together; its id is exchanged through the store."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from ..backends import nvidia
from .errors import DistBackendError
from .reduce_op import RedOpType
from .shared_engine import Memory
from .store import Store
from .work import Arrived

_SUCCESS, _IN_PROGRESS = 0, 7
_BYTES = 1  # ncclUint8
_SUM, _PRODUCT, _MAX, _MIN = range(4)
_OPS = {
    RedOpType.SUM: _SUM,
    RedOpType.AVG: _SUM,
    RedOpType.PREMUL_SUM: _SUM,
    RedOpType.PRODUCT: _PRODUCT,
    RedOpType.MAX: _MAX,
    RedOpType.MIN: _MIN,
}  # fmt: skip  (the process group divides and multiplies itself)


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


_address, _count, _int, _handle = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
_SIGNATURES: dict[str, list] = {
    "ncclGetUniqueId": [ctypes.POINTER(_UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(_handle), _int, _UniqueId, _int],
    "ncclCommDestroy": [_handle],
    "ncclCommAbort": [_handle],
    "ncclCommGetAsyncError": [_handle, ctypes.POINTER(_int)],
    "ncclGetVersion": [ctypes.POINTER(_int)],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclAllReduce": [_address, _address, _count, _int, _int, _handle, _handle],
    "ncclReduce": [_address, _address, _count, _int, _int, _int, _handle, _handle],
    "ncclBroadcast": [_address, _address, _count, _int, _int, _handle, _handle],
    "ncclAllGather": [_address, _address, _count, _int, _handle, _handle],
    "ncclReduceScatter": [_address, _address, _count, _int, _int, _handle, _handle],
    "ncclSend": [_address, _count, _int, _int, _handle, _handle],
    "ncclRecv": [_address, _count, _int, _int, _handle, _handle],
}


@functools.cache
def load() -> Any:
    """Return the NCCL library, with the types of its functions' arguments set."""
    library = nvidia.library("nccl")
    for name, types in _SIGNATURES.items():
        getattr(library, name).argtypes = types
    library.ncclGetErrorString.restype = library.ncclGetLastError.restype = ctypes.c_char_p
    library.ncclGetErrorString.argtypes, library.ncclGetLastError.argtypes = [_int], [_handle]
    return library


def available() -> bool:
    """Return whether NCCL can be loaded."""
    try:
        load()
    except (ImportError, OSError, RuntimeError):
        return False
    return True


def version() -> tuple[int, int, int]:
    """Return NCCL's version, (2, 28, 9) for 2.28.9."""
    number = _int()
    if load().ncclGetVersion(ctypes.byref(number)) != _SUCCESS:
        raise DistBackendError("NCCL does not report its version")
    major, rest = divmod(number.value, 10000)
    return major, rest // 100, rest % 100


class NcclEngine:
    """Engine for the GPUs of `size` processes; `where` is the device of this one."""

    name = "NCCL"

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, ranks: Sequence[int], where: Any,
        library: Any = None, stream: Callable[[Any], int] | None = None,
    ) -> None:  # fmt: skip
        self.rank, self.size, self.ranks, self.where = rank, size, list(ranks), where
        self.nccl = load() if library is None else library
        self.stream = nvidia.current_stream if stream is None else stream
        self.detail = ""
        self.comm = _handle()
        name = _UniqueId()
        if rank == 0:
            self._check(self.nccl.ncclGetUniqueId(ctypes.byref(name)), "ncclGetUniqueId")
            store.set("nccl/id", bytes(name))
        else:
            store.wait(["nccl/id"], timeout)
            name = _UniqueId.from_buffer_copy(store.get("nccl/id"))
        self.stream(where)  # makes the device current in this thread
        self._check(self.nccl.ncclCommInitRank(ctypes.byref(self.comm), size, name, rank), "ncclCommInitRank")

    # -- calls --------------------------------------------------------------------------------------------------------

    def _check(self, code: int, what: str) -> None:
        if code in (_SUCCESS, _IN_PROGRESS):
            return
        text = (self.nccl.ncclGetErrorString(code) or b"").decode(errors="replace")
        last = (self.nccl.ncclGetLastError(self.comm) or b"").decode(errors="replace")
        raise DistBackendError(
            f"[Rank {self.ranks[self.rank]}]: NCCL error in {what}{self.detail}: {text}. Last error:\n{last}"
        )

    def _call(self, name: str, *arguments: Any) -> None:
        """Call one of NCCL's operations, on the current stream."""
        if not self.comm:
            raise DistBackendError(f"{name}: this communicator was closed")
        failed = _int()
        self._check(self.nccl.ncclCommGetAsyncError(self.comm, ctypes.byref(failed)), "ncclCommGetAsyncError")
        self._check(failed.value, "an operation before this one")
        self._check(getattr(self.nccl, name)(*arguments, self.comm, self.stream(self.where)), name)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Context manager: operations called inside start together, none waits for another."""
        self._check(self.nccl.ncclGroupStart(), "ncclGroupStart")
        try:
            yield
        finally:
            self._check(self.nccl.ncclGroupEnd(), "ncclGroupEnd")

    def _reduction(self, memory: Memory, dtype: Any, op: RedOpType) -> tuple[int, int, int]:
        """Return the number of elements, NCCL's datatype, and NCCL's operation of a reduction."""
        number = dtype.to_real().nccl  # complex numbers are pairs
        if number is None and dtype.name != "bool":
            raise TypeError(f"Input tensor data type is not supported for NCCL process group: {dtype}")
        if op not in _OPS or (dtype.is_complex and _OPS[op] != _SUM):
            raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL for {dtype}")
        if dtype.name == "bool":
            if op is RedOpType.AVG:
                raise TypeError("Cannot use ReduceOp.AVG with Boolean inputs")
            return memory.nbytes, _BYTES, _MAX if _OPS[op] in (_SUM, _MAX) else _MIN
        return memory.nbytes // dtype.to_real().itemsize, number, _OPS[op]

    # -- collectives --------------------------------------------------------------------------------------------------

    def broadcast(self, memory: Memory, root: int, timeout: float) -> None:
        self._call("ncclBroadcast", memory.address, memory.address, memory.nbytes, _BYTES, root)

    def all_reduce(self, memory: Memory, dtype: Any, op: RedOpType, timeout: float) -> None:
        self._call("ncclAllReduce", memory.address, memory.address, *self._reduction(memory, dtype, op))

    def reduce(self, memory: Memory, dtype: Any, op: RedOpType, root: int, timeout: float) -> None:
        self._call("ncclReduce", memory.address, memory.address, *self._reduction(memory, dtype, op), root)

    def all_gather(self, memory: Memory, outputs: Sequence[Memory], timeout: float) -> None:
        if _adjacent(outputs):
            self._call("ncclAllGather", memory.address, outputs[0].address, memory.nbytes, _BYTES)
            return
        with self.together():
            for root, output in enumerate(outputs):
                source = memory if root == self.rank else output
                self._call("ncclBroadcast", source.address, output.address, output.nbytes, _BYTES, root)

    def reduce_scatter(
        self, memory: Memory, inputs: Sequence[Memory], dtype: Any, op: RedOpType, timeout: float
    ) -> None:
        """Set memory to the sum over all ranks of their inputs[this rank]."""
        if _adjacent(inputs):
            arguments = self._reduction(memory, dtype, op)
            self._call("ncclReduceScatter", inputs[0].address, memory.address, *arguments)
            return
        with self.together():
            for root, part in enumerate(inputs):
                target = memory if root == self.rank else part
                self._call("ncclReduce", part.address, target.address, *self._reduction(part, dtype, op), root)

    def all_to_all(self, inputs: Sequence[Memory], outputs: Sequence[Memory], timeout: float) -> None:
        """Send inputs[r] to rank r, and receive outputs[r] from it."""
        with self.together():
            for peer, (source, target) in enumerate(zip(inputs, outputs)):
                if source.nbytes:
                    self._call("ncclSend", source.address, source.nbytes, _BYTES, peer)
                if target.nbytes:
                    self._call("ncclRecv", target.address, target.nbytes, _BYTES, peer)

    def gather(self, memory: Memory, outputs: Sequence[Memory], root: int, timeout: float) -> None:
        with self.together():
            self._call("ncclSend", memory.address, memory.nbytes, _BYTES, root)
            for peer, output in enumerate(outputs if self.rank == root else ()):
                self._call("ncclRecv", output.address, output.nbytes, _BYTES, peer)

    def scatter(self, memory: Memory, inputs: Sequence[Memory], root: int, timeout: float) -> None:
        with self.together():
            for peer, source in enumerate(inputs if self.rank == root else ()):
                self._call("ncclSend", source.address, source.nbytes, _BYTES, peer)
            self._call("ncclRecv", memory.address, memory.nbytes, _BYTES, root)

    # -- between two ranks --------------------------------------------------------------------------------------------

    def isend(self, memory: Memory, peer: int, tag: int, timeout: float) -> Arrived:
        self._call("ncclSend", memory.address, memory.nbytes, _BYTES, peer)
        return Arrived(peer)

    def irecv(self, memory: Memory, peer: int | None, tag: int, timeout: float) -> Arrived:
        if peer is None:
            raise RuntimeError("ProcessGroupNCCL does not support recvAnysource")
        self._call("ncclRecv", memory.address, memory.nbytes, _BYTES, peer)
        return Arrived(peer)

    def close(self) -> None:
        """Free the communicator. After an error it is aborted: destroying it would wait for ranks that may have ended."""
        if self.comm:
            failed = _int()
            broken = self.nccl.ncclCommGetAsyncError(self.comm, ctypes.byref(failed)) or failed.value
            (self.nccl.ncclCommAbort if broken else self.nccl.ncclCommDestroy)(self.comm)
            self.comm = _handle()


def _adjacent(parts: Sequence[Memory]) -> bool:
    """Return whether memories of one size are contiguous, one after the other."""
    first, size = parts[0].address, parts[0].nbytes
    return all(part.nbytes == size and part.address == first + r * size for r, part in enumerate(parts))
