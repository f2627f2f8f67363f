"""Building blocks of derivatives of functions: inputs that are tracked, and the graph that leads to them.

A `Tape` is one running derivative. Autograd records values only (see core.batched), so inputs are tracked as values with the dimensions of
all running vmaps in front: an element's gradient is then the gradient of its own copy. Derivatives nest naturally: an inner tape's inputs are
nodes in the outer one's graph."""

from __future__ import annotations

from typing import Any

from ..autograd.engine import Pass, run_backward
from ..core.batched import BatchedTensor, batched
from ..core.graph import AccumulateGrad, Node, grad_mode, gradient_edge, unusual
from ..core.pytree import tree_map
from ..core.tensor import Tensor
from ..core.uninterrupted import uninterrupted
from .batching import Level, running_levels


def lowered(x: Tensor, levels: list[Level]) -> Tensor:
    """Return the value of x with the dimensions of `levels` in front, outermost first. Levels that started later stay hidden."""
    if isinstance(x, BatchedTensor) and x._level not in levels:
        inner = lowered(x._value.movedim(x._hidden, 0), levels)
        return batched(inner, len(levels), x._level)
    if not levels:
        return x
    *outer, level = levels
    return lowered(level.full(x), outer)


def raised(value: Tensor, levels: list[Level]) -> Tensor:
    """Undo `lowered`."""
    if isinstance(value, BatchedTensor) and value._level not in levels:
        inner = raised(value._value.movedim(value._hidden, len(levels)), levels)
        return batched(inner, 0, value._level)
    for level in levels:
        value = batched(value, 0, level)
    return value


class _Identity(Node):
    def apply(self, grads: list) -> tuple:
        return tuple(grads)


class Tape:
    """A running derivative. `levels` are the vmaps it runs in; use as a context manager around the function."""

    def __init__(self) -> None:
        self.levels = running_levels()
        self.leaves: list[Tensor] = []
        self.open = True
        self.records_outside, self.infers_outside = grad_mode.enabled, grad_mode.inference

    def __enter__(self) -> Tape:
        grad_mode.enabled, grad_mode.inference = True, False
        unusual[:0] = (None,)  # compiled functions inside run eagerly: they may be differentiated more than once
        return self

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        grad_mode.enabled, grad_mode.inference = self.records_outside, self.infers_outside
        del unusual[-1]
        self.open = False

    def follow(self, x: Any) -> Tensor:
        """Return x as a new start of the graph, which the function gets."""
        if not isinstance(x, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        value = lowered(x, self.levels)
        if value.is_inference():
            value = value.clone()  # tensors made in inference mode cannot be recorded
        if self.records_outside and value.requires_grad:
            leaf = value.view_as(value)
        else:
            leaf = value.detach().requires_grad_()
            leaf._ensure_autograd().tape = self
        self.leaves.append(leaf)
        return raised(leaf, self.levels)

    def follow_forward(self, x: Any) -> Tensor:
        """Track x in forward mode, where a function may change its inputs: they are no leaves, but share the leaves' memory."""
        self.follow(x)
        leaf = self.leaves[-1]
        value = leaf.detach()
        value._set_history(_Identity("Identity", (gradient_edge(leaf),)), 0)
        return raised(value, self.levels)

    def leads_outside(self, tensors: list[Tensor]) -> bool:
        """Return whether an outer derivative, or a tensor that requires grad, takes part in these results."""
        if not self.records_outside:
            return False
        seen = {edge[0] for edge in map(gradient_edge, tensors) if edge is not None}
        todo = list(seen)
        while todo:
            node = todo.pop()
            if isinstance(node, AccumulateGrad):
                tape = getattr(node.variable._autograd, "tape", None)
                if tape is None or (tape is not self and tape.open):
                    return True
            for edge in node.edges:
                if edge is not None and edge[0] not in seen:
                    seen.add(edge[0])
                    todo.append(edge[0])
        return False

    def let_go(self, tree: Any) -> Any:
        """Return results without the part of the graph that was only for this derivative."""
        return tree_map(self._let_go_one, tree)

    def _let_go_one(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.requires_grad:
            return x
        own = x.grad_fn is not None or getattr(x._autograd, "tape", None) is not None
        return x.detach() if own and not self.leads_outside([x]) else x

    def lower(self, x: Tensor) -> Tensor:
        return lowered(x, self.levels)

    def raise_(self, x: Tensor) -> Tensor:
        return raised(x, self.levels)


def products(
    outputs: list[Tensor], inputs: list[Tensor], vectors: list[Tensor], create_graph: bool, kind: type[Pass] = Pass
) -> list:
    """Return the vectors times the derivatives of outputs, all values; zeros for inputs that are not reached. `kind` is the kind of backward
    pass, if not the usual one."""
    reached = [(o, v) for o, v in zip(outputs, vectors) if o.requires_grad]
    found: list = [None] * len(inputs)
    if reached:
        outs, starts = zip(*reached)
        found = run_backward(list(outs), list(starts), True, create_graph, inputs, False, kind)
    return [zeros_like(x) if g is None else g for g, x in zip(found, inputs)]


def zeros_like(x: Tensor) -> Tensor:
    return x.new_zeros(x.shape)
