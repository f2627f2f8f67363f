"""Models that are run once and recorded, including their computations on sizes: sizes are numbers with a known origin."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable
from typing import Any

import flambeau

from ..core.device import cpu
from ..core.tensor import Tensor, tensors_in
from ..export._trace import Reader, Recorder, Trace
from ..fx.node import Node
from ..graph.program import Call, Value
from ..jit.traced_sizes import TracedInt, TracedNumber, TracedSizes
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
    """Recorder of a model with its computations on sizes and the names of its tensors."""

    def __init__(self, module: Module, preserved: tuple[str, ...] = ()) -> None:
        super().__init__(module, preserved)
        self.level = 1
        self.names: dict[int, str] = {}  # what the program calls its tensors, by the numbers of values
        self.taken: dict[str, int] = {}

    def lost(self, size: TracedNumber) -> None:
        self.write(float, None, ((size,), {}), None)

    # -- values in Python ----------------------------------------------------------------------------------------------------------
    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if op.tells:
            return self.python_value(op, function, args, kwargs)
        if op.describes:  # arithmetic with sizes is recorded
            return function(*args, **kwargs)
        if op.data:
            found = self._of_sizes(op.bind(args, kwargs)[op.data], kwargs.get("dtype"))
            if found is not None:
                return found
        before = self.level
        self.level = 0 if _python_in_pytorch(op) else before
        try:
            return super().handle(op, function, args, kwargs)
        finally:
            self.level = before

    def _of_sizes(self, data: Any, dtype: Any) -> Any:
        """Record `tensor([height, width])` of traced sizes as operators, so that the sizes do not become constants; else return None."""
        numbers = data if isinstance(data, (list, tuple)) else [data]
        if not any(type(n) is TracedInt for n in numbers) or not all(isinstance(n, int) for n in numbers):
            return None
        parts = [flambeau.ops.aten.scalar_tensor.default(n, dtype=dtype or flambeau.int64, device=cpu) for n in numbers]
        return flambeau.ops.aten.stack.default(parts) if numbers is data else parts[0]

    def python_value(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if any(id(t) in self.known for t in tensors_in(args)):
            return super().python_value(op, function, args, kwargs)
        return self.run(function, args, kwargs)

    # -- names ---------------------------------------------------------------------------------------------------------------------
    def held(self, t: Tensor) -> Value:
        value = super().held(t)
        if value.number not in self.names:
            self._call(value.number, self._name(t))
        return value

    def _call(self, value: int, name: str) -> None:
        """Name a value after a variable; one that had the name gets a number appended, as in PyTorch's graphs."""
        if not name:
            return
        if name in self.taken:
            number = 1
            while f"{name}.{number}" in self.taken:
                number += 1
            old = self.taken[name]
            self.taken[f"{name}.{number}"], self.names[old] = old, f"{name}.{number}"
        self.taken[name], self.names[value] = value, name

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
            for value in [self.known[id(t)][1] for t in tensors_in(args) if id(t) in self.known]:
                if value.number in self.names:
                    self._call(-len(self.names), self.names[value.number])
        return result


class SizedReader(Reader):
    """Converts the recording of a `SizedRecorder` to a graph."""

    recorder: SizedRecorder

    def __init__(self, recorder: SizedRecorder) -> None:
        super().__init__(recorder)
        recorder.reader = self
        self.became_floats: list[Node] = []  # sizes that the program makes floats of, which are not recorded
        self.now: Call | None = None

    def add(self, call: Call) -> None:
        self.now = call
        if call.op is float:
            self.became_floats += [self.argument(size) for size in call.args]
        else:
            super().add(call)

    def size(self, value: Value, dim: int) -> Node:
        return self._of_sizes(flambeau.ops.aten.sym_size.int, value, dim)

    def combine(self, symbol: str, left: Any, right: Any) -> Node:
        return self._of_sizes(ARITHMETIC[symbol], left, right)

    def _of_sizes(self, target: Any, *args: Any) -> Node:
        node = self.graph.call_function(target, tuple(self.argument(a) for a in args))
        if self.now is not None:
            self.describe(node, self.now)
        return node

    def argument(self, value: Any) -> Any:
        return value.make() if isinstance(value, TracedNumber) else super().argument(value)

    def read(self, outputs: Any) -> Any:
        found = super().read(outputs)
        for number, node in self.nodes.items():
            node.meta["variable"] = self.recorder.names.get(number, "")
        return found


def _python_in_pytorch(op: Any) -> bool:
    """Return whether PyTorch implements the function in Python: in `nn.functional`, with other arguments than the operator's."""
    if not op.key.startswith("nn.functional."):
        return False
    packet = getattr(flambeau.ops.aten, op.name, None)
    if packet is None:
        return True
    wanted = [a.name for a in getattr(packet, packet.overloads()[0])._schema.arguments]
    return list(op.arguments)[1:] != wanted[1:]


class Recorded(Trace):
    """A recorded run of a model, with the attributes of an exported program that `ProgramReader` uses."""

    recorder_type, reader_type = SizedRecorder, SizedReader
    reader: SizedReader

    def __init__(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> None:
        super().__init__(module, args, kwargs)
        watched = frozenset(self.reader.became_floats)
        self.graph.eliminate_dead_code(lambda node: is_needed(node) or node in watched)
        self.graph_signature = self.signature
        self.state_dict = {**dict(module.named_buffers()), **module.state_dict(keep_vars=True)}
        self.constants = self.reader.constants_found
        self.graph_module = flambeau.fx.GraphModule(module, self.graph)


def is_needed(node: Node) -> bool:
    """Return whether a node has an effect besides its result, such as a change in place."""
    schema = getattr(node.target, "_schema", None)
    return node.op in ("placeholder", "output") or (schema is not None and schema.is_mutable)


class _ValuesRecorder(SizedRecorder):
    """Records a model whose values must not become constants of the graph."""

    def python_value(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if any(id(t) in self.known for t in tensors_in(args)):
            raise DataDependent(f"a value would become a constant ({op.name})")
        return super().python_value(op, function, args, kwargs)


class RecordedValues(Recorded):
    """A recorded run of a model none of whose values became a constant; DataDependent if the model asks for one."""

    recorder_type = _ValuesRecorder


class _PartsRecorder(_ValuesRecorder):
    """Records the calls that one call consists of, on example tensors."""

    def attempt(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        whole = len(self.inside) == 1
        return self.again(function, args, kwargs) if whole else super().attempt(function, args, kwargs)


class RecordedParts(Recorded):
    """The recorded parts of one call; NotImplementedError or DataDependent if they cannot be determined."""

    recorder_type = _PartsRecorder


class OneCall(Module):
    """Module that makes one call of an operator, with the tensors among its arguments as inputs."""

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
