"""Traces of modules as one flat graph with the parameters among its inputs (`torch.jit._get_trace_graph`), as used by tools that draw
networks or count their operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..nn import Module
from . import cleanup, ir, tracer
from .types import BOOL, INT, STRING


def _get_trace_graph(
    f: Any,
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    strict: bool = True,
    _force_outplace: bool = False,
    return_inputs: bool = False,
    _return_inputs_states: bool = False,
    _scope_of: Callable[[Any], str] | None = None,
) -> tuple:
    """Return the graph of a module or function, run on examples, and its result; with `return_inputs`, also the examples. Nodes have the
    scopes that `_scope_of` names for the modules."""
    given = args if isinstance(args, tuple) else (args,)
    state = _state(f) if isinstance(f, Module) else []
    graph, result = _record(f, given, kwargs or {}, state, _scope_of)
    graph.traced = f, given
    found: tuple = (graph, result)
    return (*found, given) if return_inputs or _return_inputs_states else found


def _state(module: Module) -> list[Tensor]:
    """Return parameters and buffers, each once, in the order of the state dict."""
    found: dict[int, Tensor] = {}
    for value in module.state_dict(keep_vars=True).values():
        if isinstance(value, Tensor):
            found.setdefault(id(value), value)
    return list(found.values())


def _record(
    f: Callable, args: tuple, kwargs: dict, state: list[Tensor], scope_of: Callable | None
) -> tuple[ir.Graph, Any]:
    recorder = tracer.Tracer(scope_of=scope_of)
    reader = tracer.TraceReader(recorder)
    graph = reader.graph
    copies = [tracer._alias(value) for value in (*args, *kwargs.values())]
    for value in (*copies, *state):
        kind = tracer._example_type(value)
        reader.set_value(recorder.know(value), graph.add_input("", kind))
    with recorder.watching():
        result = f(*copies[: len(args)], **dict(zip(kwargs, copies[len(args) :])))
        recorder.finish(tracer._check_output(result))
    graph.add_output(reader.read())
    _answer_tests_for_none(graph)
    cleanup.fold_constants(graph)
    tracer.tidy(graph)
    for node in list(graph.nodes_):
        if node.kind_ in _CONVOLUTIONS and node.inputs_[4].type is not STRING:
            _as_convolution(node)
    return graph, result


def _answer_tests_for_none(graph: ir.Graph) -> None:
    """Fold comparisons with None of lists built in the graph."""
    for node in list(graph.nodes_):
        if node.kind_ in ("aten::__is__", "aten::__isnot__") and node.inputs_[0].node.kind_ == "prim::ListConstruct":
            with graph.at(node):
                answer = graph.constant(node.kind_ == "aten::__isnot__", BOOL)
            node.outputs_[0].replace_by(answer)
            node.destroy()


# And whether it is transposed.
_CONVOLUTIONS = {f"aten::conv{kind}{n}d": kind != "" for kind in ("", "_transpose") for n in (1, 2, 3)}


def _as_convolution(node: ir.Node) -> None:
    """Replace a convolution by `aten::_convolution`, the one operator that PyTorch records for all of them."""
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
    """State that `torch._C._get_tracing_state()` returns during a trace: names for the recorded nodes."""

    def __init__(self, recorder: Any):
        self.recorder = recorder

    def push_scope(self, name: str) -> None:
        self.recorder.scopes.append(name)

    def pop_scope(self) -> None:
        self.recorder.scopes.pop()

    def graph(self) -> ir.Graph:
        """Return the graph, whose nodes exist once the program has run."""
        return self.recorder.reader.graph
