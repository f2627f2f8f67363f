"""A module run once and kept as a graph of `torch.ops.aten`; with sizes that may change, run several times and compared."""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import flambeau

from ..autograd.function import FunctionCtx
from ..core.naming import torch_name
from ..core.tensor import Tensor
from ..fx.experimental.graph_recorder import GraphRecorder
from ..fx.graph import Graph
from ..fx.names import home_of
from ..fx.node import Node
from ..library.aten import OpOverload
from ..nn import Module
from ..nn.unchanged import unchanged
from ..ops.machinery.schema import parse_schema
from ..serialization.names import written_name
from ..utils import _pytree as pytree
from .constraints import violations
from .dynamic_shapes import Sizes, combined, gather
from .exported_program import ModuleCallSignature
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from .symbols import Expression, Symbol, fitted

_BUMPS = (0, 3, 7, 12, 22)
EXAMPLES = len(_BUMPS)  # how many runs a program with sizes that may change takes


class Unsupported(RuntimeError):
    """The program cannot be exported."""


def class_name(cls: type) -> str:
    """A class as metadata names it."""
    module, name = written_name(cls) or (torch_name(cls.__module__), cls.__qualname__)
    return f"{module}.{name}"


def input_names(program: Any, args: tuple, kwargs: dict[str, Any]) -> list[str]:
    """A name for each leaf of the arguments: the parameter's, with the steps that lead to the leaf."""
    named = combined(program, args, kwargs)
    found = []
    for path, _ in pytree.tree_leaves_with_path(named):
        parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
        found.append(re.sub(r"[^0-9a-zA-Z_]+", "_", "_".join(parts)).lower())
    return found


class _Keeping(threading.local):
    """Which autograd.Functions and which operators that are made of others stay one node of a graph, and what makes the calls that
    are recorded instead of others: told by exports to formats that have forms for some of them."""

    wanted: Callable[[type], bool] = staticmethod(lambda function: False)
    whole: Callable[[Any, str], bool] = staticmethod(lambda op, name: True)
    parts: Callable[[OpOverload], Callable | None] = staticmethod(lambda overload: None)


keeping = _Keeping()


class FunctionTarget:
    """A user's autograd.Function as what a node calls."""

    _made: ClassVar[dict[tuple[type, int], FunctionTarget]] = {}

    def __init__(self, function: type, count: int) -> None:
        self.function, self.__name__ = function, function.__name__
        arguments = ", ".join(f"Any arg{i}" for i in range(count))
        self._schema = parse_schema(f"autograd::{function.__name__}({arguments}) -> Any")
        self.overloadpacket = self

    @classmethod
    def of(cls, function: type, count: int) -> FunctionTarget:
        """The same target for the same function."""
        return cls._made.setdefault((function, count), cls(function, count))

    def __call__(self, *args: Any) -> Any:
        return self.function.apply(*args)  # type: ignore[attr-defined]


