"""A model's forward as a list of native calls: recorded as by `compile`, to be written as a C program."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..autograd import no_grad
from ..backends.cpu.onednn import library as dnnl
from ..compiler.function import record_once
from ..compiler.record.recorder import NotRecordable
from ..compiler.record.recording import Recorded
from ..compiler.record.steps import Call, StepGraph
from ..compiler.runtime.program import Program
from ..core.device import cpu
from ..core.overrides import DisableTorchFunctionSubclass
from ..core.tensor import Tensor, tensors_in
from ..jit import ScriptModule
from ..nn import Module
from .branches import on_one_path
from .onednn_log import Log, logging


class NotExportable(RuntimeError):
    """Raised for a model that cannot become a library."""


@dataclass
class Output:
    """A result: its buffer, byte offset, and layout."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass
class Captured:
    """The data of one recorded call that a C program needs."""

    graph: StepGraph
    program: Program
    inputs: list[Tensor]
    outputs: list[Output]
    log: Log | None
    structure: str = ""  # of what the model returns: "tensor", "tuple" (of tensors), or another


class _DenseResults(Module):
    """Wraps a model so that its results are a list of separate dense tensors."""

    def __init__(self, model: Callable, inputs: frozenset[int]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        self.structure = ""

    def forward(self, *args: Any) -> list[Tensor]:
        result = self.model(*args)
        found = tensors_in(result)
        flat = isinstance(result, tuple) and len(found) == len(result) and all(isinstance(t, Tensor) for t in result)
        self.structure = "tensor" if isinstance(result, Tensor) else "tuple" if flat else type(result).__name__
        return [t.clone() if t._storage.ptr in self.inputs or t._base is not None else t.contiguous() for t in found]


def capture(model: Callable, inputs: tuple) -> Captured:
    """Record `model(*inputs)`, without gradients. Raises NotExportable with all reasons at once."""
    tensors = tensors_in(list(inputs))
    straight = on_one_path(model) if isinstance(model, ScriptModule) else model
    whole = _DenseResults(straight, frozenset(t._storage.ptr for t in tensors))
    with no_grad(), _logging() as log:
        whole(*inputs)  # caches that are filled once
        try:
            recorded = record_once(whole, inputs, _other_tensors(whole.inputs))
            problem, _ = recorded.check(tensors, lambda table: whole(*inputs))
        except NotRecordable as error:
            problem = str(error)
        if problem:
            raise NotExportable(f"{type(model).__name__} cannot be one native program: {problem}")
        return _describe(recorded, tensors, log, whole.structure)


def _other_tensors(inputs: frozenset[int]) -> list[Tensor]:
    """Return all existing dense tensors except the inputs: parameters, buffers, constants, wherever a model holds them."""
    tensors = [one for one in gc.get_objects() if issubclass(type(one), Tensor) and hasattr(one, "_storage")]
    with DisableTorchFunctionSubclass():  # tensors of other parts of the program are looked at, not asked
        dense = [t._bare_alias() for t in tensors if t.device is cpu and not t.is_sparse]
        return [t for t in dense if t._storage.ptr and t._storage.ptr not in inputs]


@contextlib.contextmanager
def _logging() -> Iterator[Log | None]:
    if not dnnl.available():
        yield None
        return
    with logging() as log:
        yield log


def _describe(recorded: Recorded, inputs: list[Tensor], log: Log | None, structure: str) -> Captured:
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
    return Captured(program.graph, program, inputs, outputs, log, structure)
