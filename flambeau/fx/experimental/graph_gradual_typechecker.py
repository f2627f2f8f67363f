"""Shapes in annotations (`TensorType((2, Dyn))`) checked and filled in through a graph: what is not annotated is `Dyn`, unknown.

>>> checker = GraphTypeChecker({}, symbolic_trace(module))
>>> checker.type_check()     # TypeError where annotations contradict what the operators do
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import flambeau

from ...nn import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Linear, MaxPool2d, Module, ReLU
from ...ops.nn.conv import output_size
from ..graph_module import GraphModule
from ..node import Node
from ..tensor_type import Dyn, TensorType, is_consistent, is_more_precise

__all__ = ["GraphTypeChecker", "broadcast_types", "get_greatest_upper_bound", "register_inference_rule"]

_INFERENCE_RULES: dict[Any, Callable] = {}


def register_inference_rule(call_target: Any) -> Callable[[Callable], Callable]:
    """Decorator: register a rule that infers the type of a node. It gets the node, and for a call of a module also the module."""

    def note(function: Callable) -> Callable:
        if call_target in _INFERENCE_RULES:
            raise RuntimeError(f"Inference rule already registered for {call_target}!")
        _INFERENCE_RULES[call_target] = function
        return function

    return note


def get_greatest_upper_bound(type1: Any, type2: Any) -> Any:
    """Return the join of two types; raises TypeError if they are inconsistent."""
    if type1 == Dyn:
        return type2
    if type2 == Dyn:
        return type1
    if not is_consistent(type1, type2):
        raise TypeError(f"Inconsistent types {type1}, {type2}")
    if isinstance(type1, TensorType) and isinstance(type2, TensorType):
        return TensorType(tuple(b if a == Dyn else a for a, b in zip(type1.dims, type2.dims)))
    return type1


def expand_to_tensor_dim(t: Any, n: int) -> TensorType:
    """Return a tensor type with n dimensions; for `Dyn`, all of them unknown."""
    if t == Dyn:
        return TensorType((Dyn,) * n)
    if not isinstance(t, TensorType) or len(t.dims) != n:
        raise TypeError(f"Cannot extend tensor. Tensor {t} has rank {len(t.dims) if isinstance(t, TensorType) else 0}. It should have rank {n}")  # fmt: skip
    return t


def _argument_type(n: Node) -> Any:
    """Return the type of a node's argument; an unknown one takes the rank that the node's own type tells."""
    if n.args[0].type == Dyn and isinstance(n.type, TensorType):
        n.args[0].type = expand_to_tensor_dim(Dyn, len(n.type.dims))
    return n.args[0].type


def broadcast_types(t1: Any, t2: Any) -> tuple[Any, Any]:
    """Return both types with the dimensions that broadcasting gives them."""
    if t1 == Dyn or t2 == Dyn:
        return t1, t2
    if not isinstance(t1, TensorType) or not isinstance(t2, TensorType):
        raise TypeError(f"Cannot broadcast types {t1} and {t2}")
    rank = max(len(t1.dims), len(t2.dims))
    first, second = ([1] * (rank - len(t.dims)) + list(t.dims) for t in (t1, t2))
    for i, (x, y) in enumerate(zip(list(first), list(second))):
        if x == 1:
            first[i] = y
        elif y == 1:
            second[i] = x
    return TensorType(tuple(first)), TensorType(tuple(second))


@register_inference_rule(flambeau.add)
@register_inference_rule(operator.add)
@register_inference_rule(operator.iadd)
def _add(n: Node) -> Any:
    if len(n.args) != 2 or not all(isinstance(a, Node) for a in n.args):
        return get_greatest_upper_bound(n.args[0].type if isinstance(n.args[0], Node) else Dyn, n.type)
    t1, t2 = (a.type for a in n.args)
    for number, other in ((t1, t2), (t2, t1)):
        if number in (int, float) and isinstance(other, TensorType):
            return other
    new1, new2 = broadcast_types(t1, t2)
    if new1 != t1 or new2 != t2:
        n.meta["broadcast"] = True
    if not is_consistent(new1, new2):
        raise TypeError(
            f"Cannot add arguments {n.args[0]} ({t1}) and {n.args[1]} ({t2}) in node {n}. Types should match "
        )
    return new2 if is_more_precise(new1, new2) else new1


@register_inference_rule(flambeau.reshape)
def _reshape(n: Node) -> Any:
    before, sizes = n.args[0].type, n.args[1]
    wanted = TensorType(tuple(Dyn if s == -1 else s for s in sizes))
    if before == Dyn:
        return wanted
    counts = [math.prod(1 if d == Dyn else d for d in t.dims) for t in (before, wanted)]
    if counts[0] % counts[1] and counts[1] % counts[0]:
        raise TypeError(f"Cannot reshape in node {n} from {before} to {wanted}")
    return wanted


@register_inference_rule(flambeau.transpose)
def _transpose(n: Node) -> Any:
    before, first, second = n.args[0].type, n.args[1], n.args[2]
    if before == Dyn:
        return n.type
    dims = list(before.dims)
    if not all(0 <= d < len(dims) for d in (first, second)):
        raise TypeError(f"Cannot transpose {first} and {second} in type {before} for node {n}")
    dims[first], dims[second] = dims[second], dims[first]
    return get_greatest_upper_bound(TensorType(tuple(dims)), n.type)


@register_inference_rule(flambeau.flatten)
def _flatten(n: Node) -> Any:
    before = _argument_type(n)
    start = n.kwargs.get("start_dim", n.args[1] if len(n.args) > 1 else 0)
    end = n.kwargs.get("end_dim", n.args[2] if len(n.args) > 2 else -1)
    if before == Dyn:
        return n.type
    rank = len(before.dims)
    start, end = (d + rank if d < 0 else d for d in (start, end))
    if not 0 <= start <= end < rank:
        raise TypeError(f"Incompatible dimensions {start}, {end} in type {before}")
    middle = before.dims[start : end + 1]
    joined = Dyn if Dyn in middle else math.prod(middle)
    return get_greatest_upper_bound(TensorType((*before.dims[:start], joined, *before.dims[end + 1 :])), n.type)


@register_inference_rule(BatchNorm2d)
def _batch_norm(n: Node, module: Any) -> Any:
    n.args[0].type = given = expand_to_tensor_dim(n.args[0].type, 4)
    own = expand_to_tensor_dim(n.type, 4)
    if not all(is_consistent(t.dims[1], module.num_features) for t in (given, own)) or not is_consistent(given, own):
        raise TypeError(f"Cannot apply {module} with input type {given} and existing type {own} on {n}")
    return get_greatest_upper_bound(given, own)


def _pair(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def _window_count(size: Any, module: Any, index: int) -> Any:
    """Return the number of a pooling or convolution module's windows along a dimension; Dyn if its size is unknown."""
    if size == Dyn:
        return Dyn
    if not isinstance(size, int):
        raise TypeError(f"{size} in {module} must be a number or Dyn")
    kernel, stride, padding, dilation = (
        _pair(v)[index]
        for v in (module.kernel_size, module.stride or module.kernel_size, module.padding, module.dilation)
    )
    return output_size((size,), (kernel,), ((stride,), ((padding, padding),), (dilation,), 1))[0]


