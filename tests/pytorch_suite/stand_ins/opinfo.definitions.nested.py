"""Nested tensors of the jagged layout of several ranks, whole and with gaps; the operator database of these tensors has no entries here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .permissive import guess

njt_op_db: list[Any] = []


def _sample_njts(device: Any, dtype: Any, requires_grad: bool = False, dims: Any = None) -> Iterator[Any]:
    lengths = (3, 1, 4)

    def made(*sizes: int) -> Any:
        return torch.testing.make_tensor(sizes, device=device, dtype=dtype, requires_grad=requires_grad)

    for rank in dims or (2, 3, 4):
        inner = (2, 5)[: rank - 2]
        yield torch.nested.as_nested_tensor([made(n, *inner) for n in lengths], layout=torch.jagged)
        offsets = torch.tensor([0, 3, 4, 8], device=device)
        yield torch.nested.nested_tensor_from_jagged(made(8, *inner), offsets, torch.tensor([2, 1, 3], device=device))
        if rank > 2:
            yield torch.nested.as_nested_tensor([made(n, *inner) for n in lengths], layout=torch.jagged).transpose(1, 2)


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
