"""Sliding blocks of images as columns, and back."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .settings import Declared, settings

__all__ = ["Fold", "Unfold"]


@settings
class Fold(Declared):
    """Adds columns of sliding blocks up into images, the transpose of Unfold: where blocks overlap, their values are summed."""

    output_size: Any
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


@settings
class Unfold(Declared):
    """Copies sliding blocks of images into columns, (N, C, H, W) to (N, C k k, L): a convolution is a product with these."""

    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
