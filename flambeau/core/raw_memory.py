"""Bytes of memory: set to a value, copied within and between devices, tested."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from . import watching
from .backend import BACKENDS
from .device import device as Device

_watched = watching.active


def first_address(t: Any) -> int:
    """Return the address of a tensor's first element, for kernels: watchers are not notified."""
    return t._storage.ptr + t._offset * t.dtype.itemsize


def set_bytes(address: int, value: int, nbytes: int) -> None:
    """Set bytes of the host's memory to one value."""
    if _watched:
        watching.tell_filled(address, value, nbytes)
    ctypes.memset(address, value, nbytes)


class _NoAddress:
    """The address of memory that does not exist: zero in comparisons, an error in arithmetic. So a kernel that is given a meta tensor beside
    others stops before the call."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return other == 0 if isinstance(other, int) else other is self

    def __hash__(self) -> int:
        return 0

    def __add__(self, other: int) -> int:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cpu and meta! (A tensor on the"
            " meta device has no values.)"
        )

    __radd__ = __add__


NO_ADDRESS: Any = _NoAddress()


class _Transfers(threading.local):
    """Setting of this thread: whether copies between the host and a device are waited for."""

    wait = True


transfers = _Transfers()


def move_bytes(destination: int, there: Device, source: int, here: Device, nbytes: int) -> None:
    """Copy bytes within a device or from one to another."""
    giver, taker = BACKENDS[here.type], BACKENDS[there.type]
    if not nbytes or not taker.has_values:
        return
    if here is there:
        giver.copy(destination, source, nbytes, here)
    elif taker.on_host:
        read = giver.read if transfers.wait else giver.read_later
        read(destination, source, nbytes, here)
    elif giver.on_host:
        write = taker.write if transfers.wait else taker.write_later
        write(destination, source, nbytes, there)
    elif giver is taker:
        giver.copy_across(destination, there, source, here, nbytes)
    else:  # through the host
        staging = ctypes.create_string_buffer(nbytes)
        giver.read(ctypes.addressof(staging), source, nbytes, here)
        taker.write(destination, ctypes.addressof(staging), nbytes, there)


def is_zero(address: int, nbytes: int, error: Exception | None = None) -> bool:
    """Return whether a number in memory is zero. For kernels that report failures: a caller that finds another value raises an error (this
    one, or one with more details), so that a recording may assume zero and test again in each replay."""
    if _watched:
        watching.tell_tested(address, nbytes, error)
    return not any(ctypes.string_at(address, nbytes))
