"""Recording of a module's run as a graph of `torch.ops.aten`; with dynamic sizes, of several runs that are compared."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import flambeau

from ..autograd.function import Function, FunctionCtx
from ..core.naming import torch_name
from ..core.tensor import Tensor
from ..fx.experimental import graph_reader, graph_recorder
from ..fx.graph import Graph
from ..fx.names import home_of
from ..fx.node import Node
from ..graph.program import Call, Value
from ..library.aten import OpOverload
from ..nn import Module
from ..nn.unchanged import unchanged
from ..ops.machinery.schema import parse_schema
from ..serialization.names import written_name
from ..utils import _pytree as pytree
from .constraints import settled, violations, within_reach
from .dynamic_shapes import Sizes, combined, gather
from .exported_program import ModuleCallSignature
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from .merging import EXAMPLES, Merger, Unsupported, other_sizes, smaller_sizes
from .symbols import Symbol


def class_name(cls: type) -> str:
    """Return the name of a class as metadata has it."""
    module, name = written_name(cls) or (torch_name(cls.__module__), cls.__qualname__)
    return f"{module}.{name}"


def input_names(program: Any, args: tuple, kwargs: dict[str, Any]) -> list[str]:
    """Return a name for each leaf of the arguments: the parameter's, with the path to the leaf."""
    named = combined(program, args, kwargs)
    found = []
    for path, _ in pytree.tree_leaves_with_path(named):
        parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
        found.append(re.sub(r"[^0-9a-zA-Z_]+", "_", "_".join(parts)).lower())
    return found


class _TraceOptions(threading.local):
    """Choices that exporters to other formats make for this thread: which autograd.Functions and composite operators
    stay one node of a graph, and which function makes the calls that are recorded in place of an overload."""

    wanted: Callable[[type], bool] = staticmethod(lambda function: False)
    whole: Callable[[Any, str], bool] = staticmethod(lambda op, name: True)
    parts: Callable[[OpOverload], Callable | None] = staticmethod(lambda overload: None)


keeping = _TraceOptions()


class FunctionTarget:
    """A user's autograd.Function as the target of a node."""

    _made: ClassVar[dict[tuple[type, int], FunctionTarget]] = {}

    def __init__(self, function: type[Function], count: int) -> None:
        self.function, self.__name__ = function, function.__name__
        arguments = ", ".join(f"Any arg{i}" for i in range(count))
        self._schema = parse_schema(f"autograd::{function.__name__}({arguments}) -> Any")
        self.overloadpacket = self

    @classmethod
    def of(cls, function: type[Function], count: int) -> FunctionTarget:
        """Return the target of a function with this number of results; equal arguments give the same object."""
        return cls._made.setdefault((function, count), cls(function, count))

    def __call__(self, *args: Any) -> Any:
        return self.function.apply(*args)


