"""Recording of a running function as a program of `torch.ops.aten` calls (`graph.recorder`), which `graph_reader` converts to a graph."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import flambeau

from ...autograd.engine import running
from ...core.tensor import Tensor
from ...graph import program
from ...graph.recorder import TensorRecorder
from ...library.aten import dispatch
from . import branches

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_MODULES = os.path.join(_FOLDER, "nn", "modules") + os.sep


class GraphRecorder(TensorRecorder, dispatch.AtenMode):
    """Mode that records the calls of PyTorch's operators."""

    lifted: list[Tensor] | None = None  # in a branch: the tensors that it has from outside
    describe: Callable[[Any], dict[str, Any]] = staticmethod(lambda op: {})

    def notes(self, op: Any) -> dict[str, Any]:
        return self.describe(op)

    def foreign(self, t: Tensor) -> program.Value:
        if self.lifted is not None:
            self.lifted.append(t)
            return self.know(t)
        if running.current is not None:
            raise NotImplementedError(
                "a graph of this program's gradients: a part of them is computed by something that PyTorch has no operator for"
            )
        return super().foreign(t)

    def viewed(self, t: Tensor, near: Tensor) -> program.Value:
        target, args = _view_of(near, t)
        given = self.known[id(near)][1]
        made = self.number(t)
        self.write(target, None, ((given, *args), {}), None)
        self.program.calls[-1].results = made
        return made

    def gradients(self, found: list[Any]) -> None:
        """Raise NotImplementedError if a gradient was computed by an operator that is not recorded."""
        if any(isinstance(tensor, Tensor) and self.found(tensor) is None for tensor in found):
            raise NotImplementedError(
                "a graph of this program's gradients: they are computed by something that PyTorch has no operator for"
            )

    def inner(self) -> GraphRecorder:
        """Return a recorder for a branch of a conditional."""
        made = GraphRecorder()
        made.describe = self.describe
        return made

    def branch_names(self, count: int) -> list[str] | None:
        """Return the names of a branch's operands, or None to use those of the nodes outside."""
        return [f"arg{i}_1" for i in range(count)]

    def branch(self, op: Any, pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple) -> Any:
        return self.unseen(branches.record, self, op, pred, true_fn, false_fn, operands)

    @staticmethod
    def stack_trace() -> str:
        """Return the location in the user's program of the current call."""
        frames = [
            f
            for f in traceback.extract_stack()
            if (not f.filename.startswith(_FOLDER) or f.filename.startswith(_MODULES))
            and not f.filename.endswith("operator>")
        ]
        first = next((i for i, f in enumerate(frames) if f.name == "forward"), len(frames))
        return "".join(traceback.StackSummary.from_list(frames[first:]).format()).strip()


def _view_of(known: Tensor, tensor: Tensor) -> tuple[Any, tuple]:
    """Return the operator, and its further arguments, that makes `tensor` as a view of a known one."""
    aten = flambeau.ops.aten
    shape, strides = list(tensor.shape), list(tensor.stride())
    with flambeau.no_grad():
        try:
            spread = known.expand(shape)
        except RuntimeError:
            spread = None
    if spread is not None and spread.stride() == tensor.stride() and spread.storage_offset() == tensor.storage_offset():
        return aten.expand.default, (shape,)
    return aten.as_strided.default, (shape, strides, tensor.storage_offset())
