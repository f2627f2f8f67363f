"""Rearrangement of channels into space and back."""

from __future__ import annotations

from ...core.tensor import Tensor
from .. import functional as F
from .settings import Declared, settings

__all__ = ["PixelShuffle", "PixelUnshuffle"]


@settings
class PixelShuffle(Declared):
    """(N, C r^2, H, W) becomes (N, C, H r, W r): channels become pixels, the last step of super-resolution networks."""

    upscale_factor: int

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)


@settings
class PixelUnshuffle(Declared):
    """(N, C, H r, W r) becomes (N, C r^2, H, W): pixels become channels, the inverse of PixelShuffle."""

    downscale_factor: int

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)
