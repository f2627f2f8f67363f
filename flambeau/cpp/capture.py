"""A model's forward as a list of native calls: recorded like `compile` does, ready to be written down as a C program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..autograd import no_grad
from ..backends.cpu.onednn import library as dnnl
from ..core.tensor import Tensor
from ..nn import Module
from ..wholestep.function import CompiledFunction
from ..wholestep.graph import Call, Graph
from ..wholestep.program import Program
from ..wholestep.recorded import Recorded, tensors_in
from .onednn_log import Log, logging

_RUNS = 5  # the second is recorded, the third compared with the function itself; state that is made once may delay that


class NotExportable(RuntimeError):
    """Why a model cannot become a library."""


@dataclass
class Output:
    """A result: in which buffer it lies, from which byte on, and what it looks like."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass
class Captured:
    """Everything that a C program needs to know of one recorded call."""

    graph: Graph
    program: Program
    inputs: list[Tensor]
    outputs: list[Output]
    log: Log | None
    example: list[Tensor] = field(default_factory=list)  # what the call returned


class _Whole(Module):
    """A model whose results are a list of dense tensors of their own."""

    def __init__(self, model: Callable, inputs: frozenset[int]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, *args: Any) -> list[Tensor]:
        found = tensors_in(self.model(*args))
        return [t.clone() if t._storage.ptr in self.inputs or t._base is not None else t.contiguous() for t in found]


def capture(model: Callable, inputs: tuple) -> Captured:
    """Record `model(*inputs)`, without gradients. Raises NotExportable with all reasons at once."""
    tensors = tensors_in(list(inputs))
    whole = _Whole(model, frozenset(t._storage.ptr for t in tensors))
    compiled = CompiledFunction(whole, {}, getattr(type(model), "__name__", "model"))
    with no_grad(), _logging() as log:
        for _ in range(_RUNS):
            forward_result = compiled(*inputs)
            recorded = _finished(compiled)
            if recorded is not None:
                return _described(recorded, tensors, forward_result, log)
    raise NotExportable(f"{compiled.name} cannot be one native program: {'; '.join(compiled.reasons) or 'it keeps changing'}")


@contextlib.contextmanager
def _logging() -> Iterator[Log | None]:
    if not dnnl.available():
        yield None
        return
    with logging() as log:
        yield log


def _finished(compiled: CompiledFunction) -> Recorded | None:
    for entry in compiled.found.values():
        if type(entry) is list and entry[0].checked:
            return entry[0]
    return None


def _described(recorded: Recorded, inputs: list[Tensor], example: list[Tensor], log: Log | None) -> Captured:
    program = recorded.program
    problems = [f"{s.name}: {s.why}" for s in program.graph.steps if isinstance(s, Call)]
    if program.graph.draws:
        problems.append("it draws random numbers (is the model in eval mode?)")
    if program.graph.updates:
        problems.append("it updates parameters")
    if problems:
        raise NotExportable("these cannot run without Python:\n  " + "\n  ".join(dict.fromkeys(problems)))
    made, _ = recorded._storages()
    program.run(inputs, made, [])
    outputs = []
    for t in tensors_in(recorded.make(inputs, made, None)):
        slot = next((i for i, s in enumerate(made) if s is t._storage), None)
        if slot is None:
            raise NotExportable("a result is one of the model's own tensors; return a copy of it")
        outputs.append(Output(program.results[slot], t._offset * t.dtype.itemsize, tuple(t.shape), t.dtype))
    return Captured(program.graph, program, inputs, outputs, log, example)
