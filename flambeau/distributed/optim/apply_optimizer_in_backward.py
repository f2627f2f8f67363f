"""Optimizers that step as soon as a gradient is complete, inside the backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.tensor import Tensor

__all__: list[str] = []


def _apply_optimizer_in_backward(
    optimizer_class: type, params: Iterable[Tensor], optimizer_kwargs: dict[str, Any], register_hook: bool = True
) -> None:
    """Attach an optimizer to each parameter, which steps when its gradient has arrived and then frees it."""
    for parameter in params:
        optimizer = optimizer_class([parameter], **optimizer_kwargs)
        known = vars(parameter)
        known.setdefault("_in_backward_optimizers", []).append(optimizer)
        known.setdefault("_optimizer_classes", []).append(optimizer_class)
        known.setdefault("_optimizer_kwargs", []).append(optimizer_kwargs)
        if register_hook:

            def step(tensor: Tensor, one: Any = optimizer) -> None:
                one.step()
                tensor.grad = None

            parameter.register_post_accumulate_grad_hook(step)


def _get_in_backward_optimizers(module: Any) -> list:
    return [optimizer for p in module.parameters() for optimizer in getattr(p, "_in_backward_optimizers", [])]
