"""Helpers of the distributions: broadcasting parameters, probabilities and logits, triangles as vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from ..autograd.grad_mode import enable_grad
from ..core.numeric_limits import finfo
from ..core.promotion import get_default_dtype
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.construct import tensor
from ..ops.creation.filled import empty
from ..ops.creation.ranges import arange
from ..ops.shape.dimensions import broadcast_tensors
from ..overrides import is_tensor_like

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060
Number = (int, float, bool)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Broadcast tensors and numbers together; numbers take the first tensor's dtype, or the default one.

    >>> broadcast_all(torch.zeros(2), 1.0)
    (tensor([0., 0.]), tensor([1., 1.]))
    """
    if not all(is_tensor_like(v) or isinstance(v, Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    options = {"dtype": get_default_dtype()} if first is None else {"dtype": first.dtype, "device": first.device}
    return broadcast_tensors(*(v if is_tensor_like(v) else tensor(v, **options) for v in values))


def _standard_normal(shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    return empty(shape, dtype=dtype, device=device).normal_()


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Return the sum over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape(*value.shape[: value.dim() - dim], -1).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Return probabilities of log-odds (binary), or of unnormalised log-probabilities along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Clamp probabilities so far from 0 and 1 that their logits are finite."""
    margin = finfo(probs.dtype).eps
    return probs.clamp(margin, 1 - margin)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Return log-odds of probabilities (binary), or their logarithms."""
    inside = clamp_probs(probs)
    return inside.log() - (-inside).log1p() if is_binary else inside.log()


class lazy_property:
    """Decorator of a method: an attribute computed on first use and cached. Gradients pass through it even if that was under `no_grad`."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.name] = value
        return value


def _triangle(n: int, diag: int, device: Any) -> Tensor:
    """Return a mask that is True on and below diagonal `diag` of an n x n matrix."""
    index = arange(n, device=device)
    return index <= index.unsqueeze(-1) + diag


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Return the lower triangle of square matrices, row by row, as vectors."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _triangle(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Return square matrices whose lower triangle, row by row, is the last dimension of `vec`; 0 elsewhere."""
    entries = vec.shape[-1]
    # n rows hold half of n^2 + (1 + 2 diag) n - |diag| (diag + 1) entries.
    slope = 1 + 2 * diag
    n = ((slope**2 + 4 * (2 * entries + abs(diag) * (diag + 1))) ** 0.5 - slope) / 2
    if abs(round(n) - n) > finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {entries} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    n = round(n)
    mat = vec.new_zeros(vec.shape[:-1] + Size((n, n)))
    mat[..., _triangle(n, diag, vec.device)] = vec
    return mat
