"""Propagation of shapes and dtypes by running a graph once."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import flambeau

from ...core.tensor import Tensor
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """The shape, dtype and layout recorded for a tensor."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


_FORMATS = (flambeau.contiguous_format, flambeau.channels_last, flambeau.channels_last_3d)
_RANKS = {flambeau.channels_last: 4, flambeau.channels_last_3d: 5}


def _memory_format(tensor: Tensor) -> Any:
    for kind in _FORMATS:
        if _RANKS.get(kind, tensor.dim()) == tensor.dim() and tensor.is_contiguous(memory_format=kind):
            return kind
    return None


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    sparse = result.layout is not flambeau.strided
    stride = () if sparse else result.stride()
    kind = _memory_format(result) if include_contiguity and not sparse else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, stride, kind, False, {})


class ShapeProp(Interpreter):
    """Runs a graph and stores TensorMetadata in every node's `meta["tensor_meta"]`, and the type in `meta["type"]`."""

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm)
        if fake_mode is not None:
            raise NotImplementedError("ShapeProp with a fake mode: give tensors on the device 'meta' instead")
        self.fake_mode = None
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        try:
            result = super().run_node(n)
        except Exception as problem:
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from problem
        found = []

        def describe(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            found.append(value)
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, describe)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on these arguments; return its result."""
        return super().run(*args)
