"""Lookup of the buffer that an address belongs to, while a function is being recorded."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.records import record


class Ref(NamedTuple):
    """A place in a buffer, in bytes from its start."""

    buffer: int
    offset: int

    def __repr__(self) -> str:
        return f"%{self.buffer}" + (f"+{self.offset}" if self.offset else "")


make_ref: Callable[[tuple[int, int]], Ref] = functools.partial(tuple.__new__, Ref)  # runs no Python code


@record
class Buffer:
    """Memory that a recorded function uses. `source` says whose it is: "new" (made by the function), "state" (a tensor the function
    found), ("argument", i), ("engine", generator), ("words", generator) or "workspace"."""

    index: int
    address: int
    size: int
    source: Any = "new"
    storage: Any = None  # of a tensor that existed before
    dtype: Any = None  # and its dtype, where that is known


_LEAVES = frozenset((int, float, bool, str, type(None)))  # of structures: nothing is in them


class Memory:
    """Buffers by address. Freed addresses are reused, so the result of a lookup depends on the time."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.starts: list[int] = []
        self.at: dict[int, Buffer] = {}

    def add(self, address: int, size: int, source: Any, holder: Any = None) -> Buffer:
        """Register a buffer at its address; buffers that were there before are dropped."""
        buffer = Buffer(len(self.buffers), address, size, source, holder)
        self.buffers.append(buffer)
        self.lay(buffer, address)
        return buffer

    def lay(self, buffer: Buffer, address: int) -> None:
        """Set the address of a buffer, and drop the buffers that overlapped it."""
        size = buffer.size
        first = bisect.bisect_right(self.starts, address)
        if first and self._end(self.starts[first - 1]) > address:
            first -= 1
        last = bisect.bisect_left(self.starts, address + max(size, 1))
        for start in self.starts[first:last]:
            del self.at[start]
        self.starts[first:last] = [address]
        self.at[address] = buffer

    def _end(self, start: int) -> int:
        return start + max(self.at[start].size, 1)

    def find(self, address: int) -> Ref | None:
        """Return the present place of an address; None for unknown memory."""
        place = bisect.bisect_right(self.starts, address)
        if not place:
            return None
        start = self.starts[place - 1]
        held = self.at[start]
        return make_ref((held.index, address - start)) if address < start + (held.size or 1) else None


def instances(value: Any, kind: type) -> list[Any]:
    """Return the instances of `kind` in a structure of tuples, lists and dicts, in order."""
    found = []
    for part in value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,):
        if isinstance(part, kind):
            found.append(part)
        elif type(part) in (list, tuple, dict):
            found += instances(part, kind)
    return found


def mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a structure of tuples, lists and dicts with every instance of `kind` replaced by `change` of it."""
    if type(value) is tuple:
        return tuple([v if type(v) in _LEAVES else mapped(v, kind, change) for v in value])
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, list):  # those of a graph's arguments are of a class of their own
        return [v if type(v) in _LEAVES else mapped(v, kind, change) for v in value]
    if type(value) is dict:
        return {k: mapped(v, kind, change) for k, v in value.items()}
    return value