@register_inference_rule(Conv2d)
def _conv2d(n: Node, module: Any) -> Any:
    n.args[0].type = given = expand_to_tensor_dim(n.args[0].type, 4)
    own = expand_to_tensor_dim(n.type, 4)
    if not is_consistent(given.dims[1], module.in_channels):
        raise TypeError(f"Cannot apply {module} with input type {given} and existing type {n.type} on {n}")
    places = (_window_count(given.dims[2], module, 0), _window_count(given.dims[3], module, 1))
    return get_greatest_upper_bound(TensorType((given.dims[0], module.out_channels, *places)), own)


@register_inference_rule(MaxPool2d)
def _max_pool2d(n: Node, module: Any) -> Any:
    given = _argument_type(n)
    if given == Dyn:
        return n.type
    if len(given.dims) not in (3, 4):
        raise TypeError(f"Wrong size {given} for {module}")
    places = (_window_count(given.dims[-2], module, 0), _window_count(given.dims[-1], module, 1))
    return get_greatest_upper_bound(TensorType((*given.dims[:-2], *places)), n.type)


@register_inference_rule(AdaptiveAvgPool2d)
def _adaptive_avg_pool2d(n: Node, module: Any) -> Any:
    given = _argument_type(n)
    if given == Dyn:
        return n.type
    if len(given.dims) not in (3, 4):
        raise TypeError(f"Tensor ranks must be 3 or 4. Got {given}")
    sizes = [d if wanted is None else wanted for wanted, d in zip(_pair(module.output_size), given.dims[-2:])]
    return get_greatest_upper_bound(TensorType((*given.dims[:-2], *sizes)), n.type)


@register_inference_rule(Linear)
def _linear(n: Node, module: Any) -> Any:
    given = _argument_type(n)
    if given == Dyn:
        return n.type
    if not is_consistent(given.dims[-1], module.in_features):
        raise TypeError(f"Inconsistent {module.in_features} and {given.dims[-1]} in {module}")
    return get_greatest_upper_bound(TensorType((*given.dims[:-1], module.out_features)), n.type)


@register_inference_rule(ReLU)
def _relu(n: Node, module: Any) -> Any:
    return get_greatest_upper_bound(_argument_type(n), n.type)


class GraphTypeChecker:
    """Infers the types of a graph's nodes, one after another."""

    def __init__(self, env: dict[str, Any], traced: GraphModule) -> None:
        self.env, self.traced = env, traced

    def type_check(self) -> bool:
        """Infer the type of every node; raises TypeError if annotations contradict the operators."""
        for node in self.traced.graph.nodes:
            self.type_check_node(node)
        return True

    def type_check_node(self, n: Node) -> Any:
        """Infer the type of a node whose arguments have types."""
        n.type = Dyn if n.type is None else n.type
        if n.op == "get_attr":
            held = (
                self.traced.get_parameter(str(n.target))
                if "." in str(n.target)
                else getattr(self.traced, str(n.target))
            )
            n.type = get_greatest_upper_bound(TensorType(tuple(held.shape)), n.type)
        elif n.op == "output":
            n.type = n.args[0].type if isinstance(n.args[0], Node) else n.type
        elif n.op in ("call_function", "call_module"):
            module: Module | None = self.traced.get_submodule(str(n.target)) if n.op == "call_module" else None
            rule = _INFERENCE_RULES.get(n.target if module is None else type(module))
            if rule is None:
                raise RuntimeError(f"No inference rule registered for {'target' if module is None else 'class'} {n.target if module is None else type(module)}!")  # fmt: skip
            n.type = rule(n) if module is None else rule(n, module)
        elif n.op == "call_method":
            rule = _INFERENCE_RULES.get(getattr(flambeau, str(n.target), None))
            if rule is None:
                raise NotImplementedError(f"Method {n.target} not yet implemented")
            n.type = rule(n)
        return n.type
