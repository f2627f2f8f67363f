"""Memory that several processes map at once.

A block is an anonymous file in memory: it has no name that could be left behind, is not bounded by the size of the
/dev/shm mount, and lives as long as some process maps it or holds its descriptor.
"""

from __future__ import annotations

import ctypes
import mmap
import os

from .uninterrupted import at_once, uninterrupted

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_munmap = _libc.munmap
_munmap.restype = ctypes.c_int
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

_unmap, _close = at_once(_munmap), at_once(os.close)

_FAILED = ctypes.c_void_p(-1).value
_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
# All pages at once: a page fault for each costs more than the copy into it.
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


class SharedBlock:
    """A mapping of shared memory, unmapped when the object is freed. `fd` is the descriptor with which another process maps it, too; -1 if it
    was closed. (Python's own mmap keeps a descriptor for every mapping, and a loader would run out of them.)"""

    __slots__ = ("ptr", "nbytes", "fd", "_unmap", "_close")

    def __init__(self, fd: int, nbytes: int, keep_fd: bool = True):
        """Map the file `fd`, which the block owns from now on."""
        self.ptr, self.nbytes, self.fd = 0, nbytes, fd
        self._unmap, self._close = _unmap, _close  # module globals may be gone at interpreter exit
        address = _mmap(None, nbytes, _ACCESS, _FLAGS, fd, 0)
        if address == _FAILED or address is None:
            reason = os.strerror(ctypes.get_errno())
            raise RuntimeError(f"unable to map {nbytes} bytes of shared memory: {reason}")
        self.ptr = address
        if not keep_fd:
            self.give_up_descriptor()

    def give_up_descriptor(self) -> None:
        """Close the descriptor: no other process will be sent this block."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @classmethod
    def allocate(cls, nbytes: int) -> SharedBlock:
        """Allocate a new block of `nbytes` (more than 0) bytes."""
        try:
            fd = _memory_file()
        except OSError as problem:
            raise RuntimeError(f"unable to create a shared memory file of {nbytes} bytes: {problem}") from None
        try:
            # Reserves the pages now: with a mere size, writing to them could end the process with a bus error.
            os.posix_fallocate(fd, 0, nbytes)
            return cls(fd, nbytes)
        except OSError as problem:
            os.close(fd)
            raise RuntimeError(
                f"unable to allocate {nbytes} bytes of shared memory: {problem}. Free memory, raise the limit, or use"
                " fewer data-loader workers, a smaller prefetch_factor or smaller batches."
            ) from None

    @uninterrupted
    def __del__(self) -> None:
        try:
            if self.ptr:
                self._unmap[self.ptr] = self.nbytes
                self.ptr = 0
            if self.fd >= 0:
                self._close[self.fd]
                self.fd = -1
        except AttributeError:  # construction failed early
            pass


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("flambeau", os.MFD_CLOEXEC)
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else os.environ.get("TMPDIR", "/tmp")
    path = f"{folder}/flambeau-{os.getpid()}-{os.urandom(8).hex()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return fd
