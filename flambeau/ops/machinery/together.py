"""Gradients that one backward step computes together: those that are wanted; if one can be differentiated again, all can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.tensor import Tensor
from .declare import internal
from .quirks import Quirks

Wanted = tuple[bool, ...]  # which gradients are


def _shares(grads: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    return list(grads)


@internal(grads={"parts": _shares}, quirks=Quirks(label="TogetherBackward0"), batching="each")
def _tied(parts: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple(None if p is None else p._bare_alias() for p in parts)


def together(*parts: Any) -> tuple[Any, ...]:
    """Return these tensors as outputs of one node, as PyTorch's fused backward functions return them."""
    return tuple(_tied(list(parts)))


def gradients_of(wanted: Wanted, *tensors: Any) -> list[tuple[Any, ...]]:
    """Return the layouts of those gradients of the tensors that are wanted (see `Op.layout`)."""
    return [(t.shape, t.dtype, t.device) for t, flag in zip(tensors, wanted) if flag]


def wanted_of(found: Any, wanted: Wanted) -> Iterator[Tensor]:
    """Return those of all gradients that are wanted."""
    return (gradient for gradient, flag in zip(found, wanted) if flag)


def in_place_of(wanted: Wanted, found: Any) -> list[Any]:
    """Return the results of an operator that computes only the wanted ones, with None in the places of the others."""
    results = iter(found)
    return [next(results) if flag else None for flag in wanted]
