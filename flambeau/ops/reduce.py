"""Reductions: sum, mean, prod, max, min, any, all, argmax and what is made of them."""

from __future__ import annotations

from typing import Any

from ..core.layout import wrap_dims
from ..core.tensor import Tensor, copy_of_array
from .declare import composite, primitive


def reduced_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """None and () mean all dimensions."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    return wrap_dims(dim, ndim)


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def _sum_backward(g: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if not keepdim:
        for d in sorted(reduced_dims(dim, len(input.shape))):
            g = g.unsqueeze(d)
    return g.expand(input.shape)


@primitive(grads={"input": _sum_backward}, name="sum")
def sum_(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over all elements or over the given dimensions."""
    dims = reduced_dims(dim, len(input.shape))
    array = input._array().sum(axis=dims, keepdims=keepdim)
    return copy_of_array(array, input.dtype)


@composite(function=False)
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over broadcast dimensions until the shape is `size`."""
    target = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if self.shape == target:
        return self
    lead = len(self.shape) - len(target)
    dims = tuple(range(lead)) + tuple(i for i in range(lead, len(self.shape)) if target[i - lead] == 1 and self.shape[i] != 1)
    out = sum_(self, dims, True) if dims else self
    return out.reshape(target)
