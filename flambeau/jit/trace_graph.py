"""What a module computes as one flat graph, its parameters among the inputs; the form that programs which draw networks and count their
work ask for (`torch.jit._get_trace_graph`). Graphs, nodes and values are shown with PyTorch's methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..core.tensor import Tensor
from ..nn import Module
from . import cleanup, ir, tracer
from .types import BOOL, INT, STRING, ShapedTensor


class TracedValue:
    """A value of the graph."""

    def __init__(self, value: ir.Value):
        self.value = value

    def debugName(self) -> str:  # noqa: N802  PyTorch's names, here and below
        return self.value.name

    def unique(self) -> int:
        return self.value.unique

    def type(self) -> Any:
        return self.value.type

    def node(self) -> TracedNode:
        return TracedNode(self.value.node)

    def uses(self) -> list[Any]:
        return list(self.value.uses)

    def isCompleteTensor(self) -> bool:  # noqa: N802
        return isinstance(self.value.type, ShapedTensor)

    def requires_grad(self) -> bool:
        return "requires_grad=1" in str(self.value.type)

    def toIValue(self) -> Any:  # noqa: N802
        """The value of a constant; None of anything else."""
        node = self.value.node
        return node.attributes.get("value") if node.kind_ == "prim::Constant" else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedValue) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"{self.value.name} defined in ({self.value.node})"


class TracedNode:
    """A node of the graph."""

    def __init__(self, node: ir.Node):
        self.node = node

    def kind(self) -> str:
        return self.node.kind_

    def inputs(self) -> Iterator[TracedValue]:
        return map(TracedValue, self.node.inputs_)

    def outputs(self) -> Iterator[TracedValue]:
        return map(TracedValue, self.node.outputs_)

    def output(self) -> TracedValue:
        return TracedValue(self.node.output())

    def inputsAt(self, index: int) -> TracedValue:  # noqa: N802
        return TracedValue(self.node.inputs_[index])

    def inputsSize(self) -> int:  # noqa: N802
        return len(self.node.inputs_)

    def outputsSize(self) -> int:  # noqa: N802
        return len(self.node.outputs_)

    def blocks(self) -> Iterator[TracedBlock]:
        return map(TracedBlock, self.node.blocks_)

    def scopeName(self) -> str:  # noqa: N802
        return self.node.scope

    def attributeNames(self) -> list[str]:  # noqa: N802
        return list(self.node.attributes)

    def hasAttribute(self, name: str) -> bool:  # noqa: N802
        return name in self.node.attributes

    def kindOf(self, name: str) -> str:  # noqa: N802
        """The method that reads an attribute."""
        value = self.node.attributes[name]
        if isinstance(value, Tensor):
            return "t"
        plain = {bool: "i", int: "i", float: "f", str: "s", list: "is"}.get(type(value), "ival")
        return "fs" if plain == "is" and any(isinstance(v, float) for v in value) else plain

    def __getitem__(self, name: str) -> Any:
        return self.node.attributes[name]

    i = f = s = t = ival = fs = __getitem__

    def sourceRange(self) -> str:  # noqa: N802
        return self.node.sourceRange()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedNode) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)

    def __repr__(self) -> str:
        return str(self.node)


setattr(TracedNode, "is", TracedNode.__getitem__)  # PyTorch's name, which Python does not let one write


class TracedBlock:
    """Nodes inside a node."""

    def __init__(self, block: ir.Block):
        self.block = block

    def nodes(self) -> Iterator[TracedNode]:
        return map(TracedNode, self.block.nodes_)


class TracedGraph:
    """What `_get_trace_graph` returns. `module` and `args` are what was traced."""

    def __init__(self, graph: ir.Graph, module: Any, args: tuple):
        self.graph, self.module, self.args = graph, module, args

    def nodes(self) -> Iterator[TracedNode]:
        return map(TracedNode, self.graph.nodes_)

    def inputs(self) -> Iterator[TracedValue]:
        return map(TracedValue, self.graph.inputs_)

    def outputs(self) -> Iterator[TracedValue]:
        return map(TracedValue, self.graph.outputs_)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[TracedNode]:  # noqa: N802
        return [TracedNode(node) for node in self.graph.findAllNodes(kind, recurse)]

    def __str__(self) -> str:
        return str(self.graph)

    __repr__ = __str__


def _get_trace_graph(
    f: Any,
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    strict: bool = True,
    _force_outplace: bool = False,
    return_inputs: bool = False,
    _return_inputs_states: bool = False,
) -> tuple:
    """The graph of a module or function, run on examples, and what it returned; with `return_inputs`, also the examples."""
    given = args if isinstance(args, tuple) else (args,)
    state = _state(f) if isinstance(f, Module) else []
    graph, result = _recorded(f, given, kwargs or {}, state)
    found: tuple = (TracedGraph(graph, f, given), result)
    return (*found, given) if return_inputs or _return_inputs_states else found


def _state(module: Module) -> list[Tensor]:
    """Parameters and buffers, each once, in the order in which they are saved."""
    found: dict[int, Tensor] = {}
    for value in module.state_dict(keep_vars=True).values():
        if isinstance(value, Tensor):
            found.setdefault(id(value), value)
    return list(found.values())


def _recorded(f: Callable, args: tuple, kwargs: dict, state: list[Tensor]) -> tuple[ir.Graph, Any]:
    recorder = tracer.Tracer()
    copies = [tracer._aliased(value) for value in (*args, *kwargs.values())]
    for value in (*copies, *state):
        recorder.set_value(value, recorder.graph.add_input("", tracer._example_type(value)))
    with recorder.watching():
        result = f(*copies[: len(args)], **dict(zip(kwargs, copies[len(args) :])))
        recorder.graph.add_output(recorder.value(tracer._checked_output(result)))
    _answer_tests_for_none(recorder.graph)
    cleanup.fold_constants(recorder.graph)
    tracer.tidy(recorder.graph)
    for node in list(recorder.graph.nodes_):
        if node.kind_ in _CONVOLUTIONS and node.inputs_[4].type is not STRING:
            _as_convolution(node)
    return recorder.graph, result


def _answer_tests_for_none(graph: ir.Graph) -> None:
    """A list that was made here is not None."""
    for node in list(graph.nodes_):
        if node.kind_ in ("aten::__is__", "aten::__isnot__") and node.inputs_[0].node.kind_ == "prim::ListConstruct":
            with graph.at(node):
                answer = graph.constant(node.kind_ == "aten::__isnot__", BOOL)
            node.outputs_[0].replace_by(answer)
            node.destroy()


_CONVOLUTIONS = {
    f"aten::conv{kind}{n}d": kind != "" for kind in ("", "_transpose") for n in (1, 2, 3)
}  # and whether it is transposed


def _as_convolution(node: ir.Node) -> None:
    """PyTorch records one operator for all convolutions."""
    graph = node.graph
    transposed = _CONVOLUTIONS[node.kind_]
    rank = int(node.kind_[-2])
    with graph.at(node):
        before, graph.scope = graph.scope, node.scope
        if transposed:
            *first, output_padding, groups, dilation = node.inputs_
        else:
            *first, dilation, groups = node.inputs_
            output_padding = graph.list_of(INT, [graph.constant(0, INT) for _ in range(rank)])
        switches = [graph.constant(on, BOOL) for on in (False, False, True, True)]
        inputs = [*first, dilation, graph.constant(transposed, BOOL), output_padding, groups, *switches]
        made = graph.create("aten::_convolution", inputs, 1, node.range)
        made.outputs_[0].type = node.outputs_[0].type
        made.insert_before(node)
        graph.scope = before
    node.outputs_[0].replace_by(made.outputs_[0])
    node.destroy()


class TracingState:
    """What `torch._C._get_tracing_state()` returns while something is traced: names for the nodes that are recorded."""

    def __init__(self, recorder: Any):
        self.recorder = recorder

    def push_scope(self, name: str) -> None:
        graph = self.recorder.graph
        graph.scopes.append(name)
        graph.scope = "/".join(graph.scopes)

    def pop_scope(self) -> None:
        graph = self.recorder.graph
        graph.scopes.pop()
        graph.scope = "/".join(graph.scopes)

    def graph(self) -> TracedGraph:
        return TracedGraph(self.recorder.graph, None, ())
