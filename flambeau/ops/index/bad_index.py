"""Reports of kernels about an index that is out of bounds."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import watching
from ...core.backend import backend_of
from ...core.caching import remember
from ...core.device import cpu, device
from ...core.raw_memory import is_zero
from ...core.size import make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, copy_of_array, empty, new_tensor

_TWO = make_size((2,))


class BadIndex(threading.local):
    """Two numbers of this thread on every device, in which kernels report a bad index (see kernels.library.index); otherwise zero. On an
    asynchronous device the host does not wait to read them: the error is raised at its next wait."""

    def __init__(self) -> None:
        self.buffer = empty((2,), dt.int64)
        numbers = (ctypes.c_int64 * 2).from_address(self.buffer._storage.ptr)
        numbers[:] = [0, 0]
        self._buffers: dict[device, Tensor] = {cpu: self.buffer}
        self._readable: dict[device, Any] = {cpu: numbers}
        self._later: set[device] = set()
        self._notes: dict[int, Tensor] = {}  # by address, those of devices that report later

    def on(self, where: device, operator: str = "") -> Tensor:
        """Return the numbers in a device's memory, for one launch of an operator."""
        found = self._buffers.get(where)
        if found is None:
            address = backend_of(where).report_address(where, operator)
            if address:
                self._later.add(where)
                found = self._notes.get(address)
                if found is None:
                    storage = UntypedStorage.borrow(address, 16, None, where)
                    found = remember(self._notes, address, new_tensor(storage, _TWO, (1,), 0, dt.int64, where, True))
                return found
            zeros: Any = copy_of_array(np.zeros(2, np.int64), dt.int64)
            found = self._buffers[where] = zeros.to(where)
        return found

    def is_late(self, where: device) -> bool:
        """Return whether a device reports bad indices only when the host waits for it."""
        return where in self._later

    def taken(self, where: device = cpu) -> int | None:
        """Return the bad index that the last kernel reported there, or None, and clear the report."""
        numbers = self._readable.get(where)
        if numbers is None:
            return None if where in self._later else self._read_back(where)
        if watching.active:
            is_zero(self.buffer._storage.ptr, 8)
        if not numbers[0]:
            return None
        bad = numbers[1]
        numbers[:] = [0, 0]
        return bad

    def _read_back(self, where: device) -> int | None:
        buffer: Any = self._buffers[where]
        met, bad = buffer.tolist()
        if not met:
            return None
        del self._buffers[where]  # the next one is all zeros
        return bad


bad_index = BadIndex()
