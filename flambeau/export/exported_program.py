"""Exported program: its graph, the meaning of the graph's inputs and outputs, and its parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..core import naming
from ..core.tensor import Tensor
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule, _assign_attr
from ..fx.pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from ..library.aten import aten
from ..nn import Module, Parameter
from ..utils import _pytree as pytree
from .graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind
from .symbols import Symbol

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]


@dataclass
class ModuleCallSignature:
    """Signature of a module's call: its arguments and results, and the trees in which they are nested."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """A module of the original program."""

    fqn: str
    signature: ModuleCallSignature | None = None


@dataclass
class ValueRange:
    """The lower and upper bound of a size."""

    lower: int
    upper: int | None = None

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper is None else self.upper}]"


@dataclass
class CallSpec:
    """The tree structures of arguments and result."""

    in_spec: Any
    out_spec: Any


@dataclass
class _Check:
    """Requirement on an input of an exported program: its dtype, and a number or an expression for each size."""

    name: str
    sizes: list[Any]
    dtype: Any


@dataclass
class InputChecks:
    """Checks the arguments of an exported module before it runs."""

    in_spec: Any
    checks: list[_Check | ConstantArgument] = field(default_factory=list)
    ranges: dict[Symbol, tuple[int, int | None]] = field(default_factory=dict)
    places: dict[Symbol, str] = field(default_factory=dict)  # where the size was read that a symbol has

    def __call__(self, leaves: list[Any]) -> None:
        known: dict[Symbol, int] = {}
        self.places = {}
        for leaf, check in zip(leaves, self.checks):
            if isinstance(check, ConstantArgument):
                if leaf != check.value:
                    raise AssertionError(f"Guard failed: {check.name} == {check.value!r}")
                continue
            if not isinstance(leaf, Tensor):
                raise AssertionError(f"Guard failed: isinstance({check.name}, torch.Tensor)")
            if leaf.dim() != len(check.sizes):
                raise AssertionError(f"Guard failed: {check.name}.dim() == {len(check.sizes)}")
            for dim, (size, wanted) in enumerate(zip(leaf.shape, check.sizes)):
                self._check_size(f"{check.name}.size()[{dim}]", size, wanted, known)

    def _check_size(self, place: str, size: int, wanted: Any, known: dict[Symbol, int]) -> None:
        if isinstance(wanted, int):
            if size != wanted:
                raise AssertionError(f"Guard failed: {place} == {wanted}")
            return
        symbols = wanted.symbols
        if len(symbols) == 1 and symbols[0] not in known and wanted.divisor == 1:
            self._infer_symbol(place, size, wanted, symbols[0], known)
        if all(s in known for s in symbols) and wanted.value(known) != size:
            text = str(wanted)
            for symbol, home in self.places.items():
                text = text.replace(str(symbol), home)
            raise AssertionError(f"Guard failed: {place} == {text}")

    def _infer_symbol(self, place: str, size: int, wanted: Any, symbol: Symbol, known: dict[Symbol, int]) -> None:
        factor, offset = wanted.terms.get((symbol,), 0), wanted.terms.get((), 0)
        if not factor or (size - offset) % factor:
            raise AssertionError(f"Guard failed: {place} == {wanted}")
        value = (size - offset) // factor
        low, high = self.ranges.get(symbol, (0, None))
        if value < low:
            raise AssertionError(f"Guard failed: {place} >= {low * factor + offset}")
        if high is not None and value > high:
            raise AssertionError(f"Guard failed: {place} <= {high * factor + offset}")
        known[symbol] = value
        self.places[symbol] = place if factor == 1 and not offset else str(symbol)


