"""Methods that call a Python function for each element."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..machinery.inplace import raw_copy


def _replace(self: Tensor, values: list[Any], name: str) -> None:
    """Write the results of a Python function, element by element."""
    for value in values:
        if not isinstance(value, (Number, np.generic, Tensor)):
            raise TypeError(f"{name}: must be real number, not {type(value).__name__}")
    raw_copy(self, self.new_tensor(values).reshape(self.shape))
    self._bump(name)


@composite(function=False)
def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replace each element by `callable` of it (slow: a Python call per element)."""
    if self.requires_grad:
        raise RuntimeError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
    values = [callable(v) for v in self.reshape(-1).tolist()]
    _replace(self, values, "apply_")
    return self


@composite(function=False)
def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Replace each element by `callable` of it and the matching element of `tensor`."""
    if self.requires_grad or tensor.requires_grad:
        raise RuntimeError("Can't call map_() on Variable that requires grad. Use var.detach().map_() instead.")
    others = tensor.expand(self.shape).reshape(-1).tolist()
    values = [callable(a, b) for a, b in zip(self.reshape(-1).tolist(), others)]
    _replace(self, values, "map_")
    return self


@composite(function=False)
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:
    """Replace each element by callable(element, element of x, element of y), one call of Python each."""
    if self.requires_grad or x.requires_grad or y.requires_grad:
        raise RuntimeError("Can't call map2_() on Variable that requires grad. Use var.detach().map2_() instead.")
    first, second, third = (t.detach().expand(self.shape).reshape(-1).tolist() for t in (self, x, y))
    results = [callable(a, b, c) for a, b, c in zip(first, second, third)]
    _replace(self, results, "map2_")
    return self
