"""Recording: `trace` runs Python code on examples and keeps the operators it called as a graph.

A mode on the operator stack sees every public operator. Calls of submodules are recorded as blocks and become methods of the traced
submodules afterwards. Sizes of tensors are numbers that know where they come from, so that a view by `x.size(0)` stays one by the size.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau as torch

from ..core import modes
from ..core.native_class import CustomClass
from ..core.tensor import Tensor
from ..nn.modules import hooks as module_hooks  # noqa: F401  registers what the global hooks need
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from . import cleanup, enabled, operators, recursive
from . import signatures as notes
from .emitter import Emitter
from .functions import Function
from .inlining import inline, inlined
from .ir import Block, Graph, Node, Value, copy_graph, copy_node
from .matching import Named, carry_out, match_call
from .module import ScriptFunction, ScriptModule, TopLevelTracedModule
from .naming import qualified_name, unique_name
from .resolver import form_by_name
from .schema import Argument, Schema, schemas_of, symbol_of
from .source import Range, Source
from .traced_sizes import TracedInt, TracedSizes, plain, tensors_in
from .tracing_state import active, set_active
from .types import (
    BOOL,
    COMPLEX,
    DEVICE,
    FLOAT,
    INT,
    NONE,
    STRING,
    TENSOR,
    ClassType,
    DictType,
    ListType,
    ShapedTensor,
    TupleType,
    Type,
    unshaped,
)
from .values import FunctionValue

_FORWARD = "prim::TracedModuleForward"

# Operators of Flambeau that are called otherwise in graphs.
_OTHER_NAMES = {"slice_dim": "slice", "permute_dims": "permute", "where_tensor": "where", "put_at_": "index_put_"}
_END = 9223372036854775807  # what a slice without an end is written with
_CASTS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32", "short": "int16",
    "char": "int8", "byte": "uint8", "bool": "bool",
}  # fmt: skip
_UNTRACEABLE = (
    "Type '{}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"
)
_NUMBER_WORDS = {bool: "boolean", int: "integer", float: "float"}


class TracerWarning(Warning):
    """Something that a trace does not show: Python values that depend on tensors, results that differ."""


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


class Tracer(TracedSizes, modes.Mode):
    """Records into one graph."""

    reads_python = True  # subscripts above all, before their numbers are taken apart

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
        kinds: dict[type, Type] = {
            bool: BOOL,
            int: INT,
            TracedInt: INT,
            float: FLOAT,
            complex: COMPLEX,
            str: STRING,
            type(None): NONE,
        }
        kind = kinds.get(type(thing))
        if kind is not None:
            return self.constant(int(thing) if type(thing) is TracedInt else thing, kind)
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
        raise RuntimeError(_UNTRACEABLE.format(type(thing).__name__))

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
        if (
            thing.requires_grad
            and thing.is_leaf
            and thing.grad_fn is None
            and not isinstance(thing, torch.nn.Parameter)
            or (thing.requires_grad and thing.grad_fn is None)
        ):
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
                frame.block.nodes_.insert(min(index, len(frame.block.nodes_)), node)
                node.owner = frame.block
                if not part.isdigit():
                    node.outputs_[0].set_name(part)
                frame.attributes[key] = node.outputs_[0]
            value = frame.attributes[key]
        return value

    def set_value(self, thing: Any, value: Value) -> None:
        """What the program computed is known as this value from now on."""
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
        name = _OTHER_NAMES.get(op.name, op.name)
        if name in ("item", "tolist", "numpy"):
            return self._python_value(name, function, args, kwargs)
        if name == "tensor" and not any(isinstance(a, Tensor) for a in args):
            return self._run(function, args, kwargs)
        call = self._subscript(*args) if name == "__getitem__" else self._node_for(name, op, args, kwargs)
        if call is None:  # made of operators that have names in graphs: record those
            before, self.reads_python = self.reads_python, False
            try:
                with self:
                    result = self._run(modes.unwatched(function), args, kwargs, recording=True)
            finally:
                self.reads_python = before
            self._check_seen(name, args, kwargs, result)
            return result
        result = self._run(function, args, kwargs)
        self._take(call, result, args)
        return result

    def _subscript(self, tensor: Tensor, key: Any) -> Value | None:
        """The nodes of `tensor[key]`, with the numbers as the program has them; None for keys with tensors or lists."""
        items = key if isinstance(key, tuple) else (key,)
        if not all(i is None or i is ... or type(i) in (int, TracedInt, slice) for i in items):
            return None
        value, dim = self.tensor(tensor), 0
        for item in items:
            if item is ...:
                dim += tensor.dim() - sum(i is not None and i is not ... for i in items)
            elif item is None:
                value, dim = self.insert("aten::unsqueeze", [value, self.constant(dim, INT)]), dim + 1
            elif isinstance(item, slice):
                bounds = (
                    0 if item.start is None else item.start,
                    _END if item.stop is None else item.stop,
                    item.step or 1,
                )
                numbers = [self.value(b.item() if isinstance(b, Tensor) else b) for b in bounds]
                value, dim = self.insert("aten::slice", [value, self.constant(dim, INT), *numbers]), dim + 1
            else:
                value = self.insert("aten::select", [value, self.constant(dim, INT), self.value(item)])
        return value if value is not self.tensor(tensor) else None

    def _check_seen(self, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """What an operator makes of recorded tensors must be recorded: it would be a constant of the graph otherwise."""
        from_known = any(id(t) in self.known for t in tensors_in((args, kwargs)))
        if from_known and any(id(t) not in self.known for t in tensors_in(result)):
            raise NotImplementedError(
                f"tracing a call of {name}: TorchScript has no operator for it, or not with these arguments"
            )

    def _node_for(self, name: str, op: Any, args: tuple, kwargs: dict) -> Value | None:
        """Insert the operator's node; its output."""
        if name in _CASTS and len(args) == 1 and not kwargs:
            return self.insert(
                "aten::to", [self.value(args[0]), self.constant(operators.number_of(getattr(torch, _CASTS[name])), INT)]
            )
        if name == "true_positions":
            flat = self.insert("aten::flatten", [self.value(args[0]), self.constant(0, INT), self.constant(-1, INT)])
            places = self.insert("aten::nonzero", [flat])
            return self.insert("aten::select", [places, self.constant(1, INT), self.constant(0, INT)])
        if name == "interpolate" and isinstance(kwargs.get("scale_factor"), int):
            kwargs = {**kwargs, "scale_factor": float(kwargs["scale_factor"])}
        if name == "einsum" and len(args) > 1 and not isinstance(args[1], (list, tuple)):
            args = (args[0], list(args[1:]))
        form = form_by_name(name) if "nn.functional" in op.namespaces or name in ("interpolate",) else None
        symbol = symbol_of(op) if name == op.name else f"aten::{name}"
        if form is None and not schemas_of(symbol):
            return None
        before = len(self.frame.block.nodes_)
        try:
            given = [Named(self.value(a)) for a in args]
            named = [Named(self.value(v), None, k) for k, v in kwargs.items()]
            with self.graph.at(self.frame.block):
                if form is not None:
                    return self._through_form(form, given, named)
                schemas = schemas_of(symbol)
                renamed = [
                    Named(
                        n.value,
                        None,
                        "self" if n.name == "input" and all(s.index_of("input") is None for s in schemas) else n.name,
                    )
                    for n in named
                ]
                return carry_out(
                    self.graph, symbol, match_call(self.graph, None, schemas, given, renamed), user_range()
                )
        except RuntimeError as problem:
            if "requires grad as a constant" in str(problem):
                raise
            for node in reversed(self.frame.block.nodes_[before:]):
                if not any(v.uses for v in node.outputs_):
                    node.destroy()
            return None

    def _through_form(self, form: Any, given: list[Named], named: list[Named]) -> Value:
        """A function of nn.functional: the operators of its compiled form, as far as the arguments decide which."""
        place = user_range()
        block = self.frame.block
        before = list(block.nodes_)
        out = form.call(place, _Context(self), given, named).as_value(place, _Context(self))
        holder = self.graph.insert(self.graph.create("prim::Keep", [out], 0))
        inline(block)
        cleanup.lower_tuples(block)
        cleanup.fold_constants(block)
        value = holder.inputs_[0]
        holder.destroy()
        for node in block.nodes_:
            if node not in before:
                node.range = place
        return value

    def _take(self, out: Value, result: Any, args: tuple) -> None:
        self.set_value(result, out)

    def _run(self, function: Callable, args: tuple, kwargs: dict, recording: bool = False) -> Any:
        """Run an operator on plain numbers and shapes."""
        before, self.recording = self.recording, recording
        try:
            return self.run_plain(function, args, kwargs, shapes=not recording)
        finally:
            self.recording = before

    def _python_value(self, name: str, function: Callable, args: tuple, kwargs: dict) -> Any:
        result = self._run(function, args, kwargs)
        word = {"tolist": "list", "numpy": "NumPy array"}.get(name) or _NUMBER_WORDS.get(type(result), "number")
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
        with self.graph.at(self.frame.block):
            if function.owner is None:
                out = (
                    FunctionValue([function]).call(place, _Context(self), given, named).as_value(place, _Context(self))
                )
            else:
                match = match_call(self.graph, place, [function.schema], given, named)
                node = self.graph.create("prim::CallMethod", [plan() for plan in match.plans], 1, place)
                node.attributes["name"] = function.base_name
                out = self.graph.insert(node).outputs_[0]
                out.type = function.schema.result_type()
        before, self.recording = self.recording, False
        try:
            with _without(self):
                result = self._run(lambda *a, **k: function.run(function.bind(a, k)), args, kwargs)
        finally:
            self.recording = before
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
        node = self.graph.create(_FORWARD, [owner], 0, user_range())
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