class Recorder(GraphRecorder):
    """Records a module: its parameters, buffers and constants are inputs of the graph."""

    def __init__(self, module: Module, preserved: tuple[str, ...] = ()) -> None:
        super().__init__(Graph(), module)
        self.module, self.preserved = module, preserved
        self.calls: dict[str, ModuleCallSignature] = {}  # of preserved modules, by path; @N from the second call on
        self.inputs: list[InputSpec] = []
        self.constants_found: dict[str, Tensor] = {}
        self.stack: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self.first_user_input: Node | None = None
        self.describe = self._describe
        self.attributes = {id(v): (path, v) for path, v in _tensor_attributes(module)}
        self.counts: dict[str, int] = {}
        self.calling: str | None = None

    def _describe(self, node: Node) -> None:
        node.meta["nn_module_stack"] = OrderedDict(self.stack)
        if node.op == "get_attr":  # a branch of a choice
            return
        node.meta["stack_trace"] = self.place()
        name = self.calling or getattr(node.target, "overloadpacket", node.target).__name__
        node.meta["torch_fn"] = (f"{name}_{self.counts.get(name, 1)}", f"function.{name}")

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Note which public function the program calls; what it is made of carries its name."""
        if self.calling is not None:
            return super().handle(op, function, args, kwargs)
        home = home_of(function)
        self.calling = home.name if home else getattr(op, "name", "") or function.__name__
        self.counts[self.calling] = self.counts.get(self.calling, 0) + 1
        try:
            return super().handle(op, function, args, kwargs)
        finally:
            self.calling = None

    def handle_function(self, function: type, args: tuple) -> Any:
        """A user's autograd.Function that is wanted as one node (see `keeping`)."""
        if not keeping.wanted(function):
            return NotImplemented

        def run() -> Any:
            result = function._call(FunctionCtx(), args)  # type: ignore[attr-defined]
            return self.note(FunctionTarget.of(function, len(args)), args, {}, result)  # type: ignore[arg-type]

        return self.unseen(run)

    def keeps(self, op: Any, name: str) -> bool:
        return keeping.whole(op, name)

    def parts_of(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Callable | None:
        return keeping.parts(overload) or super().parts_of(overload, args, kwargs)

    def record(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Note a call; where others are noted instead, the last of them is called after it."""
        mark, apart = self.mark(), overload not in self.inside and keeping.parts(overload) is not None
        result = super().record(overload, args, kwargs)
        last = self.known.get(id(result), (None, None))[1] if apart and isinstance(result, Tensor) else None
        if last is not None and last is self.mark() is not mark:
            last._rename(overload._overloadpacket.__name__)
        return result

    def add_input(
        self, kind: InputKind, name: str, target: str, tensor: Tensor, persistent: bool | None = None
    ) -> None:
        node = self.graph.placeholder(re.sub(r"[^0-9a-zA-Z_]+", "_", name).lower())
        self.track(tensor, node)
        self.inputs.append(InputSpec(kind, TensorArgument(node.name), target, persistent))

    def constant(self, tensor: Tensor) -> Node:
        path = self.attributes.get(id(tensor), (f"lifted_tensor_{len(self._lifted())}", None))[0]
        with self.graph.inserting_before(self.first_user_input or self.graph._root):
            node = self.graph.placeholder("c_" + path.replace(".", "_"))
        self.track(tensor, node)
        place = sum(spec.kind is not InputKind.USER_INPUT for spec in self.inputs)
        self.inputs.insert(place, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), path))
        self.constants_found[path] = tensor
        return node

    def branch_names(self, given: list[Node]) -> list[str]:
        return [node.name for node in given]

    def before_cast(self, tensor: Tensor) -> None:
        """The type a tensor had is checked when the program runs: casts depend on it."""
        target = flambeau.ops.aten._assert_tensor_metadata.default
        checked = {"dtype": tensor.dtype, "device": tensor.device, "layout": tensor.layout}
        node = self.graph.call_function(target, (self.node_of(tensor),), checked)
        self._describe(node)
        node.meta["val"] = None

    def _lifted(self) -> list[str]:
        return [path for path in self.constants_found if path.startswith("lifted_tensor_")]

    @contextlib.contextmanager
    def watching_modules(self) -> Iterator[None]:
        """Inside, it is known which module's forward runs."""
        paths = {module: path for path, module in self.module.named_modules()}
        times: dict[str, int] = {}
        original = Module.__call__

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
                self.calls[call_path] = self._signature((args, kwargs), result)
            return result

        Module.__call__ = call  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Module.__call__ = original  # type: ignore[method-assign]

    def _signature(self, given: tuple, result: Any) -> ModuleCallSignature:
        """How a module was called, and what it returned, with the nodes of the tensors."""

        def named(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return TensorArgument(self.unseen(self.node_of, leaf).name)
            return ConstantArgument("", leaf)

        inputs, in_spec = pytree.tree_flatten(given)
        outputs, out_spec = pytree.tree_flatten(result)
        return ModuleCallSignature(list(map(named, inputs)), list(map(named, outputs)), in_spec, out_spec)


def _tensor_attributes(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that modules hold as plain attributes."""
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if isinstance(value, Tensor):
                yield (f"{path}.{name}" if path else name), value


def _is_persistent(module: Module, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    return name not in module.get_submodule(owner)._non_persistent_buffers_set


class Trace:
    """One run of a module."""

    recorder_type: type[Recorder] = Recorder

    def __init__(self, module: Module, args: tuple, kwargs: dict[str, Any], preserved: tuple[str, ...] = ()) -> None:
        recorder = self.recorder = self.recorder_type(module, preserved)
        with flambeau.no_grad(), unchanged(module):
            for path, parameter in module.named_parameters():
                recorder.add_input(InputKind.PARAMETER, f"p_{path}", path, parameter)
            for path, buffer in module.named_buffers():
                recorder.add_input(InputKind.BUFFER, f"b_{path}", path, buffer, _is_persistent(module, path))
            leaves, self.in_spec = pytree.tree_flatten((args, kwargs))
            own = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            for leaf, original, name in zip(own, leaves, input_names(module, args, kwargs)):
                self._user_input(leaf, original, name)
            given, named = pytree.tree_unflatten(own, self.in_spec)
            with recorder.watching_modules(), recorder:
                result = module(*given, **named)
            outputs, self.out_spec = pytree.tree_flatten(result)
            values = [recorder.argument(value) for value in outputs]
        recorder.graph.output(tuple(values))
        self.graph, self.pieces = recorder.graph, recorder.pieces
        self.signature = ExportGraphSignature(recorder.inputs, [_output_spec(v) for v in values])
        self.outputs = values

    def _user_input(self, leaf: Any, original: Any, name: str) -> None:
        recorder = self.recorder
        node = recorder.graph.placeholder(name)
        if node.name != name and not any(n.name == name for n in recorder.graph.nodes):
            node.name = name  # also where Python has a function of that name
        recorder.first_user_input = recorder.first_user_input or node
        if isinstance(leaf, Tensor):
            recorder.track(leaf, node)
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
        recorder.inputs.append(InputSpec(InputKind.USER_INPUT, argument, None))


def _output_spec(value: Any) -> OutputSpec:
    if isinstance(value, Node):
        return OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(value.name), None)
    if value is not None and not isinstance(value, (int, float, bool, str)):
        raise Unsupported(f"the program returns a {type(value).__name__}, which a graph cannot")
    return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", value), None)


# -- sizes that change ----------------------------------------------------------------------------------------------------


def resized(leaf: Tensor, sizes: list[int]) -> Tensor:
    """A tensor of other sizes with values of the same kind."""
    found = leaf.detach()
    for dim, size in enumerate(sizes):
        if size != found.shape[dim]:
            repeats = -(-size // max(found.shape[dim], 1))
            found = flambeau.cat([found] * repeats, dim).narrow(dim, 0, size)
    return found.contiguous()


def _run_with(module: Module, args: tuple, kwargs: dict, sizes: Sizes, values: dict[Symbol, int]) -> Trace:
    leaves, shape = pytree.tree_flatten((args, kwargs))
    changed = list(leaves)
    for number, dims in sizes.of_leaf.items():
        wanted = [dims[d].value(values) if d in dims else s for d, s in enumerate(leaves[number].shape)]
        changed[number] = resized(leaves[number], wanted)
    return Trace(module, *pytree.tree_unflatten(changed, shape))


def trace(
    module: Module, args: tuple, kwargs: dict[str, Any], dynamic_shapes: Any, preserved: tuple[str, ...] = ()
) -> tuple[Trace, Sizes]:
    """The module's graph for these arguments, in which the sizes that may change are computed; `preserved` are submodules of
    which the calls' signatures are noted."""
    sizes = gather(combined(module, args, kwargs), dynamic_shapes)
    first = Trace(module, args, kwargs, preserved)
    if not sizes.symbols:
        return first, sizes
    runs = [{s: s.hint for s in sizes.symbols}]
    traces = [first]
    for number in range(1, EXAMPLES):
        values = other_sizes(sizes, number)
        try:
            found = _run_with(module, args, kwargs, sizes, values)
        except Unsupported:
            raise
        except Exception as problem:
            chosen = ", ".join(f"{s} = {v}" for s, v in values.items())
            text = violations(sizes, _same_calls(module, args, kwargs, sizes, first))
            raise Unsupported(
                text
                or f"Constraints violated: the program does not run with other sizes ({chosen}), though dynamic_shapes says that it"
                f" does: {type(problem).__name__}: {problem}"
            ) from problem
        if _calls(found) != _calls(first):
            text = violations(sizes, _same_calls(module, args, kwargs, sizes, first))
            raise Unsupported(text or "the program does something else for other sizes")
        traces.append(found)
        runs.append(values)
    Merger(traces, runs, sizes).merge()
    return first, sizes


def _calls(trace: Trace) -> list[Any]:
    return [n.target for n in trace.graph.nodes if n.op == "call_function"]


def _same_calls(module: Module, args: tuple, kwargs: dict, sizes: Sizes, first: Trace) -> Callable[[dict], bool]:
    """Whether the program makes the calls of a first run with other sizes, too."""

    def works(values: dict[Symbol, int]) -> bool:
        try:
            return _calls(_run_with(module, args, kwargs, sizes, values)) == _calls(first)
        except Exception:  # whatever it is, the program does not do with these sizes what it did
            return False

    return works


def other_sizes(sizes: Sizes, number: int) -> dict[Symbol, int]:
    """The sizes of a further run."""
    return {s: _other(sizes, s, number, place) for place, s in enumerate(sizes.symbols)}


def _other(sizes: Sizes, symbol: Symbol, number: int, place: int) -> int:
    """Another size to try, within the symbol's bounds."""
    low, high = sizes.ranges[symbol]
    wanted = symbol.hint + _BUMPS[number] * (2 * place + 1) + place
    if high is None or wanted <= high:
        return wanted
    room = [v for v in range(max(low, 2), high + 1) if v != symbol.hint] or [symbol.hint]
    return room[(number * 7 + place * 3) % len(room)]


class Merger:
    """Compares the graphs of several runs and writes what differs as expressions of the sizes."""

    def __init__(self, traces: list[Any], runs: list[dict[Symbol, int]], sizes: Sizes) -> None:
        self.traces, self.runs, self.sizes = traces, runs, sizes
        self.graph = traces[0].graph
        self.nodes: dict[Expression, Node] = {}

    def merge(self) -> None:
        rows = [list(t.graph.nodes) for t in self.traces]
        if len({len(row) for row in rows}) != 1:
            raise Unsupported("the program does something else for other sizes: its graph has another length")
        for nodes in zip(*rows):
            if len({(n.op, n.target if n.op == "call_function" else n.name) for n in nodes}) != 1:
                raise Unsupported(f"the program does something else for other sizes, from {nodes[0].format_node()} on")
        for name, branch in self.traces[0].pieces.items():
            _BranchMerger([t.pieces[name] for t in self.traces], self.runs, self.sizes).merge()
            branch.recompile()
        changes: list[tuple[Node, tuple, dict]] = []
        for nodes in zip(*rows):
            self._shapes(list(nodes))
            if nodes[0].op == "call_function":
                args = self._merged([n.args for n in nodes], nodes[0])
                kwargs = self._merged([n.kwargs for n in nodes], nodes[0])
                changes.append((nodes[0], args, kwargs))
        for node, args, kwargs in changes:
            node.args, node.kwargs = self._computed(args, node), self._computed(kwargs, node)
        self._merge_outputs([row[-1] for row in rows])

    def _merge_outputs(self, nodes: list[Node]) -> None:
        """Sizes that the program returns."""
        merged = self._merged([n.args for n in nodes], nodes[0])
        for position, value in enumerate(merged[0]):
            if isinstance(value, Expression):
                spec = self.traces[0].signature.output_specs[position]
                spec.arg = SymIntArgument(self._node(value).name)
        nodes[0].args = self._computed(merged, nodes[0])

    def _shapes(self, nodes: list[Node]) -> None:
        values: list[Any] = [n.meta.get("val") for n in nodes]
        if isinstance(values[0], Tensor):
            dims = range(values[0].dim())
            nodes[0].meta["sizes"] = [self._expression([v.shape[d] for v in values], nodes[0]) for d in dims]
            nodes[0].meta["strides"] = [self._expression([v.stride(d) for v in values], nodes[0]) for d in dims]

    def _expression(self, numbers: list[int], node: Node) -> Any:
        found = fitted(numbers, self.runs, self.sizes.symbols)
        if found is None:
            raise Unsupported(
                f"a size at {node.format_node()} depends on the sizes of the inputs in a way that is not known: {numbers}"
            )
        return found.terms.get((), 0) if found.is_constant else found

    def _merged(self, values: list[Any], node: Node) -> Any:
        first = values[0]
        if isinstance(first, (list, tuple)):
            if len({len(v) for v in values}) != 1:
                raise Unsupported(f"the program does something else for other sizes at {node.format_node()}")
            items = [self._merged(list(each), node) for each in zip(*values)]
            return tuple(items) if isinstance(first, tuple) else items
        if isinstance(first, dict):
            return {key: self._merged([v[key] for v in values], node) for key in first}
        if isinstance(first, int) and not isinstance(first, bool):
            return self._expression(values, node)
        if isinstance(first, float) and len(set(values)) != 1:
            raise Unsupported(f"a number at {node.format_node()} depends on the sizes of the inputs: {values}")
        return first

    def _computed(self, value: Any, node: Node) -> Any:
        if isinstance(value, Expression):
            return self._node(value)
        if isinstance(value, tuple):
            return tuple(self._computed(v, node) for v in value)
        if isinstance(value, list):
            return [self._computed(v, node) for v in value]
        if isinstance(value, dict):
            return {k: self._computed(v, node) for k, v in value.items()}
        return value

    # -- nodes for expressions --

    def _node(self, wanted: Expression) -> Node:
        """A node that computes an expression, right behind the inputs."""
        if wanted in self.nodes:
            return self.nodes[wanted]
        if (
            len(wanted.terms) == 1
            and wanted.divisor == 1
            and list(wanted.terms.values()) == [1]
            and len(wanted.symbols) == 1
        ):
            ((term, _),) = wanted.terms.items()
            if len(term) == 1:
                return self._symbol(term[0])
        if wanted.divisor != 1:
            inner = self._node(Expression(wanted.terms))
            return self._add(operator.floordiv, (inner, wanted.divisor), wanted)
        total: Any = None
        for term, factor in sorted(wanted.terms.items(), key=lambda item: (not item[0], [s.name for s in item[0]])):
            piece = self._product(term, factor)
            total = piece if total is None else self._sum(total, piece, wanted)
        return total

    def _sum(self, left: Any, right: Any, wanted: Expression) -> Node:
        return self._add(operator.add, (left, right), wanted)

    def _product(self, term: tuple[Symbol, ...], factor: int) -> Any:
        if not term:
            return factor
        value: Any = self._symbol(term[0])
        known = Expression.of(term[0])
        for symbol in term[1:]:
            known = Expression({(*next(iter(known.terms)), symbol): 1})
            value = self._add(operator.mul, (value, self._symbol(symbol)), known)
        return value if factor == 1 else self._add(operator.mul, (value, factor), known * factor)

    def _symbol(self, symbol: Symbol) -> Node:
        wanted = Expression.of(symbol)
        if wanted not in self.nodes:
            for number, dims in self.sizes.of_leaf.items():
                for dim, size in dims.items():
                    if size == wanted:
                        return self._add(flambeau.ops.aten.sym_size.int, (self._user_nodes()[number], dim), wanted)
            raise Unsupported(f"no input has the size {symbol}")
        return self.nodes[wanted]

    def _user_nodes(self) -> list[Node]:
        names = [s.arg.name for s in self.traces[0].signature.input_specs if s.kind is InputKind.USER_INPUT]
        by_name = {n.name: n for n in self.graph.nodes if n.op == "placeholder"}
        return [by_name[name] for name in names]

    def _add(self, target: Callable, args: tuple, value: Expression) -> Node:
        known = self.nodes.get(value)
        if known is not None:
            return known
        last = [n for n in self.graph.nodes if n.op == "placeholder" or "symbolic" in n.meta][-1]
        with self.graph.inserting_after(last):
            name = "sym_size_int" if target is flambeau.ops.aten.sym_size.int else None
            node = self.graph.create_node("call_function", target, args, {}, name)
        node.meta["val"] = value.hint
        node.meta["symbolic"] = value
        self.nodes[value] = node
        return node


class _BranchMerger(Merger):
    """Compares a branch of a choice: its sizes are those of its operands."""

    def __init__(self, traces: list[Any], runs: list[dict[Symbol, int]], sizes: Sizes) -> None:
        for branch in traces:
            branch.pieces = {n: c for n, c in branch.named_children() if n.partition("_graph_")[0] in ("true", "false")}
        super().__init__(traces, runs, sizes)

    def _merge_outputs(self, nodes: list[Node]) -> None:
        """A branch returns tensors only."""

    def _symbol(self, symbol: Symbol) -> Node:
        wanted = Expression.of(symbol)
        for node in self.graph.nodes:
            if wanted not in self.nodes and node.op == "placeholder" and wanted in node.meta.get("sizes", ()):
                target = flambeau.ops.aten.sym_size.int
                return self._add(target, (node, node.meta["sizes"].index(wanted)), wanted)
        if wanted not in self.nodes:
            raise Unsupported(f"no operand of the branch has the size {symbol}")
        return self.nodes[wanted]
