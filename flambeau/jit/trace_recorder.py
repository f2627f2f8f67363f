"""The mode that records a program's operators into a graph: see `tracer`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau as torch

from ..core.native_class import CustomClass
from ..core.tensor import Tensor, tensors_in
from ..library.aten.choice import choose
from ..library.aten.overloads import OpOverload
from ..library.aten.recorder import AtenRecorder
from ..nn.modules import hooks as module_hooks  # noqa: F401  registers what the global hooks need
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from . import operators
from . import signatures as notes
from .functions import Function
from .ir import Block, Graph, Value
from .matching import Named, carry_out, match_call
from .module import ScriptModule
from .schema import schemas_of, symbol_of
from .trace_places import user_range, variable_name, warn
from .traced_sizes import TracedInt, TracedSizes, plain
from .tracing_state import active, set_active
from .type_joins import unshaped
from .types import (
    DEVICE,
    FLOAT,
    INT,
    NONE,
    OF_PYTHON,
    STRING,
    TENSOR,
    ClassType,
    DictType,
    ListType,
    ShapedTensor,
    TupleType,
    Type,
    result_type,
)
from .values import FunctionValue

FORWARD = "prim::TracedModuleForward"

UNTRACEABLE = (
    "Type '{}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"
)
_READ_AS = {"item": "", "tolist": "list", "numpy": "NumPy array"}
_NUMBER_WORDS = {bool: "boolean", int: "integer", float: "float"}


class TracingCheckError(Exception):
    """A trace that does not do what the Python code does."""

    def __init__(self, graph_diff_error: Any, tensor_compare_error: Any, extra_msg: Any = None):
        self.message = "Tracing failed sanity checks!\n"
        for text in (extra_msg, graph_diff_error, tensor_compare_error):
            self.message += f"{text}\n" if text is not None else ""
        super().__init__(self.message)


class Frame:
    """A module whose forward is being recorded."""

    def __init__(self, block: Block, module: Any, path: str, self_value: Value | None):
        self.block, self.module, self.path, self.self_value = block, module, path, self_value
        self.attributes: dict[str, Value] = {}


class Tracer(TracedSizes, AtenRecorder):
    """Records into one graph. `known` are the graph's values of tensors, by object: several over one place in memory were made by
    different calls (`x`, `x.detach()`), and each is named after the variable that holds it."""

    differentiates = False
    reads_values = True

    reads_python = True  # subscripts are seen with every slice, and with the numbers that the program wrote

    def __init__(self, root: Any = None, root_type: ClassType | None = None):
        self.graph = Graph()
        self.recording = True
        self.known: dict[int, tuple[Any, Value]] = {}
        TracedSizes.__init__(self)
        self.script_modules: dict[int, Any] = {}
        self.paths: dict[int, str] = {}
        self.modules: dict[int, str] = {}
        self.warned: set = set()
        self_value = self.graph.add_input("self", root_type) if root_type is not None else None
        self.frames = [Frame(self.graph, root, "", self_value)]
        if root is not None:
            for name, held in [
                *root.named_parameters(remove_duplicate=False),
                *root.named_buffers(remove_duplicate=False),
            ]:
                self.paths.setdefault(id(held), name)
            for name, module in root.named_modules():
                for label, held in vars(module).items():
                    if isinstance(held, CustomClass):
                        self.paths.setdefault(id(held), f"{name}.{label}" if name else label)
            for name, held in root.named_modules():
                self.modules.setdefault(id(held), name)
        self.types: dict[str, ClassType] = {}

    # -- values ----------------------------------------------------------------------------------------------------------
    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def insert(self, symbol: str, values: Sequence[Value]) -> Value:
        with self.graph.at(self.frame.block):
            match = match_call(self.graph, None, schemas_of(symbol), [Named(v) for v in values], [])
            return carry_out(self.graph, symbol, match, user_range())

    def constant(self, value: Any, kind: Type) -> Value:
        with self.graph.at(self.frame.block):
            return self.graph.constant(value, kind)

    def value(self, thing: Any) -> Value:
        """The graph's value of a Python value."""
        if isinstance(thing, Tensor):
            return self.tensor(thing)
        if isinstance(thing, TracedInt) and thing.tracer is self:
            return thing.make()
        thing = int(thing) if type(thing) is TracedInt else thing
        kind = OF_PYTHON.get(type(thing))
        if kind is not None:
            return self.constant(thing, kind)
        if operators.is_numbered(thing):
            return self.constant(operators.number_of(thing), INT)
        if isinstance(thing, torch.device):
            return self.constant(thing, DEVICE)
        if isinstance(thing, (list, tuple)):
            return self._container(thing)
        if isinstance(thing, dict):
            pairs = [(self.value(k), self.value(v)) for k, v in thing.items()]
            held = unshaped(pairs[0][1].type) if pairs else TENSOR
            with self.graph.at(self.frame.block):
                return self.graph.dict_of(DictType(pairs[0][0].type if pairs else STRING, held), pairs)
        if isinstance(thing, torch.Generator):
            return self.constant(None, NONE)
        if isinstance(thing, int):
            return self.constant(int(thing), INT)
        if isinstance(thing, CustomClass):
            path = self.paths.get(id(thing))
            return self.constant(thing, notes.class_type(type(thing))) if path is None else self._attribute(path, thing)
        if hasattr(thing, "__index__") or hasattr(thing, "__float__"):
            number = thing.__index__() if hasattr(thing, "__index__") else float(thing)
            return self.constant(number, INT if isinstance(number, int) else FLOAT)
        raise RuntimeError(UNTRACEABLE.format(type(thing).__name__))

    def _container(self, things: Any) -> Value:
        values = [self.value(t) for t in things]
        kinds = {str(unshaped(v.type)) for v in values}
        with self.graph.at(self.frame.block):
            if isinstance(things, list) or (len(kinds) == 1 and values and values[0].type is INT):
                if len(kinds) <= 1:
                    return self.graph.list_of(unshaped(values[0].type) if values else INT, values)
                if kinds == {"Tensor", "NoneType"}:
                    return self.graph.list_of(notes.optional_of(TENSOR), values)
            return self.graph.tuple_of(values)

    def tensor(self, thing: Tensor) -> Value:
        found = self.known.get(id(thing))
        if found is not None:
            value = found[1]
            if not value.has_name():
                name = variable_name(thing)
                if name:
                    value.set_name(name)
            return value
        path = self.paths.get(id(thing))
        if path is not None:
            return self._attribute(path, thing)
        if thing.requires_grad and thing.grad_fn is None:
            raise RuntimeError("Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or detaching the gradient\n" + f"Tensor:\n{thing}")  # fmt: skip
        value = self.constant(thing.detach() if thing.requires_grad else thing, TENSOR)
        self.known[id(thing)] = (thing, value)
        return value

    def _attribute(self, path: str, thing: Any) -> Value:
        """A parameter or buffer: read from the innermost module that holds it."""
        frame = next(
            f
            for f in reversed(self.frames)
            if f.self_value is not None and (not f.path or path.startswith(f.path + "."))
        )
        rest = path[len(frame.path) + 1 :] if frame.path else path
        if rest in frame.attributes:
            return frame.attributes[rest]
        value = frame.self_value
        assert value is not None
        walked: list[str] = []
        for part in rest.split("."):
            walked.append(part)
            key = ".".join(walked)
            if key not in frame.attributes:
                kind = value.type
                assert isinstance(kind, ClassType)
                node = self.graph.create("prim::GetAttr", [value])
                node.attributes["name"] = part
                node.outputs_[0].type = kind.attributes.get(part, TENSOR)
                # At the beginning of the block, where it can be used again.
                index = sum(n.kind_ == "prim::GetAttr" for n in frame.block.nodes_)
                later = frame.block.nodes_[index:]
                node.insert_before(later[0] if later else frame.block.ret)
                if not part.isdigit():
                    node.outputs_[0].set_name(part)
                frame.attributes[key] = node.outputs_[0]
            value = frame.attributes[key]
        return value

    def set_value(self, thing: Any, value: Value) -> None:
        """Know what the program computed as this value from now on."""
        if isinstance(thing, Tensor):
            self.known[id(thing)] = (thing, value)
            value.type = tensor_type(thing)
            self._trace_shape(thing, value)
        elif isinstance(thing, (tuple, list)) and not isinstance(thing, torch.Size):
            kind = value.type
            with self.graph.at(self.frame.block):
                if isinstance(kind, TupleType):
                    parts = self.graph.unpack(value)
                else:
                    node = self.graph.create("prim::ListUnpack", [value], len(thing), user_range())
                    parts = list(self.graph.insert(node).outputs_)
                    for part in parts:
                        part.type = kind.element if isinstance(kind, ListType) else TENSOR
            for item, part in zip(thing, parts):
                self.set_value(item, part)
        elif isinstance(thing, dict) and isinstance(value.type, DictType):
            for key, item in thing.items():
                self.set_value(item, self.insert("aten::__getitem__", [value, self.value(key)]))

    def _trace_shape(self, thing: Tensor, value: Value) -> None:
        self.trace_shape(thing, lambda dim: self.insert("aten::size", [value, self.constant(dim, INT)]))

    def listening(self) -> bool:
        return active() is self and self.recording

    def combine(self, symbol: str, left: Any, right: Any) -> Value:
        return self.insert(f"aten::{symbol}", [self.value(left), self.value(right)])

    # -- the mode --------------------------------------------------------------------------------------------------------
    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if not self.recording:
            return function(*args, **kwargs)
        if op.name in _READ_AS:
            return self._python_value(op.name, function, args, kwargs)
        if op.name == "tensor" and not any(isinstance(a, Tensor) for a in args):
            return self._run(function, args, kwargs)
        symbol = symbol_of(op)
        if not symbol.startswith("aten::"):  # `quantized::linear`, or a user's
            return self._recorded(symbol, (args, kwargs), function, args, kwargs)
        found = NotImplemented
        if kwargs.get("out") is not None:
            found = self._into(op, function, args, kwargs)
        elif "nn.functional" not in op.namespaces and any(isinstance(a, Tensor) and not a.shape for a in args[1:]):
            found = self._with_numbers(op, function, args, kwargs)
        result = super().handle(op, function, args, kwargs) if found is NotImplemented else found
        self._check_seen(op, args, kwargs, result)
        return result

    def again(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        return self.run_plain(functools.partial(super().again, function), (args, kwargs), {}, shapes=False)

    def unseen(self, function: Callable, *args: Any) -> Any:
        before, self.recording = self.recording, False
        try:
            return super().unseen(function, *args)
        finally:
            self.recording = before

    def make(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        schema = overload._schema
        values = overload.bind(args, kwargs)
        for place, argument in enumerate(schema.arguments):
            if argument.name.startswith("cudnn_enable"):  # a graph may be run elsewhere
                values[place] = True
        return self._recorded(schema.name, schema.as_call(values), lambda *a, **k: overload.run(a, k), args, kwargs)

    def _into(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """A call whose results are written to given tensors."""
        out = kwargs["out"]
        if isinstance(out, Tensor):
            named = {"self" if k == "input" else k: v for k, v in kwargs.items()}
            return self._recorded(f"aten::{op.aten_name}", (args, named), function, args, kwargs)
        found = self.handle(op, function, args, {k: v for k, v in kwargs.items() if k != "out"})
        if any(o.shape != f.shape for o, f in zip(out, found)):
            raise NotImplementedError(f"tracing a call of {op.name} with out= of other shapes than its results")
        return type(found)([self.aten.copy_.default(o, f) for o, f in zip(out, found)])

    def _with_numbers(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """A call with tensors in the place of numbers, which the graph converts; NotImplemented for others."""
        if choose(op.aten_name, args, kwargs, loose=True) is not None:
            return NotImplemented
        try:
            made = self.call_node(f"aten::{op.aten_name}", args, kwargs)
        except RuntimeError:
            return NotImplemented
        return self._made(made, function, args, kwargs)

    def _recorded(self, symbol: str, given: tuple, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Insert the node of a call and make the call; the result."""
        return self._made(self.call_node(symbol, *given), function, args, kwargs)

    def _made(self, made: Value, function: Callable, args: tuple, kwargs: dict) -> Any:
        result = self._run(function, args, kwargs)
        self.set_value(result, made)
        return result

    def _check_seen(self, op: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """Check that what an operator makes of recorded tensors is recorded: it would be a constant of the graph otherwise."""
        from_known = any(id(t) in self.known for t in tensors_in((args, kwargs)))
        if from_known and any(id(t) not in self.known for t in tensors_in(result)):
            raise NotImplementedError(
                f"tracing a call of {op.name}: TorchScript has no operator for it, or not with these arguments"
            )

    def call_node(self, symbol: str, args: Any, kwargs: dict) -> Value:
        """Insert a call of one of PyTorch's operators, whichever overload fits; its output."""
        given = [Named(self.value(a)) for a in args]
        named = [Named(self.value(v), None, k) for k, v in kwargs.items()]
        with self.graph.at(self.frame.block):
            match = match_call(self.graph, None, schemas_of(symbol), given, named)
            return carry_out(self.graph, symbol, match, user_range())

    def _run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operator on plain numbers and shapes."""
        return self.unseen(self.run_plain, function, args, kwargs)

    def _python_value(self, name: str, function: Callable, args: tuple, kwargs: dict) -> Any:
        result = self._run(function, args, kwargs)
        word = _READ_AS[name] or _NUMBER_WORDS.get(type(result), "number")
        warn(f"Converting a tensor to a Python {word} might cause the trace to be incorrect. We can't record the data flow of Python values, so this value will be treated as a constant in the future. This means that the trace might not generalize to other inputs!")  # fmt: skip
        return result

    # -- compiled code -----------------------------------------------------------------------------------------------------
    def call_script(self, function: Function, args: tuple, kwargs: dict) -> Any:
        """A compiled function or method called while tracing: the graph calls it too."""
        if not self.recording:
            return function.run(function.bind(plain(args), plain(kwargs)))
        arguments = list(args)
        first: list[Named] = []
        if function.owner is not None:
            first = [Named(self._module_value(arguments.pop(0)))]
        given = [*first, *(Named(self.value(a)) for a in arguments)]
        named = [Named(self.value(v), None, k) for k, v in kwargs.items()]
        place = user_range()
        context: Any = self  # calls of functions ask for its graph alone
        with self.graph.at(self.frame.block):
            if function.owner is None:
                out = FunctionValue([function]).call(place, context, given, named).as_value(place, context)
            else:
                match = match_call(self.graph, place, [function.schema], given, named)
                node = self.graph.create("prim::CallMethod", [plan() for plan in match.plans], 1, place)
                node.attributes["name"] = function.base_name
                out = self.graph.insert(node).outputs_[0]
                out.type = result_type(function.schema)
        result = self._run(lambda *a, **k: function.run(function.bind(a, k)), args, kwargs)
        self.set_value(result, out)
        return result

    def _module_value(self, module: Any) -> Value:
        path = self.modules.get(id(module))
        if path is None:
            raise RuntimeError("a compiled module that is called while tracing must be a submodule of what is traced")
        return self._attribute(path, module) if path else self.frames[0].self_value  # type: ignore[return-value]

    # -- submodules ------------------------------------------------------------------------------------------------------
    def enter(self, module: Any, args: tuple) -> None:
        path = self.modules.get(id(module))
        if (
            not self.recording
            or path is None
            or not path
            or isinstance(module, ScriptModule)
            or module is self.frame.module
        ):
            return
        if self.frame.path and not path.startswith(self.frame.path + "."):
            return
        owner = self._attribute(path, module)
        node = self.graph.create(FORWARD, [owner], 0, user_range())
        node.attributes["name"] = path
        self.frame.block.append(node)
        block = node.add_block()
        inside = block.add_input("", owner.type)
        inside.set_name("self")
        self.frames.append(Frame(block, module, path, inside))

    def leave(self, module: Any, args: tuple, result: Any) -> None:
        if len(self.frames) > 1 and self.frame.module is module:
            self.frames.pop()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        handles = [register_module_forward_pre_hook(self.enter), register_module_forward_hook(self.leave)]
        before = set_active(self)
        try:
            with self:
                yield
        finally:
            set_active(before)
            for handle in handles:
                handle.remove()
            self.restore_shapes()


def tensor_type(tensor: Tensor) -> Type:
    """`Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)`."""
    if tensor.layout is not torch.strided:
        return TENSOR
    if tensor.dtype.method is None:
        return TENSOR
    shape, strides = [int(n) for n in tensor.shape], [int(n) for n in tensor.stride()]
    parts = [*map(str, shape)]
    if shape:
        parts.append(f"strides=[{', '.join(map(str, strides))}]")
    parts += [f"requires_grad={int(tensor.requires_grad)}", f"device={tensor.device}"]
    return ShapedTensor(f"{tensor.dtype.scalar_type}({', '.join(parts)})", tensor.dtype, shape, strides)