class _Context(Emitter):
    """What values of the compiler need of an emitter, for calls that the tracer makes."""

    def __init__(self, tracer: Tracer):
        self.tracer, self.graph = tracer, tracer.graph

    def call_operator(self, place: Any, symbol: str, args: Any, kwargs: Any, owner: Any = None) -> Value:
        return carry_out(
            self.graph, symbol, match_call(self.graph, place, schemas_of(symbol), args, kwargs, owner), place
        )


@contextlib.contextmanager
def _without(mode: modes.Mode) -> Iterator[None]:
    there = mode in modes.own.stack
    if there:
        modes.own.stack.take(mode)
    try:
        yield
    finally:
        if there:
            modes.own.stack.push(mode)


def tensor_type(tensor: Tensor) -> Type:
    """`Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)`."""
    if tensor.layout is not torch.strided:
        return TENSOR
    words = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble"}  # fmt: skip
    word = words.get(str(tensor.dtype).rpartition(".")[2])
    if word is None:
        return TENSOR
    shape, strides = [int(n) for n in tensor.shape], [int(n) for n in tensor.stride()]
    parts = [*map(str, shape)]
    if shape:
        parts.append(f"strides=[{', '.join(map(str, strides))}]")
    parts += [f"requires_grad={int(tensor.requires_grad)}", f"device={tensor.device}"]
    return ShapedTensor(f"{word}({', '.join(parts)})", tensor.dtype, shape, strides)


