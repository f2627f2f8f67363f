"""Autograd for tensor classes with `__torch_dispatch__`.

Their operators are recorded one by one. The derivative of a call is found with meta tensors: the library's own derivative of the operator
is traced once for each kind of call as a graph of PyTorch's operators. The backward pass makes those calls, which the class handles like
others."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..autograd.api import grad as autograd_grad
from ..core import modes, naming
from ..core.caching import remember
from ..core.graph import RETRY_MESSAGE, Node, SavedTensor, grad_mode, gradient_edge, named_class, unrecorded
from ..core.overrides import DisableTorchDispatch
from ..core.tensor import Tensor
from ..core.wrapped import declared
from ..library.aten.overloads import aten
from ..ops.creation.filled import empty_strided, zeros_like
from ._pytree import tree_flatten, tree_unflatten

_known: dict[tuple, _Derivative] = {}


def with_history(call: Callable[[], Any], overload: Any, args: tuple, kwargs: dict[str, Any], writes: bool) -> Any:
    """Return the result of `call()`, the run of an operator, with its autograd node."""
    leaves, shape = tree_flatten((args, kwargs))
    needed = tuple(i for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.requires_grad)
    if not grad_mode.enabled or not needed:
        return unrecorded(call)
    known = _derivative(overload, leaves, shape, needed)
    if not any(known.differentiable):
        return unrecorded(call)
    if writes and args[0].requires_grad and args[0].is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    saved: list[Any] = [None if isinstance(v, Tensor) and i == 0 and writes else v for i, v in enumerate(leaves)]
    edges = tuple(gradient_edge(leaves[i]) for i in needed)
    result = unrecorded(call)
    outputs, result_shape = tree_flatten(result)
    outputs = [v._bare_alias() if not writes and any(v is a for a in leaves) else v for v in outputs]
    node = named_class(WrapperNode, known.label)(known.label, edges)
    node.keep(known, [v if not isinstance(v, Tensor) else SavedTensor(v, False) for v in saved])
    for number, (value, differentiable) in enumerate(zip(outputs, known.differentiable)):
        if differentiable:
            value._set_history(node, number)
    node.outputs = [SavedTensor(v, True, i) if isinstance(v, Tensor) else v for i, v in enumerate(outputs)]
    node.output_count = len(outputs)
    return tree_unflatten(outputs, result_shape)


def _signature(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, declared(value, "_strides"), value.dtype, value.device.type
    return (type(value), value) if isinstance(value, (int, float, bool, str, type(None))) else repr(value)


def _derivative(overload: Any, leaves: list, shape: Any, needed: tuple[int, ...]) -> _Derivative:
    key = (overload, repr(shape), needed, tuple(_signature(v) for v in leaves))
    found = _known.get(key)
    if found is None:
        found = remember(_known, key, _Derivative(overload, leaves, shape, needed), 4096)
    return found


class _Derivative:
    """Derivative of one kind of call: which results are differentiable, and the graph of the gradients once a backward pass needs it."""

    def __init__(self, overload: Any, leaves: list, shape: Any, needed: tuple[int, ...]) -> None:
        self.overload, self.shape, self.needed = overload, shape, needed
        self.returning = _out_of_place(overload)
        self.leaves = [_without_values(v) if isinstance(v, Tensor) else v for v in leaves]
        self.places = [i for i, v in enumerate(leaves) if isinstance(v, Tensor)]
        outputs = _hidden(lambda: tree_flatten(self._call(self.leaves, True))[0])
        self.differentiable = [isinstance(v, Tensor) and v.requires_grad for v in outputs]
        self.metas = [_without_values(v) if isinstance(v, Tensor) else v for v in outputs]
        nodes = [v.grad_fn for v, used in zip(outputs, self.differentiable) if used]
        self.label = nodes[0].name() if nodes and nodes[0] is not None else "WrapperBackward0"
        self.graph: Any = None
        self.results: list = []  # the names of its nodes that stand for the results

    def _call(self, leaves: list, requiring: bool = False) -> Any:
        leaves = [v.detach().requires_grad_() if requiring and i in self.needed else v for i, v in enumerate(leaves)]
        args, kwargs = tree_unflatten(leaves, self.shape)
        return self.returning(*args, **kwargs)

    def traced(self) -> Any:
        """Return the graph from arguments and gradients of results to gradients of arguments."""
        if self.graph is None:
            make_fx = naming.above("export.proxy_tensor").make_fx

            def gradients(tensors: list, grads: list) -> Any:
                leaves = list(self.leaves)
                for place, tensor in zip(self.places, tensors):
                    leaves[place] = tensor
                found = tree_flatten(self._call(leaves))[0]
                outputs = [v for v, used in zip(found, self.differentiable) if used]
                wanted = [leaves[i] for i in self.needed]
                return [*autograd_grad(outputs, wanted, grads, allow_unused=True), *found]

            tensors = [self.leaves[i].detach().requires_grad_(i in self.needed) for i in self.places]
            grads = [m for m, used in zip(self.metas, self.differentiable) if used]
            self.graph = _hidden(lambda: make_fx(gradients)(tensors, grads).graph)
            *_, end = self.graph.nodes
            self.results = [getattr(node, "name", "") for node in end.args[0][len(self.needed) :]]
        return self.graph

    def run(self, leaves: list, outputs: list, grads: list, owner: Node) -> list:
        """Return the gradients of the arguments that need them. Saved results are not computed again, and are accessed only if they are
        needed: they may have changed since."""
        nodes = list(self.traced().nodes)
        given = [leaves[i] for i in self.places]
        given += [g for g, used in zip(grads, self.differentiable) if used]
        values: dict[Any, Any] = {}
        kept = dict(zip(self.results, outputs))
        begin = iter(given)
        for node in nodes:
            if node.op == "placeholder":
                values[node] = next(begin)
            elif node.name in kept:
                values[node] = kept[node.name]
        end = nodes[-1]
        for node in self._wanted(end, values):
            values[node] = self._value(node, lambda n: _unpack_saved(n, values, owner))
        return [None if n is None else _unpack_saved(n, values, owner) for n in end.args[0][: len(self.needed)]]

    def _wanted(self, end: Any, known: dict) -> list:
        """Return the nodes to compute, in order."""
        wanted: set[Any] = set()
        waiting = [n for n in end.args[0][: len(self.needed)] if n is not None]
        while waiting:
            node = waiting.pop()
            if node not in wanted and node not in known:
                wanted.add(node)
                waiting += node.all_input_nodes
        return [n for n in self.graph.nodes if n in wanted]

    def _value(self, node: Any, value: Callable[[Any], Any]) -> Any:
        if node.op == "get_attr":
            return operator.attrgetter(node.target)(node.graph.owning_module)
        if any(value(n) is None for n in node.all_input_nodes):
            raise RuntimeError(
                f"the gradient of {self.overload} needs the values that it has changed in place: use the operator that returns new ones"
            )
        look = naming.above("fx").node.map_arg
        args, kwargs = look(node.args, value), look(node.kwargs, value)
        return node.target(*args, **kwargs)


def _unpack_saved(key: Any, values: dict, owner: Node) -> Any:
    if isinstance(values[key], SavedTensor):
        values[key] = values[key].unpack(owner)
    return values[key]


def _out_of_place(overload: Any) -> Any:
    """Return the operator itself, or for an in-place one its out-of-place form, whose derivative is the same."""
    first = overload._schema.arguments[0].alias_info if overload._schema.arguments else None
    if first is None or not first.is_write:
        return overload
    name = overload._overloadpacket.__name__.removesuffix("_")
    found = getattr(getattr(aten, name, None), overload._overloadname, None)
    if found is None:
        raise NotImplementedError(f"the gradient of {overload}: there is no operator {name} that returns its result")
    return found


class WrapperNode(Node):
    """Autograd node of an operator that a tensor class handled."""

    outputs: list
    derivative: _Derivative

    def keep(self, derivative: _Derivative, saved: list) -> None:
        self.derivative, self.saved = derivative, saved

    def release(self) -> None:
        self.saved, self.outputs = None, []

    def apply(self, grads: list) -> tuple:
        if self.saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        full = [
            zeros_like(self.outputs[i].unpack(self).detach()) if g is None and used else g
            for i, (g, used) in enumerate(zip(grads, self.derivative.differentiable))
        ]
        return tuple(self.derivative.run(self.saved, self.outputs, full, self))


def _without_values(tensor: Tensor) -> Tensor:
    return _hidden(lambda: empty_strided(tensor.shape, declared(tensor, "_strides"), dtype=tensor.dtype, device="meta"))


def _hidden(function: Callable[[], Any]) -> Any:
    """Call a function that no mode and no class sees, recording gradients."""
    before, enabled = modes.own.stack[:], grad_mode.enabled
    modes.own.stack.replace([])
    grad_mode.enabled = True
    try:
        with DisableTorchDispatch():
            return function()
    finally:
        grad_mode.enabled = enabled
        modes.own.stack.replace(before)
