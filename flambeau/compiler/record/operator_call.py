"""Steps that call an operator through Python, as a whole.

An operator that read a number from one of its arguments may return something else in the next call: another shape, another part of its
argument. Its results are then compared with the recorded ones, and if they differ, what the program has changed until then is restored
(`first_run.Undo`) and the whole function is run eagerly instead."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from ...core import watching
from ...core.device import cpu, device
from ...core.dtype import dtype
from ...core.graph import unrecorded
from ...core.records import replace
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor
from ...graph.memory import Ref, mapped
from ...graph.program import Value
from ..state.arguments import ATOMS
from .steps import Call, StepGraph, Test


class Placed(Protocol):
    """A program with memory: the graph, the buffers that later steps need, and the arena."""

    graph: StepGraph
    needed: set[int]
    arena: UntypedStorage

    def address(self, ref: Ref) -> int: ...


class Stale(Exception):
    """Raised when the program cannot run now, before it has changed anything."""


class Failed(Stale):
    """Raised when a step of a replay has raised an exception, and everything is restored: run eagerly, the call raises or handles it."""


class OtherLayout(Stale):
    """Raised in a replay when an operator whose result depends on a number read from a tensor gives another shape than was recorded."""


def call_operator(program: Placed, call: Call) -> None:
    """Call a whole operator, and store its results where later steps read them."""
    arguments, keywords = mapped((call.arguments, call.keywords), Value, lambda v: tensor_at(program, v))
    collector = _Collector()
    with watching.watch(collector):
        result = unrecorded(call.function, *arguments, **keywords)
    if call.numbers is not None and call.numbers != collector.numbers:
        raise OtherLayout(f"{call.name} reads another number from a tensor, and its derivative depends on that")
    for index, storage in _found(program, call, result, collector.found).items():
        ctypes.memmove(program.address(Ref(index, 0)), storage.ptr, program.graph.buffers[index].size)


def parts_of(result: Any) -> list[Any]:
    """Return all leaves of a structure of tuples and lists, those with named fields included."""
    if isinstance(result, (tuple, list)):
        return [p for each in result for p in (parts_of(each) if isinstance(each, (tuple, list)) else (each,))]
    return [result]


def plain_parts(given: tuple[tuple, dict]) -> set[int] | None:
    """Return the buffers of the values among a call's arguments; None if an argument is neither a value nor a plain setting."""
    parts = parts_of([given[0], *given[1].values()])
    if not all(isinstance(part, (Value, *ATOMS, dtype, device)) for part in parts):
        return None
    return {part.buffer for part in parts if isinstance(part, Value)}


def may_fail(step: Any) -> bool:
    """Return whether a step may raise an exception in one call and not in another: an optimizer's update does not."""
    return isinstance(step, Test) or (isinstance(step, Call) and step.call is not None)


def holds_numbers(graph: StepGraph) -> bool:
    """Return whether a derivative of some call depends on numbers that were read from tensors."""
    return any(isinstance(step, Call) and step.numbers is not None for step in graph.steps)


def _found(program: Placed, call: Call, result: Any, made: list[UntypedStorage]) -> dict[int, UntypedStorage]:
    """Return the storages of the buffers that later steps need."""
    needed = [b for b in call.makes if b in program.needed]
    found = {} if call.results is None else _check_results(program, call, result)
    missing = [b for b in needed if b not in found]
    if missing and call.call is not None:
        shown = zip(parts_of(call.call.results), parts_of(result))
        found.update((v.buffer, t._storage) for v, t in shown if isinstance(v, Value) and v.buffer in missing)
        missing = [b for b in needed if b not in found]
    if missing:
        by_order = dict(zip(call.makes, made)) if len(made) == len(call.makes) else {}
        found.update((b, by_order[b]) for b in missing if b in by_order)
    buffers = program.graph.buffers
    if any(b not in found or max(found[b].capacity, found[b].size_bytes) != buffers[b].size for b in needed):
        if call.results is not None:
            raise OtherLayout(_varying_result_message(call))
        sizes = [buffers[b].size for b in call.makes]
        raise RuntimeError(
            f"{call.name} made buffers of {[s.capacity for s in made]} bytes instead of {sizes} when a compiled function called it"
        )
    return {b: found[b] for b in needed}


def _check_results(program: Placed, call: Call, result: Any) -> dict[int, UntypedStorage]:
    """Return the storages of new results, by buffer; raise OtherLayout unless all results have their recorded layout."""
    tensors = [t for t in parts_of(result) if t is not None]
    assert call.results is not None
    if len(tensors) != len(call.results):
        raise OtherLayout(_varying_result_message(call))
    found: dict[int, UntypedStorage] = {}
    for t, v in zip(tensors, call.results):
        place, storage = Ref(v.buffer, v.start), t._storage
        start = t._offset * t.dtype.itemsize
        same = (t.shape, t._strides, t.dtype) == (v.shape, v.strides, v.dtype)
        if place.buffer in call.makes:
            same = same and start == place.offset and found.setdefault(place.buffer, storage) is storage
        elif place.buffer >= 0:
            same = same and storage.ptr + start == program.address(place)
        if not same:
            raise OtherLayout(_varying_result_message(call))
    return found


def _varying_result_message(call: Call) -> str:
    return (
        f"what {call.name} gives looks otherwise from call to call: it depends on a number that it reads from a tensor"
    )


def tensor_at(program: Placed, v: Value) -> Tensor:
    """Return the tensor that a value denotes in the present call."""
    alone = replace(v, start=0)
    if v.buffer < 0:
        return alone.over(UntypedStorage(0))
    place = Ref(v.buffer, v.start)
    return alone.over(UntypedStorage.borrow(program.address(place), max(v.nbytes, 0), program.arena))


class _Collector(watching.Watcher):
    """Watcher of the storages that an operator makes, and the numbers that it reads, in order."""

    def __init__(self) -> None:
        self.found: list[UntypedStorage] = []
        self.numbers: list[bytes] = []

    def converted(self, address: int, nbytes: int) -> None:
        self.numbers.append(ctypes.string_at(address, nbytes))

    def made(self, new: UntypedStorage) -> None:
        if new.ptr and new.device is cpu and new.capacity:
            self.found.append(new)
