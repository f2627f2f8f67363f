"""Shared memory blocks for batches, which are reused.

Fresh pages cost the system ten times what filling them costs, so a worker writes its batches into blocks it has used before. A block is
sent once, as a descriptor, and both processes keep it mapped. A message then only names it; when the last tensor over it is gone in the
loader's process, the next task for the worker says that the block is free again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections import deque
from typing import Any

from flambeau.core.allocator import round_size
from flambeau.core.shared_memory import SharedBlock
from flambeau.core.storage import UntypedStorage
from flambeau.core.uninterrupted import uninterrupted

MOST_NEW = 64  # blocks sent in one message: each is an open file for a moment, and a process may have few of them
_MOST_FREE = 16  # blocks a worker keeps for later
_SMALL = 1 << 16

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_count_fork)


class Lease(SharedBlock):
    """Right to use a block as long as this object exists."""

    __slots__ = ("root", "number", "home", "forks", "sent", "__weakref__")

    def __init__(self, root: SharedBlock, number: int, home: Any):
        self.ptr, self.nbytes, self.fd = root.ptr, root.nbytes, -1
        self.root, self.number, self.home = root, number, home
        self.forks, self.sent = _forks, False

    @uninterrupted
    def __del__(self) -> None:
        try:
            ended = self.home.ended
            # A child forked in the meantime may be reading the batch: then its bytes must not change.
            ended += ((self.number, self.sent, self.forks == _forks),)
        except AttributeError:  # construction was interrupted
            pass


class WorkerPool:
    """A worker's blocks: free, or in use by a batch here or in the loader's process."""

    def __init__(self) -> None:
        self._free: dict[int, SharedBlock] = {}  # the oldest first
        self._lent: dict[int, tuple[SharedBlock, weakref.ref[Lease]]] = {}
        self._count = 0
        self._new: list[tuple[int, SharedBlock]] = []  # to go with the message being written
        self._named: list[int] = []  # by that message
        self._dropped: list[int] = []
        self.ended: deque[tuple[int, bool, bool]] = deque()  # see Lease

    def storage(self, nbytes: int) -> UntypedStorage:
        """Allocate uninitialized shared memory."""
        if not nbytes:
            return UntypedStorage(0)
        self._look_for_ended()
        number = self._find_fitting(nbytes)
        if number is None:
            number, root = self._count, SharedBlock.allocate(-(-round_size(nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE)
            self._count += 1
        else:
            root = self._free.pop(number)
        lease = Lease(root, number, self)
        self._lent[number] = root, weakref.ref(lease)
        return UntypedStorage.borrow(root.ptr, nbytes, lease)

    def _find_fitting(self, nbytes: int) -> int | None:
        for number, root in self._free.items():
            if nbytes <= root.nbytes <= max(2 * nbytes, _SMALL):
                return number
        return None

    def _look_for_ended(self) -> None:
        """Free blocks that nothing in this process refers to any more and that were never sent."""
        while self.ended:
            number, sent, _ = self.ended.popleft()
            if not sent and number in self._lent:
                self._keep(number, self._lent.pop(number)[0])

    def _keep(self, number: int, root: SharedBlock) -> None:
        self._free[number] = root
        if len(self._free) > _MOST_FREE:
            oldest = next(iter(self._free))
            del self._free[oldest]
            self._dropped.append(oldest)

    def taken_back(self, returned: list[int], lost: list[int]) -> None:
        """Take back blocks that the loader's process no longer uses; drop lost ones, which a process forked from it may still see."""
        for number in lost:
            self._lent.pop(number, None)
        for number in returned:
            root, lease = self._lent.pop(number)
            if lease() is None:
                self._keep(number, root)
            else:
                self._dropped.append(number)  # the dataset has kept the batch: its bytes must stay

    # -- writing a message ----------------------------------------------------------------------------------------------

    def send(self, storage: UntypedStorage) -> tuple | None:
        """Return the message to the loader's process about a storage."""
        lease = storage.owner
        if not isinstance(lease, Lease) or lease.home is not self or lease.sent:
            if len(self._new) >= MOST_NEW:
                return None
            copied = self.storage(storage.size_bytes)
            ctypes.memmove(copied.ptr, storage.ptr, storage.size_bytes)
            lease = copied.owner
        root = lease.root
        if root.fd >= 0:
            if len(self._new) >= MOST_NEW:
                return None
            self._new.append((lease.number, root))
        lease.sent = True
        self._named.append(lease.number)
        return (lease.number, storage.size_bytes)

    def take_news(self) -> tuple[list[tuple[int, SharedBlock]], list[int]]:
        """Return the blocks that the other process has not mapped yet, and those it can unmap."""
        news = self._new, self._dropped
        self._new, self._dropped, self._named = [], [], []
        return news

    def recall(self) -> None:
        """Keep the blocks of a message that could not be written."""
        for number in self._named:
            root, reference = self._lent[number]
            lease = reference()
            if lease is not None:
                lease.sent = False
            else:
                del self._lent[number]
                self._keep(number, root)
        self._named, self._new = [], []


class LoaderBlocks:
    """The loader's side: mappings of one worker's blocks, and which of them are no longer in use."""

    def __init__(self) -> None:
        self._roots: dict[int, SharedBlock] = {}
        self.ended: deque[tuple[int, bool, bool]] = deque()  # see Lease

    def add(self, number: int, fd: int, nbytes: int) -> None:
        self._roots[number] = SharedBlock(fd, nbytes, keep_fd=False)

    def forget(self, number: int) -> None:
        self._roots.pop(number, None)

    def receive(self, number: int, nbytes: int) -> UntypedStorage:
        root = self._roots[number]
        return UntypedStorage.borrow(root.ptr, nbytes, Lease(root, number, self))

    def take_ended(self) -> tuple[list[int], list[int]]:
        """Return the blocks that the worker can use again, and those it cannot."""
        returned: list[int] = []
        lost: list[int] = []
        while self.ended:
            number, _, clean = self.ended.popleft()
            if clean:
                returned.append(number)
            else:
                lost.append(number)
                self.forget(number)
        return returned, lost


_pool: WorkerPool | None = None


def worker_pool() -> WorkerPool:
    """Return the pool of this worker process."""
    global _pool
    if _pool is None:
        _pool = WorkerPool()
    return _pool
