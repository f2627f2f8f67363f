"""Backward passes of one stage: whole, or the gradients of inputs first and those of weights later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...autograd import backward, grad
from ...core.tensor import Tensor


def _roots(outputs: Iterable[Any], gradients: Iterable[Any] | None) -> tuple[list[Tensor], list[Tensor | None]]:
    """The outputs that have a history, and their gradients."""
    given = list(outputs)
    grads = [None] * len(given) if gradients is None else list(gradients)
    kept = [
        (out, g)
        for out, g in zip(given, grads, strict=True)
        if isinstance(out, Tensor)
        and (out.requires_grad or out.grad_fn is not None)
        and (g is not None or gradients is None)
    ]
    return [out for out, _ in kept], [g for _, g in kept]


def stage_backward(
    stage_output: Any, output_grads: Any, input_values: Iterable[Any], outputs_with_grads_idxs: Any = None
) -> tuple[Tensor | None, ...]:
    """Add to the gradients of the stage's weights; returns those of its inputs."""
    outputs = stage_output if isinstance(stage_output, (tuple, list)) else [stage_output]
    grads = output_grads if output_grads is None or isinstance(output_grads, (tuple, list)) else [output_grads]
    roots, gradients = _roots(outputs, grads)
    if roots:
        backward(tuple(roots), grad_tensors=tuple(gradients))
    return tuple(value.grad if isinstance(value, Tensor) else None for value in input_values)


def stage_backward_input(
    stage_outputs_or_loss: list[Tensor],
    output_grads: list[Tensor] | None,
    input_values: list[Tensor],
    weights: Iterable[Tensor],
) -> tuple[tuple[Tensor | None, ...], list[dict[str, Any]]]:
    """The gradients of the inputs, and what `stage_backward_weight` needs. A node of the graph computes all its gradients at once, so
    those of the weights are ready with them; they are kept until the schedule adds them."""
    roots, gradients = _roots(stage_outputs_or_loss, output_grads)
    inputs = [v for v in input_values if isinstance(v, Tensor) and v.requires_grad]
    wanted = [w for w in weights if w.requires_grad]
    found: Any = [None] * (len(inputs) + len(wanted))
    if roots and found:
        found = grad(tuple(roots), (*inputs, *wanted), tuple(gradients), allow_unused=True)
    by_input = iter(found[: len(inputs)])
    of_inputs = tuple(next(by_input) if isinstance(v, Tensor) and v.requires_grad else None for v in input_values)
    groups = [{"param": w, "grad": g} for w, g in zip(wanted, found[len(inputs) :], strict=True)]
    return of_inputs, groups


def stage_backward_weight(
    weights: Iterable[Tensor], param_groups: list[dict[str, Any]], retain_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """Add the gradients of the weights that `stage_backward_input` has kept."""
    for group in param_groups:
        weight, gradient = group["param"], group["grad"]
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
    return tuple(weight.grad for weight in weights)
