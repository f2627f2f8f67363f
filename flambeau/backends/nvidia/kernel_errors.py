"""Errors that kernels find in values: a kernel cannot raise for a bad index, so it writes a note for the host.

Every launch that may do so gets a slot for its note, in host memory that kernels can write, and the host stores beside it which line of the
program started it. It reads the notes whenever it waits for the device anyway; the error names the operator and that line, and the process
continues. Slots are reused in turn; those of captured graphs are not, because graphs run again."""

from __future__ import annotations

import ctypes
import functools
import linecache
import sys
from typing import Any

import numpy as np

from ...core.device import device
from ...core.locks import new_lock
from . import driver, graphs, threads

_NUMBERS = 4  # of a note: a code, and the numbers of its message
_PAGE = 1024  # notes
_MAPPED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
_INSIDE = __name__.partition(".")[0] + "."  # how names of modules of this package begin
# The first one is what loop kernels write, which do not know who called them.
_known: list[tuple[str, str, type[Exception]]] = [("indexing", "index {1} is out of bounds", IndexError)]
_codes: dict[tuple[str, str], int] = {}
_lock = new_lock()


class Page:
    """Slots for notes, and for each the operator and the line that it was given to."""

    def __init__(self, address: int | None = None):
        size = 8 * _NUMBERS * _PAGE
        self.address = address or driver.number("cuMemHostAlloc", size, _MAPPED, kind=ctypes.c_void_p)
        ctypes.memset(self.address, 0, size)
        words = (ctypes.c_int64 * (_NUMBERS * _PAGE)).from_address(self.address)
        self.notes = np.ctypeslib.as_array(words).reshape(_PAGE, _NUMBERS)
        self.codes = self.notes[:, 0]
        self.given: list[tuple[str, str, int]] = [("", "", 0)] * _PAGE
        self.next = 0

    def found(self) -> tuple[int, ...] | None:
        """Return the first note that was written, preceded by its slot, or None."""
        if not self.codes.any():
            return None
        at = int(np.argmax(self.codes != 0))
        return (at, *self.notes[at].tolist())


_pages: list[Page] = []  # the first one is used in turn, the others are those of graphs


def error_code(operator: str, text: str, kind: type[Exception] = IndexError) -> int:
    """Return the number that a kernel writes for this error. In the text, {1}, {2} and {3} are the numbers that it writes beside it."""
    key = (operator, text)
    if key not in _codes:
        _known.append((operator, text, kind))
        _codes[key] = len(_known)
    return _codes[key]


def error_flag(where: device, operator: str = "") -> int:
    """Return the address, for one launch, of four int64: the code of its first error, and the numbers of its message."""
    index = where.index or 0
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame = frame.f_back
    caller = (operator, frame.f_code.co_filename, frame.f_lineno)
    with _lock:
        page = _page(graphs.is_capturing(index))
        at = page.next
        page.next = (at + 1) % _PAGE
        page.given[at] = caller
    return _on_device(page.address, index) + 8 * _NUMBERS * at


def _page(lasting: bool) -> Page:
    """Return a page with a free slot; a slot of a `lasting` page is given once."""
    if not _pages:
        _pages.append(Page())
    if not lasting:
        return _pages[0]
    if len(_pages) == 1 or _pages[-1].next == _PAGE - 1:
        _pages.append(Page())
    return _pages[-1]


@functools.cache
def _on_device(address: int, index: int) -> int:
    threads.activate(index)
    return driver.number("cuMemHostGetDevicePointer_v2", address, 0)


def look() -> None:
    """Raise the error that a kernel has reported, if any."""
    for page in _pages:
        note = page.found()
        if note is not None:
            for other in _pages:  # one mistake often leads to others
                other.notes[:] = 0
            at, code, *numbers = note
            operator, text, kind = _known[code - 1]
            given, file, line = page.given[at]
            source = linecache.getline(file, line).strip()
            raise kind(
                f"{given or operator}: {text.format(code, *numbers)}, in {file}:{line}{f' ({source})' if source else ''}. A kernel on"
                " the GPU has found this out after it was started there; the result of that call is not to be used."
            )