# -- where the user's code is -------------------------------------------------------------------------------------------------


def _user_frame() -> tuple[Any, int]:
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "flambeau":
        frame, level = frame.f_back, level + 1
    return frame, level


def user_range() -> Range:
    frame, _ = _user_frame()
    source = Source("", frame.f_code.co_filename, frame.f_lineno)
    return Range(source, 0, 0, 0, 1)


def variable_name(tensor: Tensor) -> str:
    """What the user's code calls a tensor: the names that PyTorch's traced graphs show too."""
    frame, _ = _user_frame()
    return next((name for name, held in frame.f_locals.items() if held is tensor and not name.startswith("_")), "")


def warn(text: str) -> None:
    _, level = _user_frame()
    warnings.warn(text, TracerWarning, stacklevel=level)


# -- from blocks to methods -----------------------------------------------------------------------------------------------------


def lift(graph: Graph) -> None:
    """Turn the recorded calls of submodules into methods of their types and calls of these."""
    _lift_block(graph)


def _lift_block(block: Block) -> None:
    for node in list(block.nodes_):
        for inner in node.blocks_:
            _lift_block(inner)
        if node.kind_ == _FORWARD:
            _lift_node(node)


def _inside(block: Block) -> set[Value]:
    made = set(block.inputs_)
    for node in block.nodes_:
        made.update(node.outputs_)
        for inner in node.blocks_:
            made |= _inside(inner)
    return made


