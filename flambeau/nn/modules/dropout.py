"""Dropout: in training, elements or whole channels are set to zero at random."""

from __future__ import annotations

from typing import ClassVar

from ...core.tensor import Tensor
from .. import functional as F
from .settings import Declared, settings

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


@settings
class _DropoutNd(Declared):
    p: float = 0.5
    inplace: bool = False
    _function: ClassVar[str]

    def __post_init__(self) -> None:
        if self.p < 0 or self.p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {self.p}")

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.p, self.training, self.inplace)


class Dropout(_DropoutNd):
    """Zeroes elements with probability p and scales the others by 1 / (1 - p)."""

    _function = "dropout"


class Dropout1d(_DropoutNd):
    """Zeroes whole channels of (N, C, L)."""

    _function = "dropout1d"


class Dropout2d(_DropoutNd):
    """Zeroes whole channels of (N, C, H, W)."""

    _function = "dropout2d"


class Dropout3d(_DropoutNd):
    """Zeroes whole channels of (N, C, D, H, W)."""

    _function = "dropout3d"


class _AlphaDropout(_DropoutNd):
    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.p, self.training)


class AlphaDropout(_AlphaDropout):
    """Dropout that keeps mean and variance of SELU networks."""

    _function = "alpha_dropout"


class FeatureAlphaDropout(_AlphaDropout):
    """AlphaDropout of whole channels."""

    _function = "feature_alpha_dropout"
