"""Sending tensors between processes: descriptors of shared memory, not bytes."""

from __future__ import annotations

import ctypes
import pickle
import threading
from collections.abc import Callable
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from ..core.backend import backend_of
from ..core.device import cpu
from ..core.shared_memory import SharedBlock
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, empty_strided
from ..ops.machinery.inplace import raw_copy
from ..ops.methods.python_protocol import reduce_ex

_strategy = ["file_descriptor"]


def get_all_sharing_strategies() -> set[str]:
    """Return PyTorch's names for the strategies of sharing memory."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """Return the current strategy of sharing memory."""
    return _strategy[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Store one of PyTorch's names. Both mean the same here: descriptors are closed once mapped by a data loader, so the reason for
    choosing 'file_system' (running out of them) does not arise."""
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}: expected 'file_descriptor' or 'file_system'")
    _strategy[0] = new_strategy


# -- how a storage travels --------------------------------------------------------------------------------------------


class _StorageTransfer(threading.local):
    """Functions that transfer storages while this thread writes or reads a message with custom memory transfer."""

    send: Callable[[UntypedStorage], tuple | None] | None = None  # what to call with which arguments at the other end
    receive: Callable[..., UntypedStorage] | None = None


_storage_transfer = _StorageTransfer()


def _shared_block(storage: UntypedStorage) -> SharedBlock:
    """Return shared memory with the storage's bytes: its own if it has a descriptor, else a copy."""
    owner = storage.owner
    if isinstance(owner, SharedBlock) and owner.fd >= 0:
        return owner
    block = SharedBlock.allocate(storage.size_bytes)
    ctypes.memmove(block.ptr, storage.ptr, storage.size_bytes)
    return block


def _reduce_storage(storage: UntypedStorage) -> tuple:
    if storage.device.type == "meta" or not storage.size_bytes:
        return (UntypedStorage, (storage.size_bytes, storage.device))
    if isinstance(storage.owner, UntypedStorage):  # an alias: what travels is the memory
        storage = storage.owner
    if storage.device is not cpu:
        return backend_of(storage.device).share(storage)
    if _storage_transfer.send is not None:
        address = _storage_transfer.send(storage)
        return storage.__reduce__() if address is None else (_storage_from_courier, address)
    if isinstance(storage.owner, SharedBlock) and storage.owner.fd < 0:
        block = _shared_block(storage)  # came through a data loader: its descriptor is gone
    else:
        storage.share_memory_()  # so that sender and receiver see each other's changes, as in PyTorch
        block = _shared_block(storage)
    return (_storage_from_descriptor, (DupFd(block.fd), storage.size_bytes))


def _storage_from_courier(*address: Any) -> UntypedStorage:
    if _storage_transfer.receive is None:
        raise RuntimeError("this message can only be read at the other end of the channel it was sent through")
    return _storage_transfer.receive(*address)


def _storage_from_descriptor(descriptor: Any, nbytes: int) -> UntypedStorage:
    block = SharedBlock(descriptor.detach(), nbytes)
    return UntypedStorage.borrow(block.ptr, nbytes, block)


def _reduce_tensor(tensor: Tensor) -> tuple:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad: a graph does not cross the boundary"
            " between processes. To transfer the values only, call detach() on the tensor before sending it."
        )
    storage = tensor._storage
    if _storage_transfer.send is not None and not storage.is_shared() and 2 * tensor.nbytes < storage.size_bytes:
        compact = empty_strided(tensor.shape, _dense_strides(tensor), tensor.dtype)  # not all that it is a view of
        raw_copy(compact, tensor)
        if tensor.requires_grad:
            compact.requires_grad = True
        tensor = compact
    return reduce_ex(tensor, pickle.HIGHEST_PROTOCOL)


def _dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return strides without gaps, in the tensor's own order of dimensions."""
    order = sorted(range(len(tensor.shape)), key=lambda d: tensor._strides[d])
    strides, step = [1] * len(order), 1
    for d in order:
        strides[d] = step
        step *= max(tensor.shape[d], 1)
    return tuple(strides)


def init_reductions() -> None:
    """Register tensors with multiprocessing's pickler."""
    ForkingPickler.register(UntypedStorage, _reduce_storage)
    ForkingPickler.register(Tensor, _reduce_tensor)


# -- messages with a courier --------------------------------------------------------------------------------------------


def pack(message: Any, send: Callable[[UntypedStorage], tuple[Any, ...] | None]) -> Any:
    """Return the pickled message. `send(storage)` transfers its memory and returns what to tell the receiver; None: the bytes are put into
    the message."""
    _storage_transfer.send = send
    try:
        return ForkingPickler.dumps(message)
    finally:
        _storage_transfer.send = None


def unpack(data: Any, receive: Callable[..., UntypedStorage]) -> Any:
    """Return the object given to `pack`, with `receive(*what send returned)` in the place of each storage."""
    _storage_transfer.receive = receive
    try:
        return pickle.loads(data)
    finally:
        _storage_transfer.receive = None
