"""Sparsifier that keeps a band around the diagonal of a matrix."""

from __future__ import annotations

from typing import Any

from .... import ones_like, zeros_like
from ....nn.modules.module import Module
from .base_sparsifier import BaseSparsifier


class NearlyDiagonalSparsifier(BaseSparsifier):
    """Sparsifier that zeroes all but the `nearliness` (an odd number) diagonals nearest to the main one."""

    def __init__(self, nearliness: int = 1) -> None:
        super().__init__(defaults={"nearliness": nearliness})

    def update_mask(self, module: Module, tensor_name: str, nearliness: int = 1, **kwargs: Any) -> None:
        mask: Any = getattr(module.parametrizations, tensor_name)[0].mask
        mask.data = zeros_like(mask)
        if nearliness <= 0:
            return
        if nearliness % 2 == 0:
            raise ValueError("nearliness can only be an odd number")
        reach = nearliness // 2
        if reach >= min(mask.shape):
            raise ValueError("nearliness cannot be larger than the dimensions of tensor.")
        mask.data = ones_like(mask).triu(-reach).tril(reach)
