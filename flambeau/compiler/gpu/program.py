"""A call on a GPU as a program of operator calls, which passes rewrite before it is captured.

The call runs once in a capture that is thrown away, with a recorder at the door; the result is a program, whose formulas are fused.
From then on graphs are captured by making the program's calls, not the function's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.nvidia import graphs
from ...core.device import device
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, new_tensor
from ...graph.fusion import drop_dead
from ...graph.passes import PASSES
from ...graph.program import NO_MEMORY, Program
from ...graph.recomputation import remake_between
from ...graph.recorder import NotRecordable, Recorder
from ...graph.replay import Replay
from ..record.recording import GradSlot, extent
from ..record.results import Results
from ..record.views import Views
from .capture import capturing
from .derivative import CapturedDerivative

NewGrads = Callable[[list[Tensor], Results], list[GradSlot]]


class GpuProgram:
    """Recorded program of a call on a GPU with its outcome: results, gradients, and a derivative where results have a history."""

    def __init__(self, program: Program, results: Results, make: Any, grads: list[GradSlot]):
        self.program, self.make, self.slots = program, make, results.slots
        self._grads = [(slot.holder, slot.header) for slot in grads]
        self.derivative: CapturedDerivative | None = None
        self.recorded = 0  # calls, before the passes
        program.kept = {slot.buffer for slot in self.slots if slot.buffer >= 0}

    def rewrite(self) -> None:
        """Run the passes over the program."""
        results, programs = self.program.kept, [*self._derivatives(), self.program]
        for program in programs:
            self._keep(results)
            drop_dead(program)
            self.recorded += len(program.calls)
        remake_between(programs[::-1], results.union(*(program.kept for program in self._derivatives())))
        self._keep(results)
        captured = [] if self.derivative is None else [d.program_of_calls for d in self.derivative.captured()]
        for program in (*captured, self.program):
            for work in PASSES:
                work(program)

    def _keep(self, results: set[int]) -> None:
        """Mark the results, and the values that derivatives read, as kept by the program."""
        self.program.kept = set(results)
        for after in self._derivatives():
            own = {b for call in after.calls for b in call.makes}
            self.program.kept |= {b for call in after.calls for b in call.touches()} - own - {NO_MEMORY}

    def _derivatives(self) -> list[Program]:
        return [] if self.derivative is None else [d.program_of_calls for d in self.derivative.all()]

    def emit(self, statics: list[Tensor]) -> Replay:
        """Make the calls of the program for these arguments."""
        replay = Replay(self.program)
        replay.run(statics)
        return replay

    def grads(self, replay: Replay) -> list[GradSlot]:
        """Return the gradients that the calls have made, and set those of parameters."""
        found = []
        for holder, header in self._grads:
            slot = GradSlot(holder, header)
            found.append(slot)
            if type(holder) is int:
                continue
            if header is not None:
                storage = replay.at[self.slots[header.slot].buffer]
                slot.tensor = new_tensor(
                    storage,
                    header.shape,
                    header.strides,
                    header.offset,
                    header.dtype,
                    storage.device,
                    header.contiguous,
                )
            holder.grad = slot.tensor
        return found

    def told(self) -> str:
        """Describe in a sentence how the calls were rewritten."""
        now = [call for program in (self.program, *self._derivatives()) for call in program.calls]
        fused = [call for call in now if call.rewritten]
        parts = sum(len(call.parts) for call in fused)
        return f"{self.recorded} calls of operators; {parts} of them are formulas that became {len(fused)} kernels"


def write_down(
    prepared: Any, where: device, tensors: list[Tensor], run: Callable[..., Any], pool: Any, some: tuple[int, ...], new_grads: NewGrads,
) -> GpuProgram:  # fmt: skip
    """Run a call in a capture in memory of `pool`, and return it as a program; `some` are the results known to be differentiated.
    Raises NotRecordable if the call did more than a program can express."""
    recorder = Recorder()
    for t in prepared.state:
        if t._storage.ptr:
            recorder.know(t)
            if t.is_leaf and t.grad is not None and not t.grad.is_sparse and id(t.grad._storage) in prepared.storages:
                recorder.know(t.grad)
    for held in prepared.storages.values():
        if recorder.memory.find(held.ptr) is None:
            recorder.know_storage(held)
    state = {id(t): t for t in prepared.state}
    with capturing(graphs.CUDAGraph(keep_graph=True), where, pool):
        statics = [_like(t) for t in tensors]
        inputs = [recorder.know(s, ("argument", i)) for i, s in enumerate(statics)]
        for t, static in zip(tensors, statics):
            static.requires_grad = t.requires_grad
        recorder.views = Views([*prepared.state, *statics])
        with recorder.recording():
            result = run({id(t): s for t, s in zip(tensors, statics)})
        results = Results(
            recorder.memory, statics, {**state, **prepared.reach.seen}, views=recorder.views, stand_ins=True
        )
        grads = new_grads(statics, results)
        recorder.program.inputs = inputs
        written = GpuProgram(recorder.program, results, results.maker(result), grads)
        if results.live:
            written.derivative = CapturedDerivative.of(results.live, statics, state, where, some)
            for derivative in written.derivative.all():
                derivative.write_down(recorder)
    for static in statics:  # a history that was walked may lead to one: without its memory
        static._storage, static.grad = UntypedStorage(0, where), None
    if recorder.problems:
        raise NotRecordable(recorder.problems[0])
    written.rewrite()
    return written


def _like(t: Tensor) -> Tensor:
    """Return an uninitialised tensor of the graph's own that stands for an argument."""
    memory = UntypedStorage(extent(t), t.device)
    return new_tensor(memory, t.shape, t._strides, 0, t.dtype, t.device, t._contig)
