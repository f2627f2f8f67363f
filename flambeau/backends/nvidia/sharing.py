"""Device memory that several processes share: the driver's handle of an allocation is sent, not the bytes.

The sender keeps the memory until the receiver reports, in a few bytes that both map, that it has released it. The receiver's work must not
start before the sender's is done, so the sender waits for its stream."""

from __future__ import annotations

import ctypes
import os
from multiprocessing.reduction import DupFd
from typing import Any

from ...core.backend import backend_of
from ...core.device import device
from ...core.shared_memory import SharedBlock
from ...core.storage import UntypedStorage
from . import driver, threads
from .memory import memories

_LAZY_PEERS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
_sent: dict[int, tuple[UntypedStorage, SharedBlock]] = {}  # by the address of the bytes that say whether it is in use


class Mapped:
    """Memory of another process, mapped here until this object is freed."""

    def __init__(self, handle: bytes, index: int, flag: SharedBlock):
        threads.activate(index)
        place = ctypes.c_uint64()
        given = driver.IpcHandle.from_buffer_copy(handle)
        driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(place), given, _LAZY_PEERS)
        self.address, self.index, self.flag = place.value, index, flag

    def __del__(self, functions: Any = driver.loaded) -> None:
        address = getattr(self, "address", 0)
        if address and functions() is not None:
            threads.activate(self.index)
            functions().cuCtxSynchronize()  # work here may still use it
            functions().cuIpcCloseMemHandle(address)
            ctypes.c_int64.from_address(self.flag.ptr).value = 0


def collect() -> None:
    """Free memory that receivers no longer use."""
    for key, (_, flag) in list(_sent.items()):
        if not ctypes.c_int64.from_address(flag.ptr).value:
            del _sent[key]


def share(storage: UntypedStorage) -> tuple[Any, ...]:
    """Return the function, with its arguments, that another process calls to map a storage's memory."""
    if isinstance(storage.owner, Mapped):
        raise RuntimeError(
            "Attempted to send CUDA tensor received from another process; this is not currently supported. Consider cloning before"
            " sending."
        )
    collect()
    index = storage.device.index or 0
    stream = threads.activate(index)
    driver.call("cuStreamSynchronize", stream)
    block = memories()[index].blocks[storage.ptr]
    while block.before is not None:
        block = block.before
    handle = driver.IpcHandle()
    driver.call("cuIpcGetMemHandle", ctypes.byref(handle), block.address)
    flag = SharedBlock.allocate(8)
    ctypes.c_int64.from_address(flag.ptr).value = 1
    _sent[flag.ptr] = storage, flag
    given = (
        os.getpid(),
        flag.ptr,
        bytes(handle),
        storage.ptr - block.address,
        storage.size_bytes,
        index,
        DupFd(flag.fd),
    )
    return received, given


def received(
    sender: int, key: int, handle: bytes, offset: int, nbytes: int, index: int, descriptor: Any
) -> UntypedStorage:
    """Return the memory that a process has sent; in that process, the storage itself."""
    flag = SharedBlock(descriptor.detach(), 8)
    if sender == os.getpid() and key in _sent:
        ctypes.c_int64.from_address(flag.ptr).value = 0
        return _sent[key][0]
    where = device("cuda", index)
    backend_of(where)
    mapped = Mapped(handle, index, flag)
    return UntypedStorage.borrow(mapped.address + offset, nbytes, mapped, where)
