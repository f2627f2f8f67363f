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
    """Zeroes elements with probability p and scales the others by 1 / (1 - p), in training only: in evaluation the input passes unchanged."""

    _function = "dropout"


class Dropout1d(_DropoutNd):
    """Zeroes whole channels of (N, C, L) with probability p, in training only: neighbours in a channel are too alike to be dropped alone."""

    _function = "dropout1d"


class Dropout2d(_DropoutNd):
    """Zeroes whole channels of (N, C, H, W) with probability p, in training only: neighbouring pixels are too alike to be dropped alone."""

    _function = "dropout2d"


class Dropout3d(_DropoutNd):
    """Zeroes whole channels of (N, C, D, H, W) with probability p, in training only."""

    _function = "dropout3d"


class _AlphaDropout(_DropoutNd):
    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.p, self.training)


class AlphaDropout(_AlphaDropout):
    """Dropout that keeps the mean and the variance of SELU networks: dropped elements become SELU's negative limit, not zero."""

    _function = "alpha_dropout"


class FeatureAlphaDropout(_AlphaDropout):
    """AlphaDropout of whole channels: for convolutional networks with SELU, where neighbours in a channel are alike."""

    _function = "feature_alpha_dropout"
