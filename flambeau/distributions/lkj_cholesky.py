"""Random correlation matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.ranges import arange
from ..ops.random.fills import randn
from ..ops.shape.parts import diag_embed
from . import constraints
from .beta import Beta
from .parametric import Parametric, checked
from .utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Parametric):
    """Cholesky factors of random dim x dim correlation matrices, likely in proportion to det ** (concentration - 1)
    (Lewandowski, Kurowicka and Joe, 2009)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # Row i is a random direction in i dimensions, of a squared length with this distribution; row 0 is a dummy.
        like = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        offset = arange(-1, dim - 1, **like).clamp(min=0)
        rest = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2) - 0.5 * offset
        self._beta = Beta(offset + 0.5, rest)
        super().__init__(self.concentration.shape, Size((dim, dim)), validate_args)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        length = self._beta.sample(sample_shape).sqrt().unsqueeze(-1)
        shape = self._extended_shape(sample_shape)
        direction = randn(shape, dtype=length.dtype, device=length.device).tril(-1)
        direction = direction / direction.norm(dim=-1, keepdim=True)
        direction[..., 0, :] = 0.0
        below = length * direction
        diagonal = (1 - below.square().sum(-1)).clamp(min=finfo(below.dtype).tiny).sqrt()
        return below + diag_embed(diagonal)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        log_diagonal = value.diagonal(0, -2, -1)[..., 1:].log()
        row = arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - row
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        log_volume = 0.5 * n * math.log(math.pi) + (alpha - 0.5).mvlgamma(n) - n * alpha.lgamma()
        return (order * log_diagonal).sum(-1) - log_volume
