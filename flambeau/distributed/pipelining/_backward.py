"""Backward passes of one stage: complete, or the gradients of inputs first and those of weights later.

The first half runs only the nodes that lead to the inputs. Where a path to a weight branches off, the incoming gradient is saved, and the
second half continues from it: nothing is computed twice, and the first half computes only what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...autograd import backward
from ...autograd.engine import Pass, dependencies, leading_to, run_backward, run_prehooks
from ...core.graph import GradientEdge, Node, gradient_edge, unrecorded
from ...core.tensor import Tensor
from ...ops.creation.filled import ones_like
from ._utils import described


def _roots(outputs: Any, gradients: Any) -> list[tuple[Tensor, Tensor | None]]:
    """Return the tensors in nested outputs that require grad, each with its gradient."""
    if isinstance(outputs, Tensor):
        return [(outputs, gradients)] if outputs.requires_grad else []
    if isinstance(outputs, (tuple, list)):
        pairs: Iterable = zip(outputs, [None] * len(outputs) if gradients is None else gradients, strict=True)
    elif isinstance(outputs, dict):
        pairs = ((value, None if gradients is None else gradients[key]) for key, value in outputs.items())
    else:
        return []
    found = [root for output, gradient in pairs for root in _roots(output, gradient)]
    return found if gradients is None else [(t, g) for t, g in found if g is not None]


def stage_backward(
    stage_output: Any, output_grads: Any, input_values: Iterable[Any], outputs_with_grads_idxs: Any = None
) -> tuple[Tensor | None, ...]:
    """Accumulate the gradients of the stage's weights; return those of its inputs."""
    if outputs_with_grads_idxs is not None:
        stage_output = [stage_output[i] for i in outputs_with_grads_idxs]
        output_grads = [output_grads[i] for i in outputs_with_grads_idxs]
    values = list(input_values)
    try:
        roots = _roots(stage_output, output_grads)
        if roots:
            backward(tuple(t for t, _ in roots), grad_tensors=tuple(g for _, g in roots))
    except Exception as problem:
        raise RuntimeError(
            f"Failed to run stage backward: {described(stage_output, output_grads, values)}"
        ) from problem
    found = tuple(value.grad if isinstance(value, Tensor) else None for value in values)
    for value in values:
        if isinstance(value, Tensor):
            value.grad = None
    return found


class _DeferredGradients:
    """Deferred weight gradients of a node: either their values, or the call that computes them."""

    __slots__ = ("node", "wanted", "incoming", "outgoing")

    def __init__(self, node: Node, wanted: tuple[bool, ...], incoming: list, outgoing: tuple | None) -> None:
        self.node, self.wanted, self.incoming, self.outgoing = node, wanted, incoming, outgoing

    def gradients(self) -> list[tuple[GradientEdge, Tensor]]:
        """Return the gradients and the tensors they belong to."""
        outgoing = self.outgoing
        if outgoing is None:
            incoming = run_prehooks(self.node, self.incoming) if self.node.prehooks else self.incoming
            outgoing = unrecorded(self.node.apply_some, incoming, self.wanted)
        pairs = zip(self.node.edges, self.wanted, outgoing)
        return [(GradientEdge(*edge), g) for edge, wanted, g in pairs if wanted and g is not None]


class _InputPass(Pass):
    """Backward pass to the inputs that saves only what the later pass to the weights needs."""

    to_weights: set[Node]
    late: list[_DeferredGradients]

    def evaluate(self, node: Node, incoming: list, useful: set[Node] | None) -> tuple | None:
        assert useful is not None
        outgoing = super().evaluate(node, incoming, useful)
        if outgoing is None:
            return None
        wanted = tuple([e is not None and e[0] not in useful and e[0] in self.to_weights for e in node.edges])
        if True not in wanted:
            node.release()
        elif type(node).apply_some is Node.apply_some:  # it has computed them all
            self.late.append(_DeferredGradients(node, wanted, [], outgoing))
            node.release()
            return tuple([g if e is not None and e[0] in useful else None for g, e in zip(outgoing, node.edges)])
        else:
            self.late.append(_DeferredGradients(node, wanted, incoming, None))
        return outgoing


def stage_backward_input(
    stage_outputs_or_loss: Any, output_grads: Any, input_values: list[Any], weights: Iterable[Tensor]
) -> tuple[tuple[Tensor | None, ...], list[dict[str, Any]]]:
    """Return the gradients of the inputs, and the state from which `stage_backward_weight` continues."""
    outputs = list(stage_outputs_or_loss)
    inputs = [v for v in input_values if isinstance(v, Tensor) and v.requires_grad]
    late: list[_DeferredGradients] = []
    found: list = [None] * len(inputs)
    try:
        roots = [(t, ones_like(t) if g is None else g) for t, g in _roots(outputs, output_grads)]
        if roots and inputs:
            found = _run_to_inputs(roots, inputs, [w for w in weights if w.requires_grad], late)
    except Exception as problem:
        raise RuntimeError(
            f"Failed to run stage backward input: {described(outputs, output_grads, input_values)}"
        ) from problem
    for value, gradient in zip(inputs, found, strict=True):
        if gradient is not None:
            value.grad = gradient if value.grad is None else value.grad + gradient
    for tensor in outputs:  # what they were made of is not needed any more
        if isinstance(tensor, Tensor) and tensor._base is None:
            tensor.detach_()
    of_inputs = iter(found)
    return (
        tuple(next(of_inputs) if isinstance(v, Tensor) and v.requires_grad else None for v in input_values),
        [{"late": late}],
    )


def _run_to_inputs(roots: list, inputs: list[Tensor], weights: list[Tensor], late: list[_DeferredGradients]) -> list:
    edges = [gradient_edge(t) for t, _ in roots]
    _, reachable = dependencies([edge[0] for edge in edges if edge is not None])
    to_weights = leading_to(reachable, {edge[0] for edge in map(gradient_edge, weights) if edge is not None})

    def make(*settings: Any) -> Pass:
        run = _InputPass(*settings)
        run.to_weights, run.late = to_weights, late
        return run

    tensors, gradients = [t for t, _ in roots], [g for _, g in roots]
    return run_backward(tensors, gradients, True, False, inputs, False, make)


def stage_backward_weight(
    weights: Iterable[Tensor], param_groups: list[dict[str, Any]], retain_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """Accumulate the gradients of the weights, from the state that `stage_backward_input` returned."""
    before = tuple(weight.grad for weight in weights)
    for group in param_groups:
        arriving = [pair for late in group["late"] for pair in late.gradients()]
        if arriving:
            edges: list[Any] = [edge for edge, _ in arriving]
            run_backward(edges, [g for _, g in arriving], retain_graph, False)
        if not retain_graph:
            for late in group["late"]:
                late.node.release()
            group["late"] = []
    return before
