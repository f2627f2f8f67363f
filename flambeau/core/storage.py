"""Storage: bytes on one device. Tensors are views of it."""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any

import numpy as np

from . import watching
from .allocator import LARGE, MAPPED, allocator, free, round_size, unmap
from .backend import BACKENDS, backend_of, has_backend
from .device import cpu
from .device import device as Device
from .graph import INFERENCE, grad_mode, inference_threads
from .raw_memory import NO_ADDRESS, move_bytes
from .shared_memory import SharedBlock
from .uninterrupted import at_once, uninterrupted

_allocate = allocator.allocate
_release = allocator.release
_free_blocks = allocator.free_blocks
_watched = watching.active
_free, _unmap = at_once(free), at_once(unmap)


class Lease:
    """A block lent to a storage (`refill`)."""

    __slots__ = ("block",)

    def __init__(self, block: UntypedStorage):
        self.block = block


class UntypedStorage:
    """A block of bytes. `owner` is set when the memory belongs to something else (a NumPy array, a mapped file); if it is the
    allocator's, `capacity` is the size of the block, which goes back to it with the storage.

    `version` counts in-place changes for autograd; `watched` is set once a graph has saved a tensor of this storage, so that the next change
    is noted with the operator that made it (`last_write`). `aliases` (storages over the same bytes), `fixed` (the address was given away, so
    it may not move) and `origin` (where in its file it begins, of a storage on the device meta) are rare and left unset until needed."""

    __slots__ = (
        "ptr", "size_bytes", "capacity", "owner", "device", "version", "watched", "last_write", "aliases", "fixed",
        "origin", "__weakref__",
    )  # fmt: skip

    ptr: int
    size_bytes: int
    capacity: int
    owner: Any
    device: Device
    version: int
    watched: bool
    last_write: tuple[Any, ...] | None
    aliases: list[weakref.ref[Any]]
    fixed: bool
    origin: int | None
    is_sparse = is_sparse_csr = is_hpu = False

    def __init__(self, nbytes: int = 0, device: Device = cpu):
        self.device = device
        self.size_bytes = nbytes
        self.owner = None
        if inference_threads and grad_mode.inference:
            self.version, self.watched = INFERENCE, True
        else:
            self.version, self.watched = 0, False
        if device is cpu and nbytes:
            try:
                shift = nbytes.bit_length() - 4
            except AttributeError:
                self._hold(nbytes)
                return
            if shift < 6:
                shift = 6
            size = ((nbytes - 1 >> shift) + 1) << shift  # round_size, inlined: this runs for every new tensor
            if size < LARGE:
                try:
                    self.ptr = _free_blocks[size].pop()
                except (KeyError, IndexError):
                    self.ptr = _allocate(size)
            else:
                self.ptr = _allocate(size)
            self.capacity = size
        elif type(device) is Device and device.memory is not None and type(nbytes) is int:
            self.ptr = device.memory.allocate(nbytes) if nbytes else 0
            self.capacity = nbytes
        else:
            self.capacity, self.ptr = 0, 0 if device is cpu else NO_ADDRESS
            if type(device) is not Device or type(nbytes) is not int:
                self._place(nbytes, device)
                return
            elif device is not cpu and device.type != "meta":
                backend = backend_of(device)
                if device.index is None:
                    self.device = device = backend.indexed(device)
                self.ptr = 0
                if nbytes:
                    self.ptr = backend.allocate(nbytes, device)
                    self.capacity = nbytes
        if _watched:
            watching.tell_made(self)

    def _hold(self, values: Any) -> None:
        """Fill the storage with bytes from a sequence of ints, each taken modulo 256."""
        if not hasattr(values, "__len__"):
            raise RuntimeError(f"torch.UntypedStorage(): Expected a sequence type, but got {type(values).__name__}")
        for item in values:
            if not isinstance(item, (int, np.integer)):
                raise RuntimeError(
                    f"torch.UntypedStorage(): tried to construct a storage from a sequence ({type(values).__name__}), but one of"
                    f" the items was of type {type(item).__name__} instead of int"
                )
        data = bytes(int(item) & 255 for item in values)
        UntypedStorage.__init__(self, len(data))
        ctypes.memmove(self.ptr, data, len(data))

    def _place(self, size: Any, where: Any) -> None:
        """Initialise UntypedStorage(5, device="meta") or UntypedStorage([])."""
        count = size if isinstance(size, int) else len(size)
        where = Device(where)
        if where.type == "cpu":
            UntypedStorage.__init__(self, size if count else 0)
        else:
            UntypedStorage.__init__(self, count, where)

    @uninterrupted
    def __del__(self) -> None:
        try:
            size = self.capacity
            if size:
                if self.device is not cpu:
                    if self.device.memory is not None:
                        self.device.memory.release(self.ptr)
                    elif self.ptr and backend_of is not None:  # None when the program ends, as `cpu` is
                        backend_of(self.device).release(self.ptr, size, self.device)
                    return
                if size >= LARGE:
                    allocator.large_allocated -= size
                    if allocator.large_cached + size > allocator.cache_limit:
                        if size < MAPPED:
                            _free[self.ptr]
                        else:
                            _unmap[self.ptr] = size
                        return
                    allocator.large_cached += size
                blocks = _free_blocks[size]
                blocks += (self.ptr,)
        except AttributeError:  # construction failed before the block existed
            pass

    @staticmethod
    def borrow(ptr: int, nbytes: int, owner: Any, where: Device = cpu) -> UntypedStorage:
        """Return a storage over memory that `owner` keeps alive."""
        self = UntypedStorage(0, where)
        self.ptr, self.size_bytes, self.owner = ptr, nbytes, owner
        return self

    @staticmethod
    def from_file(filename: str, shared: bool | None = False, nbytes: int = 0) -> UntypedStorage:
        """Return the bytes of a file; with shared=True, changes go to the file, which is made if it does not exist."""
        if shared:
            with open(filename, "ab") as file:
                if file.tell() < nbytes:
                    file.truncate(nbytes)
        memory = np.memmap(filename, dtype=np.uint8, mode="r+" if shared else "c", shape=(nbytes,))
        return UntypedStorage.borrow(memory.ctypes.data, nbytes, memory)

    @property
    def filename(self) -> str | None:
        """Return the file that changes go to, or None if there is none."""
        shared = isinstance(self.owner, np.memmap) and self.owner.mode == "r+"
        return str(self.owner.filename) if shared else None

    def alias(self) -> UntypedStorage:
        """Return a storage of the same bytes with a version counter of its own (as `.data` has)."""
        root = self.owner if isinstance(self.owner, UntypedStorage) else self
        twin = UntypedStorage.borrow(self.ptr, self.size_bytes, root, self.device)
        known = getattr(root, "aliases", None)
        if known is None:
            known = root.aliases = []
        elif len(known) >= 16:
            known[:] = [r for r in known if r() is not None]
        known.append(weakref.ref(twin))
        return twin

    def change_state(self) -> tuple[Any, ...]:
        """Return a value that differs after a change in place, one through `.data` included, and after any new use of that."""
        root = self.owner if isinstance(self.owner, UntypedStorage) else self
        known = getattr(root, "aliases", None) or ()
        twins = [twin.version for r in known if (twin := r()) is not None]
        return (root.version, self.version, known[-1], *twins) if known else (root.version, self.version)

    def fix(self) -> None:
        """Forbid moving the bytes: something outside holds their address."""
        root = self.owner if isinstance(self.owner, UntypedStorage) else self
        root.fixed = True

    def _move(self, ptr: int, nbytes: int) -> None:
        self.ptr, self.size_bytes = ptr, nbytes
        for reference in getattr(self, "aliases", ()):
            twin = reference()
            if twin is not None:
                twin.ptr, twin.size_bytes = ptr, nbytes

    @property
    def _cdata(self) -> int:
        """Return a number that identifies the storage."""
        return id(self.owner if isinstance(self.owner, UntypedStorage) else self)

    @property
    def _checkpoint_offset(self) -> int | None:
        return getattr(self, "origin", None)

    # -- PyTorch's interface ----------------------------------------------------------------------------------------
    def data_ptr(self) -> int:
        return self.ptr or 0

    def nbytes(self) -> int:
        return self.size_bytes

    def size(self) -> int:
        return self.size_bytes

    __len__ = size

    def element_size(self) -> int:
        return 1

    def untyped(self) -> UntypedStorage:
        return self

    def cpu(self) -> UntypedStorage:
        return self if self.device is cpu else UntypedStorage(self.size_bytes).copy_(self)

    def new(self) -> UntypedStorage:
        """Return an empty storage on the same device."""
        return UntypedStorage(0, self.device)

    def type(self) -> str:
        return "torch.storage.UntypedStorage"

    def is_pinned(self, device: Any = "cuda") -> bool:
        """Return whether the bytes are in page-locked host memory."""
        root = self.owner if isinstance(self.owner, UntypedStorage) else self
        return getattr(root.owner, "is_pinned", False)

    def pin_memory(self, device: Any = "cuda") -> UntypedStorage:
        """Return a copy in page-locked host memory, or the storage itself if it is there."""
        if self.device is not cpu:
            raise TypeError(
                f"cannot pin 'torch.storage.UntypedStorage' on {self.device}: only CPU memory can be pinned"
            )
        return self if self.is_pinned() else pinned_storage(self.size_bytes).copy_(self)

    def get_device(self) -> int:
        return -1 if self.device.index is None else self.device.index

    @staticmethod
    def from_buffer(
        buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *, dtype: Any = None
    ) -> UntypedStorage:
        """Return a storage with a copy of the bytes of an object with the buffer protocol: `count` elements of `dtype`, swapped if they have
        the other byte order."""
        data = memoryview(buffer).cast("B")
        width = 1 if dtype is None else dtype.itemsize
        order = "native" if byte_order is None and width == 1 else byte_order
        _check_buffer(len(data), order, count, offset, width)
        storage = _storage_from_bytes(bytes(data[offset:] if count < 0 else data[offset : offset + count * width]))
        if order not in ("native", sys.byteorder) and dtype is not None:
            storage.byteswap(dtype)
        return storage

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def resizable(self) -> bool:
        if isinstance(self.owner, UntypedStorage):
            return self.owner.resizable()
        return self.owner is None and not getattr(self, "fixed", False)

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Grow or shrink, keeping the bytes that fit."""
        if nbytes < 0:
            raise RuntimeError(f"storage size must not be negative, got {nbytes}")
        if not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable")
        if isinstance(self.owner, UntypedStorage):
            self.owner.resize_(nbytes)
            return self
        if self.device.type == "meta":
            self._move(0, nbytes)
            return self
        if self.device is not cpu:
            self._resize_on_device(nbytes)
            return self
        if nbytes <= self.capacity:  # a shrunken storage keeps its block: tensors may still refer to all of it
            self._move(self.ptr, nbytes)
            return self
        size = round_size(nbytes)
        fresh, old, old_capacity = _allocate(size), self.ptr, self.capacity
        if old:
            ctypes.memmove(fresh, old, min(self.size_bytes, nbytes))
        self.ptr, self.capacity = fresh, size  # before the old block is released: it must never have two owners
        self._move(fresh, nbytes)
        if old:
            _release(old, old_capacity)
        return self

    def give_back(self) -> None:
        """Return the block to the allocator while tensors still refer to it: they have no values until `refill`. Until then tensors of it
        saved for a backward pass count as changed, so that they are not read."""
        if not self.size_bytes:
            return
        if type(self.owner) is not Lease:
            if not self.resizable():
                raise RuntimeError("Trying to resize storage that is not resizable")
            block = UntypedStorage(0, self.device)
            block.ptr, block.capacity, self.capacity = self.ptr, self.capacity, 0  # which go with it
        self.owner, self.version = None, -1 - self.version
        self._move(0, 0)

    def refill(self, nbytes: int) -> None:
        """Allocate a block for a storage that has none; the caller writes the values from before `give_back` to it."""
        if not self.size_bytes and nbytes:
            block = UntypedStorage(nbytes, self.device)
            self.owner = Lease(block)
            self._move(block.ptr, nbytes)
            if self.version < 0:
                self.version = -1 - self.version

    def _resize_on_device(self, nbytes: int) -> None:
        if nbytes <= self.capacity:
            self._move(self.ptr, nbytes)
            return
        fresh = UntypedStorage(nbytes, self.device)
        if self.ptr and self.size_bytes:
            move_bytes(fresh.ptr, self.device, self.ptr, self.device, min(self.size_bytes, nbytes))
        self.ptr, fresh.ptr = fresh.ptr, self.ptr  # the old block goes with `fresh`
        self.capacity, fresh.capacity = fresh.capacity, self.capacity
        self._move(self.ptr, nbytes)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the bytes as a uint8 array that shares memory and keeps the storage alive."""
        if self.device is cpu and not self.size_bytes:
            return np.empty(0, np.uint8)
        return np.frombuffer(self.buffer(), np.uint8)

    def buffer(self) -> Any:
        """Return a ctypes array over the bytes, which keeps the storage alive."""
        if self.device is not cpu:
            raise NotImplementedError(
                f"Not available for '{self.device.type}' device type: there are no bytes to look at"
            )
        if _watched:
            watching.tell_looked()
        block: Any = (ctypes.c_char * self.size_bytes).from_address(self.ptr)
        block._storage = self
        return block

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes to memory that can be shared with other processes."""
        if isinstance(self.owner, UntypedStorage):
            self.owner.share_memory_()
            return self
        if self.device.type == "meta":
            raise RuntimeError("share_memory_(): only available on CPU, and this storage is on meta")
        if self.is_shared() or not self.size_bytes or self.device is not cpu:
            return self
        block = SharedBlock.allocate(self.size_bytes)
        ctypes.memmove(block.ptr, self.ptr, self.size_bytes)
        old, old_capacity, fixed = self.ptr, self.capacity, getattr(self, "fixed", False)
        self.ptr, self.capacity, self.owner = block.ptr, 0, block
        self._move(block.ptr, self.size_bytes)
        if old_capacity and not fixed:  # else something still refers to the old bytes
            _release(old, old_capacity)
        return self

    def is_shared(self) -> bool:
        if isinstance(self.owner, UntypedStorage):
            return self.owner.is_shared()
        return isinstance(self.owner, SharedBlock)

    def copy_(self, source: UntypedStorage) -> UntypedStorage:
        if source.size_bytes != self.size_bytes:
            raise RuntimeError(f"size mismatch: {self.size_bytes} bytes here, {source.size_bytes} in the source")
        move_bytes(self.ptr, self.device, source.ptr, source.device, self.size_bytes)
        return self

    def clone(self) -> UntypedStorage:
        return UntypedStorage(self.size_bytes, self.device).copy_(self)

    def fill_(self, value: int) -> UntypedStorage:
        if self.size_bytes:
            BACKENDS[self.device.type].fill(self.ptr, value, self.size_bytes, self.device)
        return self

    def tolist(self) -> list[int]:
        return self.numpy().tolist()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(*self._bounds(index))
        if not isinstance(index, (int, np.integer)):
            raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        return int(self.numpy()[index])

    def _bounds(self, index: slice) -> tuple[int, int]:
        start, stop, step = index.indices(self.size_bytes)
        if step != 1:
            raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
        return start, max(start, stop)

    def _part(self, start: int, stop: int) -> UntypedStorage:
        """Return a storage over some of the bytes."""
        self.fix()
        return UntypedStorage.borrow(self.ptr + start, stop - start, self.buffer())

    def __setitem__(self, index: Any, value: int) -> None:
        """Write an int, of which the lowest eight bits are kept, at one place from the beginning or at all of a slice."""
        if not isinstance(value, int):
            raise RuntimeError(f"can only set storage content with a int types, but got {type(value).__name__} instead")
        if isinstance(index, slice):
            self.numpy()[slice(*self._bounds(index))] = value & 255
        elif not isinstance(index, int) or not 0 <= index < self.size_bytes:
            raise RuntimeError(f"can't set byte {index!r} of a storage of {self.size_bytes} bytes")
        else:
            self.numpy()[index] = value & 255

    def __iter__(self) -> Any:
        return iter(self.tolist())

    __copy__ = clone

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        return memo[id(self)]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.size_bytes

    def byteswap(self, dtype: Any) -> None:
        """Swap the byte order of elements of `dtype`, in place."""
        width = dtype.itemsize // (2 if dtype.is_complex else 1)
        if width > 1 and self.size_bytes:
            self.numpy()[: self.size_bytes // width * width].view(f"u{width}").byteswap(inplace=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UntypedStorage):
            return NotImplemented
        return self.ptr == other.ptr and self.size_bytes == other.size_bytes and self.device is other.device

    def __hash__(self) -> int:
        return hash((self.ptr, self.size_bytes))

    def __repr__(self) -> str:
        body = " " + "\n ".join(map(str, self.tolist())) if self.device is cpu else "..."
        return f"{body}\n[torch.storage.UntypedStorage(device={self.device}) of size {self.size_bytes}]"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.device is not cpu:
            return (UntypedStorage, (self.size_bytes, self.device))
        return (_storage_from_bytes, (self.numpy().tobytes(),))


def pinned_storage(nbytes: int) -> UntypedStorage:
    """Return page-locked host memory for copies to the accelerator, which must exist."""
    accelerator = Device("cuda")
    if not has_backend(accelerator):
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return backend_of(accelerator).pinned(nbytes)


def _check_buffer(length: int, order: str | None, count: int, offset: int, width: int) -> None:
    if order is None:
        raise RuntimeError("from_buffer(): missing required argument 'byte_order': elements have several bytes")
    if order not in ("big", "little", "native"):
        raise ValueError(f"invalid byte_order '{order}' (expected 'big', 'little', or 'native')")
    if not 0 <= offset <= length:
        raise ValueError(f"offset must be non-negative and no greater than buffer length ({length}), but got {offset}")
    if count < 0 and (length - offset) % width:
        raise ValueError(f"buffer size ({length - offset}) must be a multiple of element size ({width})")
    if offset + count * width > length:
        raise ValueError(
            f"buffer has only {length - offset} bytes after offset {offset}, but specified a size of {count}"
        )


def _storage_from_bytes(data: bytes) -> UntypedStorage:
    storage = UntypedStorage(len(data))
    ctypes.memmove(storage.ptr, data, len(data))
    return storage
