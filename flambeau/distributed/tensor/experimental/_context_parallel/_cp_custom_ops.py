"""All-gather of keys and values, as an operator that graphs can contain."""

from __future__ import annotations

from typing import Any

from .....core.tensor import Tensor
from .....library import custom_op
from .... import _functional_collectives as funcol
from ....groups import _resolve_process_group


@custom_op("cplib::flex_cp_allgather", mutates_args=())
def flex_cp_allgather(k: Tensor, v: Tensor, seq_dim: int, pg_name: str) -> tuple[Tensor, Tensor]:
    """Return keys and values of the whole sequence, gathered from all ranks."""
    whole_k, whole_v = (funcol.all_gather_tensor(t, seq_dim, pg_name, now=True) for t in (k, v))
    return whole_k, whole_v


@custom_op("cplib::flex_cp_allgather_backward", mutates_args=())
def flex_cp_allgather_backward(
    grad_full_k: Tensor, grad_full_v: Tensor, seq_dim: int, pg_name: str
) -> tuple[Tensor, Tensor]:
    """Return this rank's part of the gradients, reduced over all ranks."""
    both = (grad_full_k, grad_full_v)
    grad_k, grad_v = (funcol.reduce_scatter_tensor(g, "sum", seq_dim, pg_name, now=True) for g in both)
    return grad_k, grad_v


def _like(tensor: Tensor, dim: int, length: int) -> Tensor:
    return tensor.new_empty((*tensor.shape[:dim], length, *tensor.shape[dim + 1 :]))


@flex_cp_allgather.register_fake
def _gathered(k: Tensor, v: Tensor, seq_dim: int, pg_name: str) -> tuple[Tensor, Tensor]:
    size = _resolve_process_group(pg_name).size()
    return _like(k, seq_dim, k.shape[seq_dim] * size), _like(v, seq_dim, v.shape[seq_dim] * size)


@flex_cp_allgather_backward.register_fake
def _scattered(grad_full_k: Tensor, grad_full_v: Tensor, seq_dim: int, pg_name: str) -> tuple[Tensor, Tensor]:
    size = _resolve_process_group(pg_name).size()
    k, v = grad_full_k, grad_full_v
    return _like(k, seq_dim, k.shape[seq_dim] // size), _like(v, seq_dim, v.shape[seq_dim] // size)


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.where = inputs[2:]


def _backward(ctx: Any, grad_k: Tensor, grad_v: Tensor) -> tuple:
    return (*flex_cp_allgather_backward(grad_k, grad_v, *ctx.where), None, None)


flex_cp_allgather.register_autograd(_backward, setup_context=_remember)
