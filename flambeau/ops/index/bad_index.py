"""How kernels say that an index is out of bounds."""

from __future__ import annotations

import ctypes
import threading

from ...core import dtype as dt
from ...core.tensor import empty


class BadIndex(threading.local):
    """Two numbers of this thread that kernels report a bad index in (see kernels.library.index); zero in between."""

    def __init__(self) -> None:
        self.buffer = empty((2,), dt.int64)
        self._numbers = (ctypes.c_int64 * 2).from_address(self.buffer._storage.ptr)
        self._numbers[:] = [0, 0]

    def taken(self) -> int | None:
        """The bad index that the last kernel met, if there was one."""
        numbers = self._numbers
        if not numbers[0]:
            return None
        bad = numbers[1]
        numbers[:] = [0, 0]
        return bad


bad_index = BadIndex()
