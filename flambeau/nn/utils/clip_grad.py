"""Clipping of gradients: by their total norm, or element by element."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterable
from typing import Any

from ...autograd import no_grad
from ...core.sharded import SpreadTensor
from ...core.tensor import Tensor
from ...ops.creation.construct import tensor
from ...ops.reduce.norms import vector_norm
from ...ops.reduce.of_lists import norms_of_list, scale_list
from ...ops.shape.joining import stack

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

Tensors = Tensor | Iterable[Tensor]


def _as_list(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _gradients(parameters: Tensors) -> list[Tensor]:
    return [grad for p in _as_list(parameters) if (grad := p.grad) is not None]


@no_grad()
def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Return the norm of all tensors together, as if they were one vector."""
    norm_type = float(norm_type)
    tensors = _as_list(tensors)
    spread: Any = next((t for t in tensors if isinstance(t, SpreadTensor)), None)
    if spread is not None:
        total = spread._total_norm(tensors, norm_type)
    else:
        if not tensors:
            return tensor(0.0)
        norms = None if foreach is False else norms_of_list(tensors, norm_type)
        if norms is None:
            norms = stack([vector_norm(t, norm_type).to(tensors[0].device) for t in tensors])
        total = vector_norm(norms, norm_type)
    if error_if_nonfinite and not total.isfinite().item():
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be"
            " clipped. To disable this error and scale the gradients by the non-finite norm anyway, set"
            " `error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients whose norm `total_norm` is known, so that it becomes at most `max_norm`."""
    # The factor is applied even when it is 1: asking for its value would make an accelerator wait.
    if isinstance(total_norm, SpreadTensor):
        total_norm = total_norm.full_tensor()  # type: ignore[attr-defined]
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    gradients = [getattr(gradient, "_local_tensor", gradient) for gradient in _gradients(parameters)]
    if not gradients or (foreach is not False and scale_list(gradients, factor)):
        return
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device))


@no_grad()
def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that their total norm is at most `max_norm`; returns the norm before."""
    empty_hint = isinstance(parameters, types.GeneratorType)
    parameters = _as_list(parameters)
    if empty_hint and not parameters:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Clip gradients: the old name of clip_grad_norm_."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value], in place."""
    limit = float(clip_value)
    for gradient in _gradients(parameters):
        gradient.clamp_(-limit, limit)
