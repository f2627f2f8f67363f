"""The mode that records a program's operators into a graph: see `tracer`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau as torch

from ..core import modes
from ..core.dtype import METHODS
from ..core.native_class import CustomClass
from ..core.tensor import Tensor
from ..library.aten import formulas
from ..nn.modules import hooks as module_hooks  # noqa: F401  registers what the global hooks need
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from ..ops.machinery.matching import NoMatch
from . import operators
from . import signatures as notes
from .functions import Function
from .ir import Block, Graph, Value
from .matching import Named, carry_out, match_call
from .module import ScriptModule
from .record_forms import declares_calls, takes_alike
from .schema import schemas_of, symbol_of
from .trace_places import user_range, variable_name, warn
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
    result_type,
    unshaped,
)
from .values import FunctionValue

FORWARD = "prim::TracedModuleForward"

# Operators of Flambeau that are called otherwise in graphs.
_OTHER_NAMES = {"slice_dim": "slice", "permute_dims": "permute", "where_tensor": "where", "put_at_": "index_put_"}
_END = 9223372036854775807  # what a slice without an end is written with
UNTRACEABLE = (
    "Type '{}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"
)
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
                later = frame.block.nodes_[index:]
                node.insert_before(later[0] if later else frame.block.ret)
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
            if declares_calls(op):
                function, args = op.aten_calls, (self, *args)
            elif op.kind == "pointwise" and not op.namespaces:  # a formula of a user's: its steps
                function, args, kwargs = formulas.recorded, (self, op, function, args, kwargs), {}
            before, self.reads_python = self.reads_python, False
            try:
                with self:
                    result = self._run(modes.unwatched(function), args, kwargs, recording=True)
            finally:
                self.reads_python = before
            self._check_seen(name, args, kwargs, result)
            return result
        result = self._run(function, args, kwargs)
        self.set_value(result, call)
        return result

    def again(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Record the operators that a function of the library is made of."""
        return function(*args, **kwargs)

    def unseen(self, function: Callable) -> Any:
        """Run a function without recording it."""
        with _without(self):
            return self._run(function, (), {})

    @property
    def aten(self) -> _Operators:
        """PyTorch's operators, for functions that say which of them are called (`Op.as_aten`)."""
        return _Operators(self)

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
        if name in METHODS and len(args) == 1 and not kwargs:
            return self.insert("aten::to", [self.value(args[0]), self.constant(METHODS[name].number, INT)])
        if name == "true_positions":
            flat = self.insert("aten::flatten", [self.value(args[0]), self.constant(0, INT), self.constant(-1, INT)])
            places = self.insert("aten::nonzero", [flat])
            return self.insert("aten::select", [places, self.constant(1, INT), self.constant(0, INT)])
        if name == "einsum" and len(args) > 1 and not isinstance(args[1], (list, tuple)):
            args = (args[0], list(args[1:]))
        before = len(self.frame.block.nodes_)
        spelled = self._spelled(name, op, args, kwargs)
        if spelled is None:
            return None
        symbol, args, kwargs, item = spelled
        try:
            made = self.call_node(symbol, args, kwargs)
            with self.graph.at(self.frame.block):
                return made if item is None else self.graph.unpack(made)[item]
        except RuntimeError as problem:
            if "requires grad as a constant" in str(problem):
                raise
            for node in reversed(self.frame.block.nodes_[before:]):
                if not any(v.uses for v in node.outputs_):
                    node.destroy()
            return None

    def call_node(self, symbol: str, args: Any, kwargs: dict) -> Value:
        """Insert a call of one of PyTorch's operators, whichever overload fits; its output."""
        schemas = schemas_of(symbol)
        given = [Named(self.value(a)) for a in args]
        own = {"input": "self"} if all(s.index_of("input") is None for s in schemas) else {}
        named = [Named(self.value(v), None, own.get(k, k)) for k, v in kwargs.items()]
        with self.graph.at(self.frame.block):
            return carry_out(self.graph, symbol, match_call(self.graph, None, schemas, given, named), user_range())

    def _spelled(self, name: str, op: Any, args: tuple, kwargs: dict) -> tuple[str, Any, dict, Any] | None:
        """PyTorch's operator that a call is, what it is given, and which of its results is meant; None where there is none."""
        forms = [form for form in op.aten_forms if not form.only_names]
        for form in forms:
            with contextlib.suppress(NoMatch):
                schema, values = form.values(op.bind(args, kwargs), op.defaults, self.aten)
                for place, argument in enumerate(schema.arguments):
                    if argument.name.startswith("cudnn_enable"):  # a graph may be run elsewhere
                        values[place] = True
                return (schema.name, *schema.as_call(values), form.item)
        symbol = symbol_of(op) if name == op.name else f"aten::{name}"
        if "inplace" in op.arguments and not forms:
            inplace = op.bind(args, kwargs)
            symbol += "_" if inplace.pop("inplace", False) else ""
            args, kwargs = tuple(inplace.values()), {}
        functional = "nn.functional" in op.namespaces and not takes_alike(op, symbol.removesuffix("_"))
        return None if forms or functional and "inplace" not in op.arguments or not schemas_of(symbol) else (symbol, args, kwargs, None)  # fmt: skip

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


class _Operators:
    """`torch.ops.aten` as a tracer sees it: calls are nodes of its graph."""

    def __init__(self, tracer: Tracer):
        self.tracer = tracer

    def __getattr__(self, name: str) -> _Overloads:
        return _Overloads(self.tracer, name)


class _Overloads:
    """One of these operators, and its overloads."""

    def __init__(self, tracer: Tracer, name: str):
        self.tracer, self.name = tracer, name

    def __getattr__(self, overload: str) -> Callable:
        function = getattr(getattr(torch.ops.aten, self.name), overload)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = self.tracer.call_node(f"aten::{self.name}", args, kwargs)
            with _without(self.tracer):
                result = self.tracer._run(function, args, kwargs)
            self.tracer.set_value(result, made)
            return result

        return call


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
    if tensor.dtype.method is None:
        return TENSOR
    shape, strides = [int(n) for n in tensor.shape], [int(n) for n in tensor.stride()]
    parts = [*map(str, shape)]
    if shape:
        parts.append(f"strides=[{', '.join(map(str, strides))}]")
    parts += [f"requires_grad={int(tensor.requires_grad)}", f"device={tensor.device}"]
    return ShapedTensor(f"{tensor.dtype.scalar_type}({', '.join(parts)})", tensor.dtype, shape, strides)
