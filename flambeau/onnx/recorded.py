"""Models that are run once and recorded, with what they compute with sizes: numbers that know where they come from."""

from __future__ import annotations

import functools
import operator
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import flambeau

from .. import jit  # noqa: F401  the whole room before its parts: see naming.load
from ..core.device import cpu
from ..core.tensor import Tensor, tensors_in
from ..export._trace import Recorder, Trace
from ..fx.node import Node
from ..jit.traced_sizes import TracedInt, TracedSizes
from ..jit.tracer import TracerWarning
from ..jit.tracing_state import set_active
from ..library.aten import OpOverload
from ..library.aten.translation import DataDependent
from ..nn import Module
from ..utils import _pytree as pytree

HOUSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # where this library's own files are
_MODULES = os.path.join(HOUSE, "nn", "modules") + os.sep
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "remainder": operator.mod, "min": min, "max": max,
}  # fmt: skip


class SizedRecorder(TracedSizes, Recorder):
    """Records a model together with what it computes with sizes, and what it calls its tensors."""

    def __init__(self, module: Module, preserved: tuple[str, ...] = ()) -> None:
        TracedSizes.__init__(self)
        Recorder.__init__(self, module, preserved)
        self.level = 1
        self.taken: dict[str, Node] = {}
        self.quiet = 0
        self.became_floats: list[Node] = []  # sizes that the program makes floats of, which are not recorded

    def __enter__(self) -> Any:
        self._active = set_active(self)
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        set_active(self._active)
        self.restore_shapes()

    # -- sizes -----------------------------------------------------------------------------------------------------------------
    def listening(self) -> bool:
        return not self.quiet

    def combine(self, symbol: str, left: Any, right: Any) -> Node:
        node = self.graph.call_function(ARITHMETIC[symbol], (self.argument(left), self.argument(right)))
        self.describe(node)
        return node

    def lost(self, size: TracedInt) -> None:
        self.became_floats.append(size.make())

    def track(self, tensor: Tensor, node: Node) -> None:
        self.run_plain(super().track, (tensor, node), {})
        self.trace_shape(tensor, functools.partial(self._size, node))

    def _size(self, node: Node, dim: int) -> Node:
        made = self.graph.call_function(flambeau.ops.aten.sym_size.int, (node, dim))
        self.describe(made)
        return made

    def argument(self, value: Any) -> Any:
        return value.make() if isinstance(value, TracedInt) else super().argument(value)

    def forget(self, mark: Node) -> None:
        super().forget(mark)
        self.became_floats = [node for node in self.became_floats if not node._erased]

    def unseen(self, function: Callable, *args: Any) -> Any:
        self.quiet += 1
        try:
            return super().unseen(function, *args)
        finally:
            self.quiet -= 1

    def make(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        def run() -> Any:
            result = self.run_plain(lambda *a, **k: overload.run(a, k), args, kwargs)
            return self.note(overload, args, kwargs, result)

        return self.unseen(run)

    # -- values in Python ----------------------------------------------------------------------------------------------------------
    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if op.key in ("item", "tolist", "numpy", "__bool__", "is_nonzero", "equal", "allclose"):
            return self._python_value(op.key, function, args, kwargs)
        if op.key == "numel":
            return functools.reduce(operator.mul, args[0].shape, 1)
        if op.key == "tensor":
            found = self._of_sizes(args[0] if args else kwargs.get("data"), kwargs.get("dtype"))
            if found is not None:
                return found
        before = self.level
        self.level = 0 if _python_in_pytorch(op) else before
        try:
            return super().handle(op, function, args, kwargs)
        finally:
            self.level = before

    def _of_sizes(self, data: Any, dtype: Any) -> Any:
        """`tensor([height, width])`: sizes that are put into a tensor stay sizes."""
        numbers = data if isinstance(data, (list, tuple)) else [data]
        if not any(type(n) is TracedInt for n in numbers) or not all(isinstance(n, int) for n in numbers):
            return None
        parts = [flambeau.ops.aten.scalar_tensor.default(n, dtype=dtype or flambeau.int64, device=cpu) for n in numbers]
        return flambeau.ops.aten.stack.default(parts) if numbers is data else parts[0]

    def _python_value(self, key: str, function: Callable, args: tuple, kwargs: dict) -> Any:
        result = self.unseen(lambda: self.run_plain(function, args, kwargs))
        if any(id(t) in self.known for t in tensors_in(args)):
            word = {"tolist": "list", "numpy": "NumPy array"}.get(key, type(result).__name__)
            text = f"Converting a tensor to a Python {word} might cause the trace to be incorrect. We can't record the data flow of"
            warnings.warn(
                f"{text} Python values, so this value will be treated as a constant in the future. This means that the trace might"
                " not generalize to other inputs!",
                TracerWarning,
                stacklevel=2,
            )
        return result

    # -- names ---------------------------------------------------------------------------------------------------------------------
    def node_of(self, tensor: Tensor) -> Node:
        node = super().node_of(tensor)
        if "variable" not in node.meta:
            self._call(node, self._name(tensor))
        return node

    def _call(self, node: Node, name: str) -> None:
        """Give a node the name of a variable; a node that had it gets a number behind it, as in PyTorch's graphs."""
        if not name:
            return
        if name in self.taken:
            number = 1
            while f"{name}.{number}" in self.taken:
                number += 1
            old = self.taken[name]
            self.taken[f"{name}.{number}"], old.meta["variable"] = old, f"{name}.{number}"
        self.taken[name], node.meta["variable"] = node, name

    def _name(self, tensor: Tensor) -> str:
        """Return the name under which the caller of the function that calls the operator holds the tensor,
        or an empty string. Functions of `nn.functional` that PyTorch writes in Python count as callers."""
        level, frame = self.level, sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(_MODULES) or not file.startswith(HOUSE) and not file.endswith("operator>"):
                level -= 1
                if level < 0:
                    held = frame.f_locals.items()
                    return next((name for name, value in held if value is tensor and name != "self"), "")
            frame = frame.f_back  # type: ignore[assignment]
        return ""

    def handle_function(self, function: type, args: tuple) -> Any:
        self.level, before = 0, self.level
        try:
            result = self.run_plain(lambda *a: super(SizedRecorder, self).handle_function(function, a), args, {})
        finally:
            self.level = before
        if result is not NotImplemented:  # in PyTorch's graph the function's own arguments take the names
            for node in [self.known[id(t)][1] for t in tensors_in(args) if id(t) in self.known]:
                if node.meta.get("variable"):
                    self._call(Node(self.graph, "inner", "call_function", operator.add, (), {}), node.meta["variable"])
        return result


def _python_in_pytorch(op: Any) -> bool:
    """Return whether PyTorch writes the function in Python: those of `nn.functional` whose arguments are not the operator's."""
    if not op.key.startswith("nn.functional."):
        return False
    packet = getattr(flambeau.ops.aten, op.name, None)
    if packet is None:
        return True
    wanted = [a.name for a in getattr(packet, packet.overloads()[0])._schema.arguments]
    return list(op.arguments)[1:] != wanted[1:]


class Recorded(Trace):
    """A run of a model, with what `ProgramReader` asks of an exported program."""

    recorder_type = SizedRecorder
    recorder: SizedRecorder

    def __init__(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> None:
        super().__init__(module, args, kwargs)
        watched = frozenset(self.recorder.became_floats)
        self.graph.eliminate_dead_code(lambda node: is_needed(node) or node in watched)
        self.graph_signature = self.signature
        self.state_dict = {**dict(module.named_buffers()), **module.state_dict(keep_vars=True)}
        self.constants = self.recorder.constants_found
        self.graph_module = flambeau.fx.GraphModule(module, self.graph)


def is_needed(node: Node) -> bool:
    """Return whether a node has an effect besides its result, such as a change in place."""
    schema = getattr(node.target, "_schema", None)
    return node.op in ("placeholder", "output") or (schema is not None and schema.is_mutable)


class _PartsRecorder(SizedRecorder):
    """Records what one call is made of, on made-up tensors, whose values must not get into the graph."""

    def attempt(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        whole = len(self.inside) == 1
        return self.again(function, args, kwargs) if whole else super().attempt(function, args, kwargs)

    def _python_value(self, key: str, function: Callable, args: tuple, kwargs: dict) -> Any:
        if any(id(t) in self.known for t in tensors_in(args)):
            raise DataDependent(f"the parts of a call depend on values ({key})")
        return super()._python_value(key, function, args, kwargs)


class RecordedParts(Recorded):
    """The parts of one call; NotImplementedError or DataDependent where they cannot be told."""

    recorder_type = _PartsRecorder


class OneCall(Module):
    """A call of an operator, as a module that takes the tensors among its arguments."""

    def __init__(self, overload: Any, leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.__dict__.update(overload=overload, leaves=leaves, spec=spec)

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        arguments = pytree.tree_unflatten([next(given) if isinstance(n, Tensor) else n for n in self.leaves], self.spec)
        positional, named = self.overload._schema.as_call(
            [arguments.get(a.name, a.default_value) for a in self.overload._schema.arguments]
        )
        return self.overload(*positional, **named)
