"""A recorded trace as a graph of TorchScript; calls of submodules are blocks in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch

from ..core.native_class import CustomClass
from ..core.pytree import tree_map_only
from ..core.tensor import Tensor
from ..graph import program
from . import operators
from . import signatures as notes
from . import types as T
from .functions import Function
from .ir import Block, Graph, Value
from .matching import Named, carry_out, match_call
from .schema import schemas_of
from .source import Range
from .trace_recorder import ENTER, LEAVE, RETURN, UNTRACEABLE, Submodule, Tracer
from .traced_sizes import TracedNumber, plain
from .type_joins import unshaped
from .values import FunctionValue

FORWARD = "prim::TracedModuleForward"


class Frame:
    """A module whose forward is being read."""

    def __init__(self, block: Block, path: str, self_value: Value | None):
        self.block, self.path, self.self_value = block, path, self_value
        self.attributes: dict[str, Value] = {}


class TraceReader:
    """Converts a tracer's recording into a graph. `nodes` maps the numbers of the recording's values to graph values."""

    place: Range | None = None  # of the call that is read
    result: Value  # what the program returns

    def __init__(self, tracer: Tracer, root_type: T.ClassType | None = None):
        tracer.reader = self
        self.tracer, self.graph = tracer, Graph()
        self.nodes: dict[int, Value] = {}
        self_value = self.graph.add_input("self", root_type) if root_type is not None else None
        self.frames = [Frame(self.graph, "", self_value)]

    def read(self) -> Value:
        """Add the nodes of all calls; returns the result of the program."""
        for call in self.tracer.program.calls:
            self.add(call)
        return self.result

    def add(self, call: program.Call) -> None:
        """Add the nodes of a call."""
        self.place, self.graph.scope = call.notes["range"], call.notes["scope"]
        for value, name in call.notes["names"]:
            named = self.nodes.get(value.number)
            if named is not None and not named.has_name():
                named.set_name(name)
        if call.op is ENTER:
            self._enter(*call.args)
        elif call.op is LEAVE:
            self.frames.pop()
        elif call.op is RETURN:
            sizes = tree_map_only(TracedNumber, lambda n: self.insert("prim::NumToTensor", [n.make()]), call.args[0])
            self.result = self.value(sizes)
        else:
            insert = self._call_script if isinstance(call.op, Function) else self.call_node
            self.set_value(call.results, insert(call.op, call.args, call.kwargs))

    # -- values ----------------------------------------------------------------------------------------------------------
    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def insert(self, symbol: str, values: Sequence[Value], /, **named: Value) -> Value:
        """Insert a call of one of PyTorch's operators, with the first overload that fits; return its output."""
        by_name = [Named(v, None, k) for k, v in named.items()]
        with self.graph.at(self.frame.block):
            match = match_call(self.graph, None, schemas_of(symbol), [Named(v) for v in values], by_name)
            return carry_out(self.graph, symbol, match, self.place)

    def constant(self, value: Any, kind: T.Type) -> Value:
        with self.graph.at(self.frame.block):
            return self.graph.constant(value, kind)

    def value(self, thing: Any) -> Value:
        """Return the graph value of a Python value."""
        if isinstance(thing, Value):
            return thing
        if isinstance(thing, (program.Value, Tensor)):  # tensors that are keys of a dict stay what they are
            return self.tensor(thing if isinstance(thing, program.Value) else self.tracer.held(thing))
        if isinstance(thing, Submodule):
            return self._attribute(thing.path) if thing.path else self.frames[0].self_value  # type: ignore[return-value]
        if isinstance(thing, TracedNumber):
            if thing.tracer is self.tracer:
                return thing.make()
            thing = plain(thing)
        kind = T.OF_PYTHON.get(type(thing))
        if kind is not None:
            return self.constant(thing, kind)
        if operators.is_numbered(thing):
            return self.constant(thing.number, T.INT)
        if isinstance(thing, torch.device):
            return self.constant(thing, T.DEVICE)
        if isinstance(thing, (list, tuple)):
            return self._container(thing)
        if isinstance(thing, dict):
            pairs = [(self.value(k), self.value(v)) for k, v in thing.items()]
            held = unshaped(pairs[0][1].type) if pairs else T.TENSOR
            if wrong := [v for _, v in pairs if unshaped(v.type) != held]:
                raise RuntimeError(f"Dictionary inputs to traced functions must have consistent type. Found {held.code} and {unshaped(wrong[0].type).code}")  # fmt: skip
            with self.graph.at(self.frame.block):
                return self.graph.dict_of(T.DictType(pairs[0][0].type if pairs else T.STRING, held), pairs)
        if isinstance(thing, torch.Generator):
            return self.constant(None, T.NONE)
        if isinstance(thing, int):
            return self.constant(int(thing), T.INT)
        if isinstance(thing, CustomClass):
            path = self.tracer.paths.get(id(thing))
            return self.constant(thing, notes.class_type(type(thing))) if path is None else self._attribute(path)
        if hasattr(thing, "__index__") or hasattr(thing, "__float__"):
            number = thing.__index__() if hasattr(thing, "__index__") else float(thing)
            return self.constant(number, T.INT if isinstance(number, int) else T.FLOAT)
        raise RuntimeError(UNTRACEABLE.format(type(thing).__name__))

    def _container(self, things: Any) -> Value:
        values = [self.value(t) for t in things]
        kinds = {str(unshaped(v.type)) for v in values}
        with self.graph.at(self.frame.block):
            if isinstance(things, list) or (len(kinds) == 1 and values and values[0].type is T.INT):
                if len(kinds) <= 1:
                    return self.graph.list_of(unshaped(values[0].type) if values else T.INT, values)
                if kinds == {"Tensor", "NoneType"}:
                    return self.graph.list_of(T.optional_of(T.TENSOR), values)
            return self.graph.tuple_of(values)

    def tensor(self, value: program.Value) -> Value:
        """Return the graph value of a tensor: the result of a call, a parameter or buffer, or a constant."""
        if value.number in self.nodes:
            return self.nodes[value.number]
        thing = self.tracer.tensors[value.number]
        path = self.tracer.paths.get(id(thing))
        if path is not None:
            return self._attribute(path)
        if thing.requires_grad and thing.grad_fn is None:
            raise RuntimeError("Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or detaching the gradient\n" + f"Tensor:\n{thing}")  # fmt: skip
        made = self.nodes[value.number] = self.constant(thing.detach() if thing.requires_grad else thing, T.TENSOR)
        return made

    def _attribute(self, path: str) -> Value:
        """Return the value of a parameter or buffer, read from the innermost module on the stack that contains it."""
        frame = next(
            f
            for f in reversed(self.frames)
            if f.self_value is not None and (not f.path or path.startswith(f.path + "."))
        )
        rest = path[len(frame.path) + 1 :] if frame.path else path
        value = frame.self_value
        assert value is not None
        walked: list[str] = []
        for part in rest.split("."):
            walked.append(part)
            key = ".".join(walked)
            if key not in frame.attributes:
                kind = value.type
                assert isinstance(kind, T.ClassType)
                node = self.graph.create("prim::GetAttr", [value])
                node.attributes["name"] = part
                node.outputs_[0].type = kind.attributes.get(part, T.TENSOR)
                # Where it can be used again: at the beginning of the block, the last one first, but after its owner.
                index = frame.block.nodes_.index(value.node) + 1 if value is not frame.self_value else 0
                node.insert_before(*frame.block.nodes_[index : index + 1] or [frame.block.ret])
                node.outputs_[0].set_name(f"_{part}" if part.isdigit() else part)
                frame.attributes[key] = node.outputs_[0]
            value = frame.attributes[key]
        return value

    def set_value(self, thing: Any, value: Value) -> None:
        """Map a value that the program computed to a graph value."""
        if isinstance(thing, program.Value):
            self.nodes[thing.number] = value
            value.type = tensor_type(thing, self.tracer.tensors[thing.number])
        elif isinstance(thing, (tuple, list)) and not isinstance(thing, torch.Size):
            kind = value.type
            with self.graph.at(self.frame.block):
                if isinstance(kind, T.TupleType):
                    parts = self.graph.unpack(value)
                else:
                    node = self.graph.create("prim::ListUnpack", [value], len(thing), self.place)
                    parts = list(self.graph.insert(node).outputs_)
                    for part in parts:
                        part.type = kind.element if isinstance(kind, T.ListType) else T.TENSOR
            for item, part in zip(thing, parts):
                self.set_value(item, part)
        elif isinstance(thing, dict) and isinstance(value.type, T.DictType):
            for key, item in thing.items():
                self.set_value(item, self.insert("aten::__getitem__", [value, self.value(key)]))

    def size(self, value: program.Value, dim: int) -> Value:
        return self.insert("aten::size", [self.nodes[value.number], self.constant(dim, T.INT)])

    def combine(self, symbol: str, left: Any, right: Any) -> Value:
        space = "prim" if symbol in ("min", "max") else "aten"
        made = self.insert(f"{space}::{symbol}", [self.value(left), self.value(right)])
        # A power of integers is a float for TorchScript, for Python it is one only where the exponent is negative.
        is_whole = symbol == "pow" and isinstance(left, int) and isinstance(right, int) and right >= 0
        return self.insert("aten::Int", [made]) if is_whole else made

    # -- calls -----------------------------------------------------------------------------------------------------------
    @staticmethod
    def fits(symbol: str, args: tuple, kwargs: dict) -> bool:
        """Return whether one of PyTorch's operators of this name takes these arguments, converted as TorchScript does."""
        try:
            _Scratch(Tracer()).call_node(symbol, plain(args), plain(kwargs))
        except RuntimeError:
            return False
        return True

    def call_node(self, symbol: str, args: Any, kwargs: dict) -> Value:
        """Insert a call of one of PyTorch's operators with these arguments."""
        return self.insert(symbol, [self.value(a) for a in args], **{k: self.value(v) for k, v in kwargs.items()})

    def _call_script(self, function: Function, args: tuple, kwargs: dict) -> Value:
        """Insert a call of a compiled function or method."""
        given = [Named(self.value(a)) for a in args]
        named = [Named(self.value(v), None, k) for k, v in kwargs.items()]
        context: Any = self  # calls of functions ask for its graph alone
        with self.graph.at(self.frame.block):
            if function.owner is None:
                return FunctionValue([function]).call(self.place, context, given, named).as_value(self.place, context)
            match = match_call(self.graph, self.place, [function.schema], given, named)
            node = self.graph.create("prim::CallMethod", [plan() for plan in match.plans], 1, self.place)
            node.attributes["name"] = function.base_name
            out = self.graph.insert(node).outputs_[0]
            out.type = T.result_type(function.schema)
            return out

    def _enter(self, path: str) -> None:
        owner = self._attribute(path)
        node = self.graph.create(FORWARD, [owner], 0, self.place)
        node.attributes["name"] = path
        self.frame.block.append(node)
        block = node.add_block()
        inside = block.add_input("", owner.type)
        inside.set_name("self")
        self.frames.append(Frame(block, path, inside))


class _Scratch(TraceReader):
    """Reader of a single call, whose tensors become inputs of a new graph."""

    def value(self, thing: Any) -> Value:
        return self.graph.add_input("", T.TENSOR) if isinstance(thing, Tensor) else super().value(thing)


def tensor_type(value: program.Value, tensor: Tensor) -> T.Type:
    """Return a tensor's type with its properties: `Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)`."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return T.TENSOR
    if value.dtype.method is None:
        return T.TENSOR
    shape, strides = list(value.shape), list(value.strides)
    parts = [*map(str, shape)]
    if shape:
        parts.append(f"strides=[{', '.join(map(str, strides))}]")
    parts += [f"requires_grad={int(value.requires_grad)}", f"device={value.device}"]
    return T.ShapedTensor(f"{value.dtype.scalar_type}({', '.join(parts)})", value.dtype, shape, strides)
