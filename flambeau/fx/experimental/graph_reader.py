"""A recorded program of PyTorch's operators as a graph: a node for each call."""

from __future__ import annotations

import operator
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...graph import program
from ...nn import Module, Parameter
from .._symbolic_trace import Tracer
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node
from ..passes.shape_prop import _extract_tensor_metadata
from .branches import Choice
from .graph_recorder import GraphRecorder


class PythonKeyTracer(Tracer):
    """The tracer class recorded in graphs that were made by running a program."""


class GraphReader:
    """Adds the nodes of a recording to a graph. Tensors that no recorded call has made become attributes of `root`."""

    def __init__(self, recorder: GraphRecorder, graph: Graph, root: Module) -> None:
        self.recorder, self.graph, self.root = recorder, graph, root
        self.nodes: dict[int, Node] = {}  # by the number of the value
        self.constants: list[str] = []
        self.pieces: dict[str, GraphModule] = {}  # branches of choices, by the names of their attributes

    def read(self, outputs: Any) -> Any:
        """Add the nodes of all calls; return the program's results with nodes in place of tensors."""
        found = self.recorder.structure(outputs)
        for call in self.recorder.program.calls:
            self.add(call)
        return self.argument(found)

    def track(self, value: program.Value, node: Node) -> None:
        """Map the value to the node."""
        self.nodes[value.number] = node
        node.meta["val"] = shown = self.as_meta(value)
        tensor = self.recorder.tensors[value.number]
        node.meta["tensor_meta"] = _extract_tensor_metadata(tensor if tensor.is_quantized else shown)

    def as_meta(self, value: program.Value) -> Tensor:
        """Return a meta tensor of the same shape, strides and dtype."""
        tensor = self.recorder.tensors[value.number]
        dtype = tensor.int_repr().dtype if tensor.is_quantized else value.dtype  # as its codes
        shown = flambeau.empty_strided(tuple(value.shape), value.strides, dtype=dtype, device="meta")
        return shown.requires_grad_(value.requires_grad) if shown.is_floating_point() else shown

    def node_of(self, value: program.Value) -> Node:
        """Return the node of a value."""
        if value.number not in self.nodes:
            self.nodes[value.number] = self.constant(value)
        return self.nodes[value.number]

    def constant(self, value: program.Value) -> Node:
        """Add a node for a tensor that the program did not compute: a constant attribute of `root`."""
        tensor = self.recorder.tensors[value.number]
        kind = "_param_constant" if isinstance(tensor, Parameter) else "_tensor_constant"
        name = f"{kind}{sum(n.startswith(kind) for n in self.constants)}"
        self.constants.append(name)
        if isinstance(tensor, Parameter):
            setattr(self.root, name, tensor)
        else:
            self.root.register_buffer(name, tensor)
        return self.graph.get_attr(name)

    def argument(self, value: Any) -> Any:
        """Convert an argument of a call to an argument of a node."""
        if isinstance(value, program.Value):
            return self.node_of(value)
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        return value

    def describe(self, node: Node, call: program.Call) -> None:
        """Record the source location of the call in the node's `meta`."""
        node.meta.update(call.notes)

    def add(self, call: program.Call) -> None:
        """Add the node of a call."""
        if isinstance(call.function, Choice):
            self._add_choice(call, call.function)
            return
        given = tuple(self.argument(a) for a in call.args)
        named = {key: self.argument(value) for key, value in call.kwargs.items()}
        name = None if call.function is None else self.graph._target_to_str(call.op.overloadpacket.__name__)
        node = self.graph.create_node("call_function", call.op, given, named, name)
        self.describe(node, call)
        self._keep(node, call.results)

    def _add_choice(self, call: program.Call, choice: Choice) -> None:
        pred, *operands = call.args
        given = [self.node_of(v) for v in operands]
        names = choice.names or [node.name for node in given]
        number = sum(name.startswith("true_graph_") for name in self.pieces)
        branches = []
        for word, piece in (("true", choice.yes), ("false", choice.no)):
            name = f"{word}_graph_{number}"
            self.pieces[name] = self.branch(piece, choice.lifted, names)
            branches.append(self.graph.create_node("get_attr", name, (), {}, name))
            self.describe(branches[-1], call)
        node = self.graph.create_node(
            "call_function", call.op, (self.node_of(pred), *branches, tuple(given)), {}, "cond"
        )
        self.describe(node, call)
        self._keep(node, call.results)

    def branch(self, piece: Any, lifted: list[Tensor], names: list[str]) -> GraphModule:
        """Return a branch as a module of all operands, including those that only the other branch uses."""
        recorder = piece.recorder
        reader = GraphReader(recorder, Graph(tracer_cls=self.graph._tracer_cls), Module())
        operands = [
            *piece.operands,
            *(recorder.known[id(t)][1] if id(t) in recorder.known else recorder.know(t) for t in lifted),
        ]
        for value, name in zip(operands, names):
            reader.track(value, reader.graph.placeholder(name))
        reader.graph.output(tuple(reader.read(piece.outputs)))
        module = GraphModule(reader.root, reader.graph, "<lambda>")
        for name, child in reader.pieces.items():
            module.add_module(name, child)
        return module

    def _keep(self, node: Node, result: Any) -> None:
        if isinstance(result, program.Value):
            self.track(result, node)
        elif isinstance(result, (list, tuple)):
            node.meta["val"] = [self.as_meta(r) if isinstance(r, program.Value) else r for r in result]
            for position, item in enumerate(result):
                got = self.graph.call_function(operator.getitem, (node, position))
                got.meta.update({k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta")})
                self._keep(got, item)
        else:
            node.meta["val"] = result