class Recorder(graph_recorder.GraphRecorder):
    """Records a module."""

    def __init__(self, module: Module, preserved: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.module, self.preserved = module, preserved
        # Of preserved modules, by path (@N from the second call on): leaves and structure of arguments and results.
        self.calls: dict[str, list[tuple[list[Any], Any]]] = {}
        self.stack: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self.describe = self._describe
        self.renamed: dict[int, str] = {}  # names of nodes that are not their operators', by the numbers of values
        self.counts: dict[str, int] = {}
        self.calling: str | None = None

    def _describe(self, op: Any) -> dict[str, Any]:
        name = self.calling or getattr(op, "overloadpacket", op).__name__
        return {
            "nn_module_stack": OrderedDict(self.stack),
            "stack_trace": self.stack_trace(),
            "torch_fn": (f"{name}_{self.counts.get(name, 1)}", f"function.{name}"),
        }

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Record which public function the program calls; operators inside it carry its name."""
        if self.calling is not None:
            return super().handle(op, function, args, kwargs)
        home = home_of(function)
        self.calling = home.name if home else getattr(op, "name", "") or function.__name__
        self.counts[self.calling] = self.counts.get(self.calling, 0) + 1
        try:
            return super().handle(op, function, args, kwargs)
        finally:
            self.calling = None

    def handle_function(self, function: type[Function], args: tuple) -> Any:
        """Record a user's autograd.Function that is to be one node (see `keeping`)."""
        if not keeping.wanted(function):
            return NotImplemented
        target = FunctionTarget.of(function, len(args))
        return self.unseen(self.call, target, target, lambda *a: function._call(FunctionCtx(), a), args, {})

    def keeps(self, op: Any, name: str) -> bool:
        return keeping.whole(op, name)

    def parts_of(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Callable | None:
        return keeping.parts(overload) or super().parts_of(overload, args, kwargs)

    def record(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Record a call; if others are recorded in its place, the last of them gets its name."""
        (before, _), apart = self.mark(), overload not in self.inside and keeping.parts(overload) is not None
        result = super().record(overload, args, kwargs)
        last = self.program.calls[-1].results if apart and self.mark()[0] > before else None
        if isinstance(last, Value) and self.known.get(id(result), (None, None))[1] is last:
            self.renamed[last.number] = overload._overloadpacket.__name__
        return result

    def foreign(self, t: Tensor) -> Value:
        return self.know(t)

    def branch_names(self, count: int) -> None:
        return None

    def before_cast(self, tensor: Tensor) -> None:
        """Record a check of a tensor's dtype, device and layout, on which a cast depends, for when the program runs."""
        checked = {"dtype": tensor.dtype, "device": tensor.device, "layout": tensor.layout}
        target = flambeau.ops.aten._assert_tensor_metadata.default
        self.write(target, None, ((self.held(tensor),), checked), None)

    @contextlib.contextmanager
    def watching_modules(self) -> Iterator[None]:
        """Context manager: track which module's forward runs."""
        paths = {module: path for path, module in self.module.named_modules()}
        times: dict[str, int] = {}
        original: Any = Module.__call__

        @functools.wraps(original)
        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            path = paths.get(module)
            if path is None:
                return original(module, *args, **kwargs)
            number = times[path] = times.get(path, -1) + 1
            call_path = f"{path}@{number}" if number else path
            kept = OrderedDict(self.stack)
            self.stack[f"L__self__{call_path}"] = (path, class_name(type(module)))
            try:
                result = original(module, *args, **kwargs)
            finally:
                self.stack = kept
            if path in self.preserved:
                self.calls[call_path] = [self.unseen(self._flat, given) for given in ((args, kwargs), result)]
            return result

        Module.__call__ = call  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Module.__call__ = original  # type: ignore[method-assign]

    def _flat(self, given: Any) -> tuple[list[Any], Any]:
        """Flatten arguments or results: leaves, with graph values replacing tensors, and their tree."""
        leaves, spec = pytree.tree_flatten(given)
        return self.structure(leaves), spec


class Reader(graph_reader.GraphReader):
    """Converts the recording of a module to a graph whose inputs include parameters, buffers and constants."""

    recorder: Recorder

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, Graph(), recorder.module)
        self.inputs: list[InputSpec] = []
        self.constants_found: dict[str, Tensor] = {}
        self.first_user_input: Node | None = None
        self.attributes = {id(v): (path, v) for path, v in _tensor_attributes(recorder.module)}

    def add_input(
        self, kind: InputKind, name: str, target: str, tensor: Tensor, persistent: bool | None = None
    ) -> None:
        node = self.graph.placeholder(re.sub(r"[^0-9a-zA-Z_]+", "_", name).lower())
        self.track(self.recorder.know(tensor), node)
        self.inputs.append(InputSpec(kind, TensorArgument(node.name), target, persistent))

    def constant(self, value: Value) -> Node:
        tensor = self.recorder.tensors[value.number]
        lifted = sum(path.startswith("lifted_tensor_") for path in self.constants_found)
        path = self.attributes.get(id(tensor), (f"lifted_tensor_{lifted}", None))[0]
        with self.graph.inserting_before(self.first_user_input or self.graph._root):
            node = self.graph.placeholder("c_" + path.replace(".", "_"))
        self.track(value, node)
        place = sum(spec.kind is not InputKind.USER_INPUT for spec in self.inputs)
        self.inputs.insert(place, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), path))
        self.constants_found[path] = tensor
        return node

    def add(self, call: Call) -> None:
        super().add(call)
        if isinstance(call.results, Value) and call.results.number in self.recorder.renamed:
            self.nodes[call.results.number]._rename(self.recorder.renamed[call.results.number])

    def describe(self, node: Node, call: Call) -> None:
        super().describe(node, call)
        if node.op == "get_attr":  # a branch of a choice
            node.meta = {"nn_module_stack": call.notes["nn_module_stack"]}

    def signatures(self) -> dict[str, ModuleCallSignature]:
        """Return the signatures of the calls of preserved modules, with names of nodes in place of tensors."""

        def named(leaf: Any) -> Any:
            return TensorArgument(self.node_of(leaf).name) if isinstance(leaf, Value) else ConstantArgument("", leaf)

        return {
            path: ModuleCallSignature(list(map(named, inputs)), list(map(named, outputs)), in_spec, out_spec)
            for path, ((inputs, in_spec), (outputs, out_spec)) in self.recorder.calls.items()
        }


