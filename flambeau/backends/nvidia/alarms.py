"""Errors that kernels find in values: a bad index cannot raise where it is met, so the kernel leaves a note for the host.

The note lies in memory of the host that kernels can write. The host looks at it wherever it waits for the device anyway; the error
names the operator, and the process goes on."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ...core.device import device
from . import driver, threads

_NUMBERS = 4
_MAPPED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
# The first one is what loop kernels write, which do not know who called them.
_known: list[tuple[str, str, type[Exception]]] = [("indexing", "index {1} is out of bounds", IndexError)]
_codes: dict[tuple[str, str], int] = {}
_note: Any = None


def error_code(operator: str, text: str, kind: type[Exception] = IndexError) -> int:
    """The number that a kernel writes for this mistake. In the text, {1}, {2} and {3} are the numbers that it left beside it."""
    key = (operator, text)
    if key not in _codes:
        _known.append((operator, text, kind))
        _codes[key] = len(_known)
    return _codes[key]


@functools.cache
def _place() -> int:
    global _note
    host = driver.number("cuMemHostAlloc", _NUMBERS * 8, _MAPPED, kind=ctypes.c_void_p)
    ctypes.memset(host, 0, _NUMBERS * 8)
    _note = (ctypes.c_int64 * _NUMBERS).from_address(host)
    return host


def error_flag(where: device) -> int:
    """The address, for kernels, of four int64: the code of the first mistake, and what it is about."""
    return _flag(where.index or 0)


@functools.cache
def _flag(index: int) -> int:
    threads.activate(index)
    return driver.number("cuMemHostGetDevicePointer_v2", _place(), 0)


def look() -> None:
    """Raise the error that a kernel has left, if any."""
    if _note is not None and _note[0]:
        code, *numbers = _note
        ctypes.memset(_note, 0, _NUMBERS * 8)
        operator, text, kind = _known[code - 1]
        raise kind(
            f"{operator}: {text.format(code, *numbers)} (found on the GPU by a kernel that had been started before; the result"
            " of that call is not to be used)"
        )