class ExportedProgram:
    """A program as a graph of operators, with its parameters. `module()` returns a module to run, `run_decompositions()` a program with
    fewer operators."""

    def __init__(
        self,
        root: Module | dict[str, Any],
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        range_constraints: dict[Symbol, Any],
        module_call_graph: list[ModuleCallEntry],
        example_inputs: tuple[tuple[Any, ...], dict[Any, Any]] | None = None,
        constants: dict[str, Any] | None = None,
        *,
        verifiers: list[Any] | None = None,
    ) -> None:
        self._graph_module = GraphModule(root, graph)
        self._graph_signature, self._state_dict = graph_signature, state_dict
        self._range_constraints, self._module_call_graph = range_constraints, module_call_graph
        self._example_inputs, self._constants = example_inputs, constants or {}
        self.verifiers = verifiers or ["TRAINING"]

    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module; its inputs are parameters, buffers and the user's."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        """Other tensors that the program holds."""
        return self._constants

    @property
    def tensor_constants(self) -> dict[str, Any]:
        return self._constants

    @property
    def range_constraints(self) -> dict[Symbol, Any]:
        return self._range_constraints

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        return self._module_call_graph

    @property
    def example_inputs(self) -> Any:
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: Any) -> None:
        self._example_inputs = value

    @property
    def dialect(self) -> str:
        return str(self.verifiers[0])

    @property
    def call_spec(self) -> CallSpec:
        signature = self._module_call_graph[0].signature
        assert signature is not None
        return CallSpec(signature.in_spec, signature.out_spec)

    def parameters(self) -> Iterator[Parameter]:
        for _, parameter in self.named_parameters():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name in self.graph_signature.parameters:
            yield name, self.state_dict[name]

    def buffers(self) -> Iterator[Tensor]:
        for _, buffer in self.named_buffers():
            yield buffer

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        for name in self.graph_signature.buffers:
            yield name, self._tensor(name)

    def _tensor(self, name: str) -> Any:
        return self.state_dict[name] if name in self.state_dict else self.constants[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __str__(self) -> str:
        code = self.graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self.graph_signature).replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {code}\nGraph signature: {signature}\nRange constraints: {self.range_constraints}\n"
        )

    # -- modules --

    def checks(self) -> InputChecks:
        """Return the requirements on the user's inputs: sizes, dtypes and constants, to be checked in each call."""
        found: list[Any] = []
        nodes = {n.name: n for n in self.graph.nodes if n.op == "placeholder"}
        for spec in self.graph_signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT:
                continue
            if isinstance(spec.arg, ConstantArgument):
                found.append(spec.arg)
                continue
            node = nodes[spec.arg.name]
            value = node.meta["val"]
            found.append(_Check(spec.arg.name, node.meta.get("sizes", list(value.shape)), value.dtype))
        ranges = {s: (r.lower, r.upper) for s, r in self.range_constraints.items()}
        return InputChecks(self.call_spec.in_spec, found, ranges)

    def module(self, check_guards: bool = True) -> GraphModule:
        """Return a module that runs the program: it holds the parameters, arguments and result are nested as in the original, and the
        arguments' sizes are checked."""
        return unlifted(self, check_guards)

    def run_decompositions(
        self, decomp_table: dict[Any, Callable[..., Any]] | None = None, decompose_custom_triton_ops: bool = False
    ) -> ExportedProgram:
        """Return the program in fewer operators, without in-place changes: `decomp_table` has the decomposition of each operator (None:
        PyTorch's core operators remain)."""
        return naming.above("export.decompositions").decomposed_program(self, decomp_table)

    def __deepcopy__(self, memo: dict) -> ExportedProgram:
        return ExportedProgram(
            copy.deepcopy(self._graph_module, memo),
            copy.deepcopy(self.graph, {}),
            copy.deepcopy(self.graph_signature, memo),
            copy.deepcopy(self.state_dict, memo),
            dict(self.range_constraints),
            list(self.module_call_graph),
            self.example_inputs,
            copy.deepcopy(self.constants, memo),
            verifiers=self.verifiers,
        )


def _parameter_names(program: ExportedProgram) -> list[str]:
    signature = program.module_call_graph[0].signature
    assert signature is not None
    if signature.forward_arg_names:
        return list(signature.forward_arg_names)
    args, kwargs = signature.in_spec.children()
    return [f"arg_{i}" for i in range(args.num_children)] + list(kwargs.context)


def holder(branches: dict[str, Any]) -> Module:
    """Return a module with the branches of conditionals, which a graph reads as attributes."""
    made = Module()
    for name, branch in branches.items():
        made.add_module(name, branch)
    return made


def unlifted(program: ExportedProgram, check_guards: bool) -> GraphModule:
    """Return the program as a module that holds its parameters."""
    root = holder(dict(program.graph_module.named_children()))
    graph = Graph()
    values: dict[Any, Any] = {}
    specs = {s.arg.name: s for s in program.graph_signature.input_specs}
    users = []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        if specs[node.name].kind is InputKind.USER_INPUT:
            values[node] = graph.placeholder(node.name)
            values[node].meta = dict(node.meta)
            users.append(values[node])
    for node in program.graph.nodes:
        if node.op == "placeholder" and node not in values:
            target = specs[node.name].target
            assert target is not None
            _assign_attr(program._tensor(target), root, target)
            values[node] = graph.get_attr(target)
            values[node].meta = dict(node.meta)
    result, output = graph.graph_copy(program.graph, values, return_output_node=True)
    results = _write_mutations(program, graph, list(result), values)
    graph.output(tuple(results)).meta = dict(output.meta)
    spec = program.call_spec
    graph._codegen = _PyTreeCodeGen(_PyTreeInfo(_parameter_names(program), spec.in_spec, spec.out_spec))
    module = GraphModule(root, graph)
    if check_guards:
        checks = program.checks()
        module.register_forward_pre_hook(_hook(checks), with_kwargs=True)
    return module


def _hook(checks: InputChecks) -> Callable:
    def check(module: Module, args: tuple, kwargs: dict) -> None:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        names = checks.in_spec.children()[1].context
        if spec != checks.in_spec and set(kwargs) == set(names):
            leaves, spec = pytree.tree_flatten((args, {name: kwargs[name] for name in names}))
        if spec != checks.in_spec:
            raise ValueError(
                f"Trying to flatten user inputs with exported input tree spec: \n{checks.in_spec}\nbut actually got inputs with"
                f" tree spec of: \n{spec}.\nPlease check that the inputs have the same number and type of args and kwargs as the"
                " ones you used when tracing."
            )
        checks(leaves)

    return check


def _write_mutations(program: ExportedProgram, graph: Graph, results: list, values: dict) -> list:
    """Turn outputs that change buffers or inputs into copies to them; return the other outputs."""
    targets = {s.target: s.arg.name for s in program.graph_signature.input_specs if s.target}
    by_name = {n.name: values[n] for n in program.graph.nodes if n.op == "placeholder"}
    kept = []
    for spec, value in zip(program.graph_signature.output_specs, results):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            graph.call_function(aten.copy_.default, (by_name[targets[spec.target or ""]], value))
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            graph.call_function(aten.copy_.default, (by_name[spec.target or ""], value))
        else:
            kept.append(value)
    return kept


def default_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the table of `run_decompositions()`, which can be changed and passed to it."""
    return naming.above("export.decompositions").core_table()
