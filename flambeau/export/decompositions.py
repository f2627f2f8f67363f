"""Decomposition of programs into fewer operators, without in-place changes.

A graph is decomposed by running it, and recording the calls that operators consist of instead of the operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..fx.experimental.graph_reader import GraphReader
from ..fx.experimental.graph_recorder import GraphRecorder
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.interpreter import Interpreter
from ..fx.node import Node
from ..library.aten import OpOverload, aten
from ..library.aten.resolver import made_of_others
from ..nn import Module
from ..nn.unchanged import contents_kept
from ..random import fork_rng
from ..utils import _pytree as pytree
from ._trace import resized
from .dynamic_shapes import Sizes
from .exported_program import ExportedProgram, holder
from .graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind, OutputSpec, TensorArgument
from .merging import EXAMPLES, Merger, other_sizes
from .symbols import Expression


def composite_table() -> dict[Any, Callable]:
    """Return the decompositions of composite operators (those that PyTorch decomposes before it differentiates), by overload."""
    return {overload: overload.decompose for overload in made_of_others()}


def core_table() -> dict[Any, Callable]:
    """Return the decompositions of all operators outside PyTorch's core set, by overload."""
    return {overload: overload.decompose for overload in made_of_others(core=True)}


class CustomDecompTable(dict):
    """The table of `core_table`, to be changed before it is given to `run_decompositions`."""

    def __init__(self) -> None:
        super().__init__(core_table())

    def materialize(self) -> dict[Any, Callable[..., Any]]:
        """Return the table as a plain dictionary."""
        return dict(self)


_SCATTERS: dict[Any, Callable] = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
}


