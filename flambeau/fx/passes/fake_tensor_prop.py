"""Propagation of shapes and dtypes through a graph by running it on meta tensors."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, map_aggregate
from .shape_prop import _extract_tensor_metadata

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a graph with tensors on the device "meta" and stores the results in `meta["val"]`, and their metadata in
    `meta["tensor_meta"]`."""

    def __init__(self, module: GraphModule, mode: Any = None) -> None:
        super().__init__(module)
        self._mode = mode

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        tensors = []

        def keep(value: Any) -> Any:
            if isinstance(value, Tensor):
                tensors.append(value)
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, keep)
        if tensors or isinstance(result, (int, float, bool)):
            n.meta["val"] = result
        if tensors:
            n.meta["tensor_meta"] = meta
        return result

    def fetch_attr(self, target: str) -> Any:
        found = super().fetch_attr(target)
        return found.to("meta") if isinstance(found, Tensor) else found

    def propagate(self, *args: Any) -> Any:
        """Run the graph on meta tensors made from these arguments."""
        return self.propagate_dont_convert_inputs(*(a.to("meta") if isinstance(a, Tensor) else a for a in args))

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Run the graph on these arguments, which are meta tensors already."""
        return super().run(*args)
