"""Distances and similarities of rows."""

from __future__ import annotations

from ...core.tensor import Tensor
from .. import functional as F
from .module import Module
from .settings import Declared, settings

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 over the last dimension: one distance for each pair of rows."""

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


@settings
class CosineSimilarity(Declared):
    """The cosine of the angle between x1 and x2 along a dimension: 1 for equal directions, 0 for right angles."""

    dim: int = 1
    eps: float = 1e-8
    extra_repr = Module.extra_repr

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