def _uses(block: Block) -> Iterator[Value]:
    for node in block.nodes_:
        yield from node.inputs_
        for inner in node.blocks_:
            yield from _uses(inner)


def _lift_node(node: Node) -> None:
    block, graph = node.blocks_[0], node.graph
    own = _inside(block)
    captured = [v for v in dict.fromkeys(_uses(block)) if v not in own]
    constants = [v for v in captured if v.node.kind_ == "prim::Constant"]
    captured = [v for v in captured if v not in constants]
    handed = [v for v in _in_order(block) if any(not _within(user, block) for user, _ in v.uses)]
    method = Graph()
    known: dict[Value, Value] = {}
    kind = node.inputs_[0].type
    assert isinstance(kind, ClassType)
    known[block.inputs_[0]] = method.add_input("self", kind)
    for value in captured:
        made = known[value] = method.add_input("", value.type)
        if value.has_name():
            made.set_name(value.name)
    for value in constants:
        method.append(copy_node(value.node, method, known))
    for inner in block.nodes_:
        method.append(copy_node(inner, method, known))
    outs = [known[v] for v in handed]
    with method.at(method):
        result = outs[0] if len(outs) == 1 else method.tuple_of(outs) if outs else method.constant(None, NONE)
    method.add_output(result)
    tidy(method)
    name = _method_name(kind)
    arguments = [
        Argument("self", kind),
        *(Argument(_argument_name(v, i), unshaped(v.type)) for i, v in enumerate(method.inputs_[1:])),
    ]
    schema = Schema(name, "", arguments, [unshaped(result.type)])
    kind.methods[name] = Function(f"{kind.name}.{name}", None, kind).define(method, schema)
    call = graph.create("prim::CallMethod", [node.inputs_[0], *captured], 1, None)
    call.attributes["name"] = name
    call.outputs_[0].type = unshaped(result.type)
    call.insert_before(node)
    with graph.at(node):
        parts = [call.outputs_[0]] if len(handed) == 1 else graph.unpack(call.outputs_[0]) if handed else []
    for value, part in zip(handed, parts):
        for user, index in list(value.uses):
            if not _within(user, block):
                user.replace_input(index, part)
        if value.has_name() and not part.has_name():
            name_of = value.name
            value.set_name("")
            part.set_name(name_of)
    node.destroy()


def _in_order(block: Block) -> list[Value]:
    return [v for n in block.nodes_ for v in n.outputs_]


def _within(node: Node, block: Block) -> bool:
    place = node.owner
    while place is not None:
        if place is block:
            return True
        place = place.owning_node.owner if place.owning_node is not None else None
    return False


def _method_name(kind: ClassType) -> str:
    number, name = 0, "forward"
    while name in kind.methods:
        number += 1
        name = f"forward{number}"
    return name