def _tensor_attributes(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that modules hold as plain attributes."""
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if isinstance(value, Tensor):
                yield (f"{path}.{name}" if path else name), value


def _is_persistent(module: Module, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    return name not in module.get_submodule(owner)._non_persistent_buffers_set


class Trace:
    """Trace of one run of a module: the graph that was read from the recorder's program, its inputs and outputs."""

    recorder_type: type[Recorder] = Recorder
    reader_type: type[Reader] = Reader

    def __init__(self, module: Module, args: tuple, kwargs: dict[str, Any], preserved: tuple[str, ...] = ()) -> None:
        recorder = self.recorder_type(module, preserved)
        reader = self.reader = self.reader_type(recorder)
        with flambeau.no_grad(), unchanged(module):
            for path, parameter in module.named_parameters():
                reader.add_input(InputKind.PARAMETER, f"p_{path}", path, parameter)
            for path, buffer in module.named_buffers():
                reader.add_input(InputKind.BUFFER, f"b_{path}", path, buffer, _is_persistent(module, path))
            leaves, self.in_spec = pytree.tree_flatten((args, kwargs))
            own = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            for leaf, original, name in zip(own, leaves, input_names(module, args, kwargs)):
                self._user_input(leaf, original, name)
            given, named = pytree.tree_unflatten(own, self.in_spec)
            with recorder.watching_modules(), recorder:
                result = module(*given, **named)
            outputs, self.out_spec = pytree.tree_flatten(result)
            values = reader.read(outputs)
        self.calls = reader.signatures()
        reader.graph.output(tuple(values))
        self.graph, self.pieces = reader.graph, reader.pieces
        self.signature = ExportGraphSignature(reader.inputs, [_output_spec(v) for v in values])
        self.outputs = values
        nodes = {node.name: node for node in self.graph.nodes if node.op == "placeholder"}
        constants = [spec for spec in reader.inputs if spec.kind is InputKind.CONSTANT_TENSOR]
        self.lifted = [(nodes[spec.arg.name], reader.constants_found[spec.target or ""]) for spec in constants]

    def _user_input(self, leaf: Any, original: Any, name: str) -> None:
        reader = self.reader
        node = reader.graph.placeholder(name)
        if node.name != name and not any(n.name == name for n in reader.graph.nodes):
            node.name = name  # also where Python has a function of that name
        reader.first_user_input = reader.first_user_input or node
        if isinstance(leaf, Tensor):
            reader.track(reader.recorder.know(leaf), node)
            node.meta["val"].requires_grad_(original.requires_grad) if leaf.is_floating_point() else None
            argument: Any = TensorArgument(node.name)
        elif leaf is None or isinstance(leaf, (int, float, bool, str)):
            node.meta["val"] = leaf
            argument = ConstantArgument(node.name, leaf)
        else:
            raise Unsupported(
                f"Unsupported input type {type(leaf)}. Export only supports pytree containers of basic types (Tensor, int,"
                " float, ...) as input. To register a custom dataclass, use register_dataclass. To register a custom container"
                " type, use register_pytree_node."
            )
        reader.inputs.append(InputSpec(InputKind.USER_INPUT, argument, None))


def _output_spec(value: Any) -> OutputSpec:
    if isinstance(value, Node):
        return OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(value.name), None)
    if value is not None and not isinstance(value, (int, float, bool, str)):
        raise Unsupported(f"the program returns a {type(value).__name__}, which a graph cannot")
    return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", value), None)


# -- sizes that change ----------------------------------------------------------------------------------------------------


