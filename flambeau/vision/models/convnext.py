"""ConvNeXt (Liu et al., 2022)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.nn.modules import LayerNorm

from ..ops.misc import Conv2dNormActivation, Permute
from ..ops.stochastic_depth import StochasticDepth
from ._api import builder, weights_enums
from ._utils import initialise

__all__ = [
    "ConvNeXt", "ConvNeXt_Base_Weights", "ConvNeXt_Large_Weights", "ConvNeXt_Small_Weights", "ConvNeXt_Tiny_Weights",
    "convnext_base", "convnext_large", "convnext_small", "convnext_tiny",
]  # fmt: skip


class LayerNorm2d(LayerNorm):
    """Layer normalisation over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """Depthwise 7x7 convolution, then a scaled MLP over the channels, with a shortcut."""

    def __init__(
        self,
        dim: int,
        layer_scale: float,
        stochastic_depth_prob: float,
        norm_layer: Callable[..., nn.Module] | None = None,
    ):
        super().__init__()
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim, bias=True),
            Permute([0, 2, 3, 1]),
            norm(dim),
            nn.Linear(dim, 4 * dim, bias=True),
            nn.GELU(),
            nn.Linear(4 * dim, dim, bias=True),
            Permute([0, 3, 1, 2]),
        )
        self.layer_scale = nn.Parameter(flambeau.ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input: Tensor) -> Tensor:
        result = self.stochastic_depth(self.layer_scale * self.block(input))
        result += input
        return result


@dataclass
class CNBlockConfig:
    """Configuration of a stage: its width, the next stage's (None for the last) and its number of blocks."""

    input_channels: int
    out_channels: int | None
    num_layers: int


class ConvNeXt(nn.Module):
    """Convolutions arranged like a hierarchical vision transformer."""

    def __init__(
        self,
        block_setting: Sequence[CNBlockConfig],
        stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        **kwargs: Any,
    ):
        super().__init__()
        if not block_setting:
            raise ValueError("The block_setting should not be empty")
        if not (isinstance(block_setting, Sequence) and all(isinstance(s, CNBlockConfig) for s in block_setting)):
            raise TypeError("The block_setting should be List[CNBlockConfig]")
        block = block or CNBlock
        norm = norm_layer or partial(LayerNorm2d, eps=1e-6)
        width = block_setting[0].input_channels
        features: list[nn.Module] = [
            Conv2dNormActivation(
                3, width, kernel_size=4, stride=4, padding=0, norm_layer=norm, activation_layer=None, bias=True
            )
        ]
        total, done = sum(cnf.num_layers for cnf in block_setting), 0
        for cnf in block_setting:
            stage = []
            for _ in range(cnf.num_layers):
                stage.append(block(cnf.input_channels, layer_scale, stochastic_depth_prob * done / (total - 1.0)))
                done += 1
            features.append(nn.Sequential(*stage))
            if cnf.out_channels is not None:
                halve = nn.Conv2d(cnf.input_channels, cnf.out_channels, kernel_size=2, stride=2)
                features.append(nn.Sequential(norm(cnf.input_channels), halve))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last = block_setting[-1].out_channels or block_setting[-1].input_channels
        self.classifier = nn.Sequential(norm(last), nn.Flatten(1), nn.Linear(last, num_classes))
        fill = partial(nn.init.trunc_normal_, std=0.02)
        initialise(self, fill, fill)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


def _convnext(width: int, depth: int, drop: float, **kwargs: Any) -> ConvNeXt:
    """convolutions arranged like a hierarchical vision transformer."""
    widths = [width, 2 * width, 4 * width, 8 * width, None]
    setting = [CNBlockConfig(widths[i] or 0, widths[i + 1], n) for i, n in enumerate((3, 3, depth, 3))]
    return ConvNeXt(setting, kwargs.pop("stochastic_depth_prob", drop), **kwargs)


ConvNeXt_Tiny_Weights, ConvNeXt_Small_Weights, ConvNeXt_Base_Weights, ConvNeXt_Large_Weights = weights_enums(
    "ConvNeXt_Tiny", "ConvNeXt_Small", "ConvNeXt_Base", "ConvNeXt_Large"
)
convnext_tiny = builder("convnext_tiny", _convnext, ConvNeXt_Tiny_Weights, 96, 9, 0.1)
convnext_small = builder("convnext_small", _convnext, ConvNeXt_Small_Weights, 96, 27, 0.4)
convnext_base = builder("convnext_base", _convnext, ConvNeXt_Base_Weights, 128, 27, 0.5)
convnext_large = builder("convnext_large", _convnext, ConvNeXt_Large_Weights, 192, 27, 0.5)
