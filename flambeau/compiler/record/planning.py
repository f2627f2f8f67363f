"""Operator calls and the native calls that implement them: a recording as a program for passes, and the planning of rewritten calls."""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core import modes, watching
from ...core.device import cpu
from ...core.dtype import uint8
from ...core.records import replace
from ...core.size import make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor
from ...graph.fusion import fused_call, loop_in
from ...graph.loops import Loop, collapsed
from ...graph.memory import Memory, mapped
from ...graph.program import NO_MEMORY, Call, Program, Value
from ...ops.machinery.record import Op
from .recorder import Leaf, NotRecordable, StepRecorder
from .steps import Call as Performed
from .steps import Number, StepGraph, Test, VaryingNumber, effects

_ALIGNMENT = 64


def program_of(graph: StepGraph, results: set[int]) -> Program:
    """Return the operator calls that the steps of a recording belong to."""
    program = Program(graph.buffers, kept={b for b in results if b >= 0})  # not those that are memory of others
    for call, group in itertools.groupby(graph.steps, lambda step: step.call or step):
        steps = list(group)
        whole = isinstance(call, Call) and (call.steps is None or call.steps == steps)
        program.calls += [_attach_steps(graph, call, steps)] if whole else [_as_call(graph, [step]) for step in steps]
    return program


def _attach_steps(graph: StepGraph, call: Call, steps: list[Any]) -> Call:
    """Attach native steps to a call; memory that they touch besides the operator's arguments counts as changed."""
    written, touched = effects(graph, steps)
    known = call.reads()
    call.makes = [b for b in call.makes if b in touched]
    call.changes = frozenset((written | (touched - known)).difference(call.makes))
    call.steps = steps
    return call


def _as_call(graph: StepGraph, steps: list[Any]) -> Call:
    """Return a step that belongs to no operator as a call that cannot be made again."""
    written, touched = effects(graph, steps)
    read = [Value(b, 0, make_size((1,)), (1,), uint8, cpu) for b in sorted(touched)]
    stays = isinstance(steps[0], (Test, Performed))
    return Call(_step(steps[0].name), _refuse, tuple(read), {}, changes=frozenset(written), steps=steps, stays=stays)


@functools.lru_cache(256)
def _step(name: str) -> Op:
    return Op(name, "primitive", _refuse, (), differentiable=False)


def _refuse(*args: Any) -> None:
    raise RuntimeError("native calls between operators cannot be made through the door")


def lowered(program: Program, planner: Planner) -> list[Any]:
    """Return the steps of a program, after planning the calls that passes have made."""
    return [step for call in program.calls for step in (planner.steps(call) if call.steps is None else call.steps)]


def named(name: str) -> Call:
    """Return a call that stands for no operator and has only a name."""
    return Call(_step(name), _refuse, (), {})


def joined_call(steps: list[Any]) -> Call | None:
    """Return the call of a step that replaces several, with their calls as its parts; None if one of them belongs to no operator."""
    calls = [step.call for step in steps]
    if None in calls:
        return None
    return replace(calls[0], parts=tuple(part for call in calls for part in call.parts or (call,)), steps=None)


def emitted(graph: StepGraph, loop: Loop, name: str = "") -> Any:
    """Return a loop as a native step, which is the only one of a new call."""
    if name:
        loop = replace(loop, parts=(named(name),))
    ordered = collapsed(loop.parts[0], loop.sizes, loop.reads, loop.results, loop.device)
    loop = loop if ordered is None else replace(ordered, parts=loop.parts)
    (step,) = Planner(graph).steps(fused_call(loop, list(loop.results)))
    return step


def loop_at(step: Any) -> Loop | None:
    """Return the loop of a step whose call consists of that one loop, else None."""
    call = step.call
    return None if call is None or call.steps != [step] else loop_in(call)


class Planner(StepRecorder):
    """Recorder of the native calls that a call would make over the buffers of a graph, without running them."""

    skips = 1

    def __init__(self, graph: StepGraph):
        super().__init__()
        self.graph = graph
        self._room: mmap.mmap | None = None  # address space for a call's tensors: untouched pages take no memory
        self._expected: list[int] = []  # buffers of results that a call is about to make

    def steps(self, call: Call) -> list[Any]:
        """Return the native calls that compute a rewritten call."""
        self.memory = Memory()
        self.memory.buffers = self.graph.buffers
        tensors = self._stub_tensors(call)
        args, kwargs, outs = mapped((call.args, call.kwargs, call.results), Value, tensors.__getitem__)
        given = [*([outs] if call.rewritten else []), *(VaryingNumber(a) if type(a) is Number else a for a in args)]
        self._expected = [] if call.rewritten else list(call.makes)
        leaf = self.running = Leaf(call)
        try:
            with self.native_calls(), watching.watch(self), no_grad():
                modes.unwatched(call.function)(*given, **kwargs)
        finally:
            self.running = None
        if leaf.problem or self.problems or self.interruption:
            raise NotRecordable(f"{call.name} cannot be planned: {leaf.problem or self.problems[0]}")
        for step in leaf.steps:
            step.call, step.weight = call, len(call.parts)
        call.steps = leaf.steps
        call.makes += leaf.makes
        return leaf.steps

    def made(self, new: UntypedStorage) -> None:
        """Note a new storage: that of a result, or one for the kernel's own use."""
        if self._expected and new.ptr:
            self.memory.lay(self.graph.buffers[self._expected.pop(0)], new.ptr)
        else:
            super().made(new)

    def _stub_tensors(self, call: Call) -> dict[Value, Tensor]:
        """Return a tensor for each value of a call, with disjoint addresses for its buffers."""
        values = [*call.arguments(), *call.returned()]
        ends: dict[int, int] = {}
        for v in values:
            if v.buffer != NO_MEMORY:
                ends[v.buffer] = max(ends.get(v.buffer, 1), v.span[1], self.graph.buffers[v.buffer].size)
        sizes = {b: -(-end // _ALIGNMENT) * _ALIGNMENT for b, end in ends.items()}
        total = sum(sizes.values())
        if self._room is None or len(self._room) < total:
            self._room = mmap.mmap(-1, max(total, mmap.PAGESIZE))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        storages = {NO_MEMORY: UntypedStorage(0)}
        for b, size in sizes.items():
            self.memory.lay(self.graph.buffers[b], start)
            storages[b] = UntypedStorage.borrow(start, size, self._room)
            start += size
        return {v: v.over(storages[v.buffer]) for v in values}
