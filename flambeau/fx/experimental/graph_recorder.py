"""A graph of `torch.ops.aten` from a program that runs: the operators that it calls become nodes."""

from __future__ import annotations

import operator
import os
import traceback
from collections.abc import Callable
from typing import Any

import flambeau

from ...autograd.engine import running
from ...core.tensor import Tensor
from ...graph import program
from ...library.aten.overloads import OpOverload
from ...library.aten.recorder import AtenRecorder
from ...nn import Module, Parameter
from .._symbolic_trace import Tracer
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node
from ..passes.shape_prop import _extract_tensor_metadata
from . import branches

__all__ = ["GraphRecorder", "PythonKeyTracer"]

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_MODULES = os.path.join(_FOLDER, "nn", "modules") + os.sep


def as_meta(tensor: Tensor) -> Tensor:
    """A meta tensor of the same shape, strides and dtype."""
    dtype = tensor.int_repr().dtype if tensor.is_quantized else tensor.dtype  # a quantized tensor is shown as its codes
    shown = flambeau.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=dtype, device="meta")
    return shown.requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else shown


def _value_of(tensor: Tensor) -> program.Value:
    """Return a tensor as a value over the memory at an address; without memory, its storage object stands for that."""
    storage = tensor.untyped_storage()
    buffer = id(storage) if tensor.is_meta else storage.data_ptr()
    start = tensor.storage_offset() * tensor.dtype.itemsize
    return program.Value(buffer, start, tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


class PythonKeyTracer(Tracer):
    """The tracer that graphs made by running say they come from."""


class GraphRecorder(AtenRecorder):
    """Adds a node to a graph for each operator called. `known` are the nodes of tensors, by object: several over one place in memory
    have different histories (`x`, `x.detach()`), so that a value of `graph` could not tell which node is meant; it finds the aliases
    that no call has made. What is not known becomes an attribute of `root`."""

    def __init__(self, graph: Graph, root: Module) -> None:
        self.graph, self.root = graph, root
        self.known: dict[int, tuple[Tensor, Node]] = {}
        self.memory: dict[int, Tensor] = {}  # the latest known tensor in each piece of memory
        self.places: dict[program.Value, Tensor] = {}  # and as each value over it
        self.constants: list[tuple[Tensor, str]] = []
        self.describe: Callable[[Node], None] = lambda node: None
        self.pieces: dict[str, GraphModule] = {}  # branches of choices, by the names of their attributes
        self.lifted: list[Tensor] | None = None  # in a branch: the tensors that it has from outside

    def track(self, tensor: Tensor, node: Node) -> None:
        """Let the node stand for the tensor."""
        self.known[id(tensor)] = (tensor, node)
        if tensor.layout is flambeau.strided and tensor.numel():
            value = _value_of(tensor)
            self.memory[value.buffer] = self.places[value] = tensor
        node.meta["val"] = as_meta(tensor)
        node.meta["tensor_meta"] = _extract_tensor_metadata(tensor)

    def node_of(self, tensor: Tensor) -> Node:
        """Return the node that made a tensor."""
        found = self.known.get(id(tensor)) or self._alias(tensor)
        if found is None and self.lifted is None and running.current is not None:
            raise NotImplementedError(
                "a graph of this program's gradients: a part of them is computed by something that PyTorch has no operator for"
            )
        if found is None and self.lifted is not None:
            return self._lift(tensor, self.lifted)
        return found[1] if found is not None else self.constant(tensor)

    def _alias(self, tensor: Tensor) -> tuple[Tensor, Node] | None:
        """The node for another tensor object over the memory of a known one: what backward passes keep, and gradients that are
        spread without being copied."""
        if tensor.layout is not flambeau.strided or not tensor.numel():
            return None
        value = _value_of(tensor)
        same = self.places.get(value)
        known = same if same is not None and id(same) in self.known else self.memory.get(value.buffer)
        if known is None or id(known) not in self.known:
            return None
        node = self.known[id(known)][1]
        if value != _value_of(known):
            if tensor.dtype is not known.dtype:
                return None
            target, args = _view_of(known, tensor)
            node = self.graph.call_function(target, (node, *args))
            self.describe(node)
        self.known[id(tensor)] = (tensor, node)
        node.meta.setdefault("val", as_meta(tensor))
        return tensor, node

    def gradients(self, found: list[Any]) -> None:
        """Gradients must come from operators that were seen."""
        for tensor in found:
            if isinstance(tensor, Tensor) and id(tensor) not in self.known and self._alias(tensor) is None:
                raise NotImplementedError(
                    "a graph of this program's gradients: they are computed by something that PyTorch has no operator for"
                )

    def _lift(self, tensor: Tensor, lifted: list[Tensor]) -> Node:
        lifted.append(tensor)
        with self.graph.inserting_before(next(iter(self.graph.nodes), self.graph._root)):
            node = self.graph.placeholder(f"lifted_{len(lifted)}")
        self.track(tensor, node)
        return node

    def inner(self) -> GraphRecorder:
        """Return a recorder for the graph of a branch."""
        made = GraphRecorder(Graph(tracer_cls=PythonKeyTracer), Module())
        made.describe = self.describe
        return made

    def branch_names(self, given: list[Node]) -> list[str]:
        """The names that a branch gives its operands, which these nodes stand for outside."""
        return [f"arg{i}_1" for i in range(len(given))]

    def branch(self, op: Any, pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple) -> Any:
        return self.unseen(branches.record, self, op, pred, true_fn, false_fn, operands)

    def constant(self, tensor: Tensor) -> Node:
        """A node for a tensor that the program has from elsewhere."""
        kind = "_param_constant" if isinstance(tensor, Parameter) else "_tensor_constant"
        name = f"{kind}{sum(n.startswith(kind) for _, n in self.constants)}"
        self.constants.append((tensor, name))
        if isinstance(tensor, Parameter):
            setattr(self.root, name, tensor)
        else:
            self.root.register_buffer(name, tensor)
        node = self.graph.get_attr(name)
        self.known[id(tensor)] = (tensor, node)
        return node

    def argument(self, value: Any) -> Any:
        """An argument of a call as that of a node."""
        if isinstance(value, Tensor):
            return self.node_of(value)
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        return value

    def note(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any], result: Any) -> Any:
        given = tuple(self.argument(a) for a in args)
        named = {key: self.argument(value) for key, value in kwargs.items()}
        name = self.graph._target_to_str(overload.overloadpacket.__name__)
        node = self.graph.create_node("call_function", overload, given, named, name)
        self.describe(node)
        self._keep(node, result)
        return result

    def _keep(self, node: Node, result: Any) -> None:
        if isinstance(result, Tensor):
            self.track(result, node)
        elif isinstance(result, (list, tuple)):
            node.meta["val"] = [as_meta(r) if isinstance(r, Tensor) else r for r in result]
            for position, item in enumerate(result):
                got = self.graph.call_function(operator.getitem, (node, position))
                got.meta.update({k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta")})
                self._keep(got, item)
        else:
            node.meta["val"] = result

    def returned(self, noted: Any, result: Any) -> None:
        if isinstance(noted, (list, tuple)):
            for a, b in zip(noted, result):
                self.returned(a, b)
        elif isinstance(noted, Tensor) and noted is not result and id(noted) in self.known:
            self.known[id(result)] = (result, self.known[id(noted)][1])

    def mark(self) -> Node:
        return self.graph._root._prev

    def forget(self, mark: Node) -> None:
        while self.graph._root._prev is not mark:
            self.graph.erase_node(self.graph._root._prev)
        gone = [key for key, (_, node) in self.known.items() if node._erased]
        for key in gone:
            del self.known[key]
        self.constants = [(t, name) for t, name in self.constants if id(t) in self.known]

    def place(self) -> str:
        """The place in the program where the call is being made."""
        frames = [
            f
            for f in traceback.extract_stack()
            if (not f.filename.startswith(_FOLDER) or f.filename.startswith(_MODULES))
            and not f.filename.endswith("operator>")
        ]
        first = next((i for i, f in enumerate(frames) if f.name == "forward"), len(frames))
        return "".join(traceback.StackSummary.from_list(frames[first:]).format()).strip()


def _view_of(known: Tensor, tensor: Tensor) -> tuple[Any, tuple]:
    """The operator and its further arguments that make a tensor of a known one in the same memory."""
    aten = flambeau.ops.aten
    shape, strides = list(tensor.shape), list(tensor.stride())
    with flambeau.no_grad():
        try:
            spread = known.expand(shape)
        except RuntimeError:
            spread = None
    if spread is not None and spread.stride() == tensor.stride() and spread.storage_offset() == tensor.storage_offset():
        return aten.expand.default, (shape,)
    return aten.as_strided.default, (shape, strides, tensor.storage_offset())