class _Recorder(GraphRecorder):
    """Records a program with table entries replacing operators; in-place changes become new values."""

    differentiates = False

    def __init__(self, root: Module, table: dict[Any, Callable], functional: bool) -> None:
        super().__init__()
        self.root, self.table, self.functional = root, table, functional
        self.source: Node | None = None
        self.changed: dict[int, Tensor] = {}

    def inner(self) -> GraphRecorder:
        made = _Recorder(Module(), self.table, self.functional)
        made.source = self.source
        return made

    def branch_names(self, count: int) -> list[str] | None:
        assert self.source is not None
        branch = getattr(self.root, str(self.source.args[1].target))
        names = [str(node.target) for node in branch.graph.nodes if node.op == "placeholder"]
        return names if len(names) == count else None

    def notes(self, op: Any) -> dict[str, Any]:
        known = self.source.meta if self.source is not None else {}
        return {key: known[key] for key in ("nn_module_stack", "stack_trace", "torch_fn") if key in known}

    def parts_of(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Callable | None:
        return self.table.get(overload)

    def make(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self.functional and overload._schema.is_mutable:
            return self._functionalise(overload, args, kwargs)
        return super().make(overload, args, kwargs)

    def _functionalise(self, target: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Compute the new value out of place; from now on the changed tensor's node is that of the value."""
        first = args[0]
        written = target.overloadpacket.__name__
        name = written[:-1] if written.endswith("_") and not written.endswith("__") else None  # out of place
        if name == "copy":
            same = args[1].shape == first.shape and args[1].dtype == first.dtype
            value = (
                args[1]
                if same
                else aten.expand.default(aten.to.dtype.decompose(args[1], first.dtype), list(first.shape))
            )
        else:
            value = getattr(getattr(aten, name or ""), target._overloadname)(*args, **kwargs)
        self._assign_value(first, value)
        return first

    def _assign_value(self, tensor: Tensor, value: Tensor) -> None:
        """Assign a new value to a tensor; its base follows, and other views of the base are recomputed."""
        chain = [(tensor, self.maker(self.held(tensor)))]
        while chain[-1][0]._is_view() and chain[-1][1] is not None and chain[-1][1].op in _SCATTERS:
            source = chain[-1][1].args[0]
            whole = next((t for t, v in self.known.values() if v.number == source.number), None)
            if whole is None:
                raise NotImplementedError("taking apart a program that changes a part of a tensor that is not seen")
            chain.append((whole, self.maker(source)))
        last, made = chain[-1]
        if last._is_view() and last._base is not None and last._base.numel() != last.numel():
            raise NotImplementedError(
                f"taking apart a program that changes a part of a tensor in place ({made and made.op})"
            )
        self.held(value)
        self.unseen(lambda: tensor.detach().copy_(value.detach()))
        owner = tensor.untyped_storage().data_ptr()
        for (part, before), above in zip(chain, [*chain[1:], None]):
            self.known[id(part)] = (part, self.held(value))
            self.changed[id(part)] = part
            if above is not None and before is not None:
                value = _SCATTERS[before.op](above[0], value, *before.args[1:])
        kept = {id(part) for part, _ in chain} | {id(value)}
        for key, (other, _) in list(self.known.items()):
            view = key not in kept and other._is_view() and other.layout is flambeau.strided and other.numel()
            if view and other.untyped_storage().data_ptr() == owner:
                del self.known[key]
        self.latest[owner] = last


class _Retracer(Interpreter):
    """Interpreter that runs a graph so that a recorder sees its calls."""

    def __init__(self, module: GraphModule, recorder: _Recorder) -> None:
        super().__init__(module)
        self.recorder = recorder

    def run_node(self, n: Node) -> Any:
        self.recorder.source = n
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if target is operator.getitem:
            return args[0][args[1]]
        if target is aten.sym_size.int:  # a number now; where sizes may change, several runs are compared
            return args[0].size(args[1])
        return target(*args, **kwargs)


def _retrace(
    module: GraphModule, table: dict[Any, Callable], inputs: list[Any], functional: bool
) -> tuple[GraphReader, _Recorder, Any]:
    """Run a graph on these inputs and record it with the table's entries; return the reader of the recording, and the results."""
    recorder = _Recorder(module, table, functional)
    reader = GraphReader(recorder, Graph(), module)
    old = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, value in zip(old, inputs):
        copied = reader.graph.placeholder(node.target)
        copied.name = node.name  # also where Python has a function of that name
        copied.meta = dict(node.meta)
        if isinstance(value, Tensor):
            reader.track(recorder.know(value), copied)
            if value.shape == node.meta["val"].shape:  # the original has the requires_grad flag
                copied.meta["val"] = node.meta["val"]
    with flambeau.no_grad(), recorder:
        outputs = _Retracer(module, recorder).run(*inputs, enable_io_processing=False)
    return reader, recorder, outputs


def decomposed(module: GraphModule, table: dict[Any, Callable], inputs: list[Any]) -> None:
    """Decompose the operators of a graph according to the table, by running it on these inputs; the module is changed."""
    codegen, tracer = module.graph._codegen, module.graph._tracer_cls
    with contents_kept(module.buffers()):
        reader, _, outputs = _retrace(module, table, inputs, functional=False)
    leaves, shape = pytree.tree_flatten(outputs)
    graph = reader.graph
    graph.output(pytree.tree_unflatten(reader.read(leaves), shape))
    graph._codegen, graph._tracer_cls = codegen, tracer
    graph.eliminate_dead_code()
    for name, branch in reader.pieces.items():
        setattr(module, name, branch)
    module.graph = graph


def _example(node: Node, like: Any, run: dict[Any, int]) -> Any:
    """Return a value for a placeholder: the recorded one, in the sizes of this run; zeros or ones if that is not known."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return value
    sizes = [s.value(run) if isinstance(s, Expression) else s for s in node.meta.get("sizes", value.shape)]
    if isinstance(like, Tensor) and like.dtype is value.dtype and not like.is_meta:
        return resized(like, sizes).clone()
    return (flambeau.ones if value.is_floating_point() else flambeau.zeros)(sizes, dtype=value.dtype)


def decomposed_program(program: ExportedProgram, table: dict[Any, Callable] | None) -> ExportedProgram:
    """Return an exported program in the operators that the table leaves, functionalised: changed values become outputs."""
    entries = core_table() if table is None else {**composite_table(), **table}
    sizes = _sizes_of(program)
    runs = [{s: s.hint for s in sizes.symbols}]
    runs += [other_sizes(sizes, number) for number in range(1, EXAMPLES)] if sizes.symbols else []
    with fork_rng():
        found = [_run_functionally(program, entries, sizes, run) for run in runs]
        if sizes.symbols:
            Merger(found, runs, sizes, lambda run: _run_functionally(program, entries, sizes, run)).merge()
    return ExportedProgram(
        found[0].branches,
        found[0].graph,
        found[0].signature,
        program.state_dict,
        dict(program.range_constraints),
        program.module_call_graph,
        program.example_inputs,
        program.constants,
        verifiers=["ATEN"],
    )


def _sizes_of(program: ExportedProgram) -> Sizes:
    """Return the symbols of a program, and which sizes of its inputs they are."""
    sizes = Sizes()
    sizes.symbols = list(program.range_constraints)
    sizes.ranges = {s: (r.lower, r.upper) for s, r in program.range_constraints.items()}
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    users = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    for number, spec in enumerate(users):
        for dim, size in enumerate(nodes[spec.arg.name].meta.get("sizes", ())):
            if isinstance(size, Expression):
                sizes.of_leaf.setdefault(number, {})[dim] = size
    return sizes


def _inputs(program: ExportedProgram, run: dict[Any, int]) -> list[Any]:
    """Return values for the inputs of a program's graph: its own parameters, and examples of the given sizes."""
    found = []
    recorded_with = iter(pytree.tree_leaves(program.example_inputs))
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    for spec, node in zip(program.graph_signature.input_specs, nodes):
        if spec.kind is not InputKind.USER_INPUT:
            found.append(program._tensor(spec.target or "").detach().clone())
            continue
        like = next(recorded_with, None)
        found.append(spec.arg.value if isinstance(spec.arg, ConstantArgument) else _example(node, like, run))
    return found


@dataclass
class _Result:
    """A decomposed graph, and the meaning of its inputs and outputs."""

    graph: Graph
    signature: ExportGraphSignature
    pieces: dict[str, GraphModule]

    @property
    def branches(self) -> Module:
        return holder(self.pieces)


def _run_functionally(
    program: ExportedProgram, entries: dict[Any, Callable], sizes: Sizes, run: dict[Any, int]
) -> _Result:
    inputs = _inputs(program, run)
    reader, recorder, outputs = _retrace(program.graph_module, entries, inputs, functional=True)
    results, specs = [], []
    nodes = iter(
        reader.read([v for v in inputs if isinstance(v, Tensor) and id(v) in recorder.changed] + list(outputs))
    )
    for given, value in zip(program.graph_signature.input_specs, inputs):
        if isinstance(value, Tensor) and id(value) in recorder.changed:
            kind = OutputKind.USER_INPUT_MUTATION if given.kind is InputKind.USER_INPUT else OutputKind.BUFFER_MUTATION
            node = next(nodes)
            results.append(node)
            specs.append(OutputSpec(kind, TensorArgument(node.name), given.target or given.arg.name))
    for old, result in zip(program.graph_signature.output_specs, nodes):
        results.append(result)
        argument = TensorArgument(result.name) if isinstance(result, Node) else ConstantArgument("", result)
        specs.append(OutputSpec(old.kind, argument, old.target))
    reader.graph.output(tuple(results))
    reader.graph.eliminate_dead_code()
    return _Result(reader.graph, ExportGraphSignature(list(program.graph_signature.input_specs), specs), reader.pieces)