def _argument_name(value: Value, index: int) -> str:
    base = value.name.partition(".")[0]
    return base if base.isidentifier() else f"argument_{index + 1}"


def tidy(graph: Graph) -> None:
    cleanup.lower_tuples(graph)
    cleanup.remove_dead(graph)
    cleanup.pool_constants(graph)


# -- tracing --------------------------------------------------------------------------------------------------------------------


def _record(
    function: Callable, args: tuple, kwargs: dict, names: Sequence[str], root: Any, kind: ClassType | None, strict: bool
) -> tuple[Graph, Any]:
    tracer = Tracer(root, kind)
    copies = [_aliased(given) for given in (*args, *kwargs.values())]
    types = [_example_type(held) for held in copies]
    if not all(map(_can_be_traced, types)):
        raise RuntimeError(_UNTRACEABLE.format(TupleType([unshaped(t) for t in types]).code))
    for name, held, given in zip((*names, *kwargs), copies, types):
        value = tracer.graph.add_input("", given)
        if name.isidentifier():
            value.set_name(name)
        tracer.set_value(held, value)
    with tracer.watching():
        positional, named = copies[: len(args)], dict(zip(kwargs, copies[len(args) :]))
        result = function(*positional, **named)
        if result is None:
            raise RuntimeError("traced functions must return tensors, got None")
        checked = _checked_output(result)
        if strict and isinstance(result, (dict, list)):
            text = f"Encountering a {type(result).__name__} at the output of the tracer might cause the trace to be incorrect, this is only valid if the container structure does not change based on the module's inputs. Consider using a constant container instead (e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely need this and know the side effects, pass strict=False to trace() to allow this behavior."
            if isinstance(result, dict):
                raise RuntimeError(text)
            warn(text)
        out = tracer.value(checked)
        if out.type is INT:  # a size: a tensor in what is traced
            out = tracer.insert("prim::NumToTensor", [out])
    tracer.graph.add_output(out)
    lift(tracer.graph)
    tidy(tracer.graph)
    return tracer.graph, result


def _checked_output(result: Any) -> Any:
    if isinstance(result, (Tensor, TracedInt)):
        return result
    if isinstance(result, tuple):
        return tuple(map(_checked_output, result))
    if isinstance(result, list):
        return list(map(_checked_output, result))
    if isinstance(result, dict):
        return {k: _checked_output(v) for k, v in result.items()}
    raise RuntimeError(f"Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions, but got a value of type {type(result).__name__}")  # fmt: skip


def _aliased(thing: Any) -> Any:
    """The example itself would keep the traced shape if something failed: a view takes its place."""
    if isinstance(thing, Tensor):
        made = (
            thing.view_as(thing)
            if thing.layout is torch.strided and thing.requires_grad and not thing.is_leaf
            else thing.detach().requires_grad_(thing.requires_grad)
        )
        return made
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return type(thing)(*map(_aliased, thing))
    if isinstance(thing, (list, tuple)):
        return type(thing)(map(_aliased, thing))
    return {k: _aliased(v) for k, v in thing.items()} if isinstance(thing, dict) else thing


def _can_be_traced(kind: Type) -> bool:
    if isinstance(kind, DictType):
        return _can_be_traced(kind.value)
    if isinstance(kind, (TupleType, ListType)):
        return all(map(_can_be_traced, kind.contained()))
    return kind is TENSOR or isinstance(kind, ShapedTensor)


def _example_type(thing: Any) -> Type:
    if isinstance(thing, Tensor):
        return tensor_type(thing)
    if isinstance(thing, tuple):
        return TupleType([unshaped(_example_type(t)) for t in thing])
    found = notes.inferred(thing)
    if found is None:
        raise RuntimeError(_UNTRACEABLE.format(type(thing).__name__))
    return unshaped(found)


