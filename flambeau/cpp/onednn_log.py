"""Log of the calls that created oneDNN's objects, so that a C program can repeat them.

Primitives are known only by address. While the log is active, every call of oneDNN that creates something is recorded, with objects in
place of addresses; afterwards `needed` returns the calls that a set of plans depends on, in order.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..backends.cpu import threads
from ..backends.cpu.onednn import library as dnnl
from ..backends.cpu.onednn import plan as plans

_POINTER, _OUT = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
_NEXT = "primitive_desc_next_impl"


@dataclass(eq=False)
class Made:
    """An object of oneDNN: the call that created it. Arguments are numbers, lists of sizes, None, or other objects."""

    function: str
    arguments: list[Any]
    alone: bool  # made for one thread
    skipped: int = 0  # how many implementations of a primitive descriptor were passed over
    number: int = -1


class Log:
    """Objects created by oneDNN, by address. A reused address belongs to the object created last."""

    def __init__(self) -> None:
        lib = dnnl.library()
        self.at: dict[int, Made] = {
            lib.engine: Made("engine", [], False),
            lib.stream: Made("stream", [], False),
            lib.attributes: Made("attributes", [], False),
        }

    def argument(self, kind: Any, value: Any) -> Any:
        if value is None or (kind is _POINTER and not value):
            return None
        if kind is _POINTER:
            return self.at[value]
        return list(value) if isinstance(value, ctypes.Array) else int(value)

    def status_function(self, name: str, function: Callable, kinds: tuple) -> Callable:
        def call(*args: Any) -> int:
            if name == _NEXT:
                status = function(*args)
                self.at[args[0]].skipped += not status
                return status
            alone = _threads_of_libgomp() == 1
            given = [self.argument(k, v) for k, v in zip(kinds[1:], args[1:])]
            status = function(*args)
            if not status:
                self.at[args[0]._obj.value] = Made(name, given, alone)
            return status

        return call

    def query(self, function: Callable) -> Callable:
        def call(primitive: int, what: int, index: int) -> int:
            found = function(primitive, what, index)
            if found:
                self.at[found] = Made("query", [self.at[primitive], what, index], False)
            return found

        return call


def _threads_of_libgomp() -> int:
    library = threads.library()
    return 1 if library is None else library.omp_get_max_threads()


@contextlib.contextmanager
def logging() -> Iterator[Log]:
    """Context manager: log all primitives that oneDNN creates; cached ones are dropped, so that they are created again."""
    lib = dnnl.library()
    plans.reset()
    plans._descriptor.cache_clear()
    log, before = Log(), dict(lib.functions)
    try:
        for name, kinds in dnnl._STATUS_FUNCTIONS.items():
            if (kinds[0] is _OUT and name not in ("engine_create", "stream_create")) or name == _NEXT:
                lib.functions[name] = log.status_function(name, before[name], kinds)
        lib.functions["primitive_desc_query_md"] = log.query(before["primitive_desc_query_md"])
        yield log
    finally:
        lib.functions.update(before)
        plans.reset()
        plans._descriptor.cache_clear()


def needed(wanted: list[Made]) -> list[Made]:
    """Return the wanted objects and all that they depend on, numbered, in an order in which they can be created."""
    found: list[Made] = []

    def visit(one: Made) -> None:
        if one.number < 0 and one.function not in ("engine", "stream", "attributes"):
            for part in one.arguments:
                if isinstance(part, Made):
                    visit(part)
            one.number = len(found)
            found.append(one)

    for one in wanted:
        visit(one)
    return found
