"""Operators for vision: boxes, regions of interest, detection losses, building blocks."""

from .drop_block import DropBlock2d, DropBlock3d, drop_block2d, drop_block3d
from .feature_pyramid_network import FeaturePyramidNetwork
from .misc import (
    MLP,
    Conv2dNormActivation,
    Conv3dNormActivation,
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
)
from .stochastic_depth import StochasticDepth, stochastic_depth

__all__ = [
    "MLP", "Conv2dNormActivation", "Conv3dNormActivation", "DropBlock2d", "DropBlock3d", "FeaturePyramidNetwork",
    "FrozenBatchNorm2d", "Permute", "SqueezeExcitation", "StochasticDepth", "drop_block2d", "drop_block3d",
    "stochastic_depth",
]  # fmt: skip