def _argument_names(function: Callable, count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [f"argument_{i + 1}" for i in range(count)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*names[:count], *(f"argument_{i + 1}" for i in range(len(names), count))]


def _as_tuple(example: Any) -> tuple:
    return example if isinstance(example, tuple) else tuple(example) if isinstance(example, list) else (example,)


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict | None = None,
    _store_inputs: bool = True,
) -> Any:
    """Run a function or a module on examples and return the operators it called as a compiled function or module.

    >>> traced = trace(lambda x: x * 2, torch.ones(3))
    """
    if not enabled():
        return func
    if isinstance(func, (ScriptModule, ScriptFunction)):
        warnings.warn(
            "The input to trace is already a ScriptModule, tracing it is a no-op. Returning the object as is.",
            stacklevel=2,
        )
        return func
    if isinstance(func, torch.nn.Module):
        if any(m._backward_hooks for m in func.modules()):
            raise ValueError("Modules that have backward hooks assigned can't be compiled: " + str(func))
        examples: Any = example_kwarg_inputs if example_kwarg_inputs is not None else example_inputs
        return trace_module(func, {"forward": examples}, None, check_trace, check_inputs, check_tolerance, strict, example_inputs_is_kwarg=example_kwarg_inputs is not None)  # fmt: skip
    if inspect.ismethod(func) and isinstance(func.__self__, torch.nn.Module):
        if func.__name__ != "forward":
            raise AttributeError(
                "trace doesn't support compiling individual module's functions.\nPlease use trace_module"
            )
        made = trace_module(
            func.__self__, {func.__name__: example_inputs}, None, check_trace, check_inputs, check_tolerance, strict
        )
        return getattr(made, func.__name__)
    args = () if example_kwarg_inputs is not None else _as_tuple(example_inputs)
    kwargs = dict(example_kwarg_inputs or {})
    names = _argument_names(func, len(args))
    graph, _ = _record(func, args, kwargs, names, None, None, strict)
    name = unique_name(qualified_name(func))
    schema = Schema(
        name.rpartition(".")[2], "", _arguments(graph, [*names, *kwargs]), [unshaped(graph.outputs_[0].type)]
    )
    made_function = ScriptFunction(Function(name).define(graph, schema), func)
    if check_trace:
        examples = [args] if check_inputs is None else [_as_tuple(i) for i in check_inputs]
        for example in examples:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TracerWarning)  # the same ones again
                again, _ = _record(func, _cloned(example), _cloned(kwargs), names, None, None, strict)
            _compare_graphs(graph, again)
        _check(made_function, func, examples, kwargs, check_tolerance, graph)
    return made_function


def _arguments(graph: Graph, names: Sequence[str]) -> list[Argument]:
    first = [Argument("self", graph.inputs_[0].type)] if len(graph.inputs_) > len(names) else []
    values = graph.inputs_[len(first) :]
    return [
        *first,
        *(
            Argument(n if n.isidentifier() else f"argument_{i}", unshaped(v.type))
            for i, (n, v) in enumerate(zip(names, values))
        ),
    ]