def resized(leaf: Tensor, sizes: list[int]) -> Tensor:
    """Return a tensor of other sizes with similar values."""
    found = leaf.detach()
    for dim, size in enumerate(sizes):
        if size != found.shape[dim]:
            repeats = -(-size // max(found.shape[dim], 1))
            found = flambeau.cat([found] * repeats, dim).narrow(dim, 0, size)
    return found.contiguous()


def with_sizes(leaves: list[Any], sizes: Sizes, values: dict[Symbol, int]) -> list[Any]:
    """Return leaves of arguments in which tensors with dynamic sizes are replaced by tensors of other sizes."""
    changed = list(leaves)
    for number, dims in sizes.of_leaf.items():
        wanted = [dims[d].value(values) if d in dims else s for d, s in enumerate(leaves[number].shape)]
        changed[number] = resized(leaves[number], wanted)
    return changed


def _run_with(module: Module, args: tuple, kwargs: dict, sizes: Sizes, values: dict[Symbol, int]) -> Trace:
    leaves, shape = pytree.tree_flatten((args, kwargs))
    return Trace(module, *pytree.tree_unflatten(with_sizes(leaves, sizes, values), shape))


def trace(
    module: Module, args: tuple, kwargs: dict[str, Any], dynamic_shapes: Any, preserved: tuple[str, ...] = ()
) -> tuple[Trace, Sizes]:
    """Return the module's graph for these arguments, in which dynamic sizes are computed; `preserved` are submodules whose call signatures
    are recorded."""
    sizes = gather(combined(module, args, kwargs), dynamic_shapes)
    first = Trace(module, args, kwargs, preserved)
    if not sizes.symbols:
        return first, sizes
    same_calls = _same_calls(module, args, kwargs, sizes, first)
    while True:  # until no more sizes marked AUTO or DYNAMIC are restricted
        found = _runs(module, args, kwargs, sizes, first, same_calls)
        if found is None:
            continue
        try:
            Merger(*found, sizes, lambda values: _run_with(module, args, kwargs, sizes, values)).merge()
            return first, sizes
        except Unsupported:
            if not sizes.give_up_smaller():
                raise


def _runs(
    module: Module, args: tuple, kwargs: dict[str, Any], sizes: Sizes, first: Trace, works: Callable[[dict], bool]
) -> tuple[list[Trace], list[dict[Symbol, int]]] | None:
    """Return traces of the program with several sizes, and these; None if sizes turned out to be restricted, which `sizes` says from now on."""
    runs = [{s: s.hint for s in sizes.symbols}]
    traces, tried, sizes.small = [first], sizes, None
    while len(traces) < EXAMPLES:
        values = other_sizes(tried, len(traces))
        problem: Exception | None = None
        try:
            found = _run_with(module, args, kwargs, sizes, values)
        except Unsupported:
            raise
        except Exception as raised:
            problem = raised
        if problem is None and _calls(found) == _calls(first):
            traces.append(found)
            runs.append(values)
        elif settled(sizes, works):
            return None
        elif isinstance(problem, IndexError) and tried is sizes:  # of an element, as of a table: no fault of the sizes
            tried = within_reach(sizes, works)
        else:
            raise Unsupported(violations(sizes, works) or _not_run(problem, values)) from problem
    for values in smaller_sizes(sizes):
        try:
            found = _run_with(module, args, kwargs, sizes, values)
        except Exception:  # whatever it is: there the program has no result that could be a wrong one
            continue
        sizes.small = values
        if _calls(found) == _calls(first):
            return [*traces, found], [*runs, values]
        if settled(sizes, works):
            return None
        raise Unsupported(violations(sizes, works) or _not_run(None, values))
    return traces, runs


def _not_run(problem: Exception | None, values: dict[Symbol, int]) -> str:
    """Return the message about a program that differs for other sizes, without a rule that was found."""
    if problem is None:
        return "the program does something else for other sizes"
    chosen = ", ".join(f"{s} = {v}" for s, v in values.items())
    return (
        f"Constraints violated: the program does not run with other sizes ({chosen}), though dynamic_shapes says that it"
        f" does: {type(problem).__name__}: {problem}"
    )


def _calls(trace: Trace) -> list[Any]:
    return [n.target for n in trace.graph.nodes if n.op == "call_function"]


def _same_calls(module: Module, args: tuple, kwargs: dict, sizes: Sizes, first: Trace) -> Callable[[dict], bool]:
    """Return a test whether the program makes the calls of a first run with other sizes, too."""

    def works(values: dict[Symbol, int]) -> bool:
        try:
            return _calls(_run_with(module, args, kwargs, sizes, values)) == _calls(first)
        except Exception:  # whatever it is, the program does not do with these sizes what it did
            return False

    return works
