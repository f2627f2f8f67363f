"""A traced graph in ONNX's operators, with PyTorch's methods (`torch.onnx._optimize_trace`), for tools that draw networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .builder import Builder, OnnxNode, Value
from .enums import OperatorExportTypes, TrainingMode
from .exporting import DEFAULT_OPSET, _Export
from .optimize import optimized


class ValueView:
    """View of a value; prints with its dtype and shape."""

    def __init__(self, value: Value, number: int):
        self.value, self.number = value, number

    def unique(self) -> int:
        return self.number

    def debugName(self) -> str:  # noqa: N802  PyTorch's name
        return str(self.number)

    def type(self) -> Any:
        return self.value.type()

    def __repr__(self) -> str:
        sizes = ", ".join(str(size) for size in self.value.shape or ())
        kind = self.value.type().scalarType() if self.value.dtype is not None else "Tensor"
        return f"{self.number} : {kind}({sizes})"


class NodeView:
    """View of a node: the call of an ONNX operator."""

    def __init__(self, node: OnnxNode, values: _Values):
        self.node, self.values = node, values

    def kind(self) -> str:
        return self.node.kind()

    def scopeName(self) -> str:  # noqa: N802
        return ""

    def inputs(self) -> Iterator[ValueView]:
        return (self.values.view(value) for value in self.node.inputs if value is not None)

    def outputs(self) -> Iterator[ValueView]:
        return map(self.values.view, self.node.outputs)

    def attributeNames(self) -> list[str]:  # noqa: N802
        return list(self.node.attributes)

    def __getitem__(self, name: str) -> Any:
        return self.node.attributes[name]


class _Values:
    """Numbering of values in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def view(self, value: Value) -> ValueView:
        return ValueView(value, self.numbers.setdefault(id(value), len(self.numbers)))


class GraphView:
    """View of an exported graph with the methods of PyTorch's graphs."""

    def __init__(self, built: Builder):
        self.built, self.values = built, _Values()
        for value in (*built.graph.inputs, *(held for held, _ in built.graph.parameters.values())):
            self.values.view(value)

    def nodes(self) -> Iterator[NodeView]:
        return (NodeView(node, self.values) for node in self.built.graph.nodes)


def _optimize_trace(graph: Any, operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX) -> GraphView:
    """Convert the graph that `torch.jit._get_trace_graph` has traced to ONNX's operators."""
    module, args = graph.traced
    job = _Export(module, args, {}, DEFAULT_OPSET, False, None, TrainingMode.PRESERVE, False)
    job.names((), (), None, None)
    built = job.run()
    optimized(built, twins=False, norms=False)
    return GraphView(built)