def trace_module(
    mod: Any,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:
    """Trace several methods of a module, each on its examples, into one compiled module."""
    if not isinstance(mod, torch.nn.Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    made = recursive.script_module(mod, share=False, tracing=True)
    made.__class__ = TopLevelTracedModule
    kind = made.script_type
    kind.compile_method = None
    for inner in made.modules():
        if (
            not getattr(inner.script_type, "compiled", False)
            and inner.script_type.compile_method is not None
            and _is_fresh(inner, mod)
        ):
            inner.script_type.compile_method = None
    for name, example in inputs.items():
        args = () if example_inputs_is_kwarg else _as_tuple(example)
        kwargs = dict(example) if example_inputs_is_kwarg else {}
        method = getattr(mod, name)
        call = mod if name == "forward" else method
        names = _argument_names(method, len(args))
        graph, _ = _record(call, args, kwargs, names, mod, kind, strict)
        schema = Schema(name, "", _arguments(graph, [*names, *kwargs]), [unshaped(graph.outputs_[0].type)])
        kind.methods[name] = Function(f"{kind.name}.{name}", None, kind).define(graph, schema)
        if check_trace:
            checked = (
                [args]
                if check_inputs is None
                else [_as_tuple(i[name] if isinstance(i, dict) else i) for i in check_inputs]
            )
            for given in [example] if check_inputs is None else checked:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", TracerWarning)  # the same ones again
                    again = trace_module(
                        mod, {name: given}, None, False, strict=strict, example_inputs_is_kwarg=example_inputs_is_kwarg
                    )
                _compare_graphs(graph, again.script_type.methods[name].graph)
            _check(getattr(made, name) if name != "forward" else made, call, checked, kwargs, check_tolerance, graph)
    return made


def _compare_graphs(first: Graph, second: Graph) -> None:
    """Two traces of the same code must record the same operators."""
    kinds = [[n.kind_ for n in g.nodes_ if n.kind_ != "prim::Constant"] for g in (first, second)]
    if kinds[0] != kinds[1]:
        raise TracingCheckError(f"Graphs differed across invocations!\n{first}\n{second}", None)
    tensors = [[n.attributes["value"] for n in g.nodes_ if n.kind_ == "prim::Constant" and isinstance(n.attributes.get("value"), Tensor)] for g in (first, second)]  # fmt: skip
    for a, b in zip(*tensors):
        if a.shape != b.shape or not torch.equal(a, b):
            raise TracingCheckError(None, f"Tensor-valued Constant nodes differed in value across invocations. This often indicates that the tracer has encountered untraceable code.\n{a}\n{b}")  # fmt: skip


_RANDOM = ("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::rand", "aten::bernoulli", "aten::normal", "aten::multinomial", "aten::rrelu", "aten::uniform")  # fmt: skip


def _random_nodes(block: Block) -> list[Node]:
    """Nodes that draw random numbers; dropout does unless it is known to do nothing."""
    found = []
    for node in block.nodes_:
        still = "dropout" in node.kind_ and node.inputs_[-1].node.attributes.get("value") is False
        if node.kind_.startswith(_RANDOM) and not still:
            found.append(node)
        found += [n for inner in node.blocks_ for n in _random_nodes(inner)]
    return found


def _is_fresh(inner: Any, mod: Any) -> bool:
    return all(inner is not held for held in mod.modules())


def _check(
    traced: Any, function: Callable, examples: Sequence[tuple], kwargs: dict, tolerance: float, graph: Graph
) -> None:
    """Run both on the examples; results that differ are told."""
    for args in examples:
        state = torch.get_rng_state()
        with torch.no_grad():
            expected = function(*_cloned(args), **_cloned(kwargs))
            found = traced(*_cloned(args), **_cloned(kwargs))
        torch.set_rng_state(state)
        for number, (a, b) in enumerate(zip(tensors_in(expected), tensors_in(found))):
            try:
                torch.testing.assert_close(b.double() if b.is_floating_point() else b, a.double() if a.is_floating_point() else a, rtol=tolerance, atol=tolerance, equal_nan=True)  # fmt: skip
            except AssertionError as problem:
                random = _random_nodes(inlined(graph))
                if random:
                    nodes = "\n\t".join(str(n) for n in random)
                    warn(f"Trace had nondeterministic nodes. Did you forget call .eval() on your model? Nodes:\n\t{nodes}\nThis may cause errors in trace checking. To disable trace checking, pass check_trace=False to torch.jit.trace()")  # fmt: skip
                warn(f"Output nr {number + 1}. of the traced function does not match the corresponding output of the Python function. Detailed error:\n{problem}")  # fmt: skip
                return


def _cloned(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(_cloned, tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map(_cloned, tree))
    return {k: _cloned(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


__all__ = ["TracerWarning", "TracingCheckError", "copy_graph", "trace", "trace_module"]
