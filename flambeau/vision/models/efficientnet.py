"""EfficientNet (Tan and Le, 2019) and EfficientNet V2 (Tan and Le, 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flambeau import Tensor, flatten, nn

from ..ops.misc import Conv2dNormActivation, SqueezeExcitation
from ..ops.stochastic_depth import StochasticDepth
from ._api import builder, weights_enums
from ._utils import _make_divisible, initialise

__all__ = [
    "EfficientNet", "EfficientNet_B0_Weights", "EfficientNet_B1_Weights", "EfficientNet_B2_Weights",
    "EfficientNet_B3_Weights", "EfficientNet_B4_Weights", "EfficientNet_B5_Weights", "EfficientNet_B6_Weights",
    "EfficientNet_B7_Weights", "EfficientNet_V2_L_Weights", "EfficientNet_V2_M_Weights", "EfficientNet_V2_S_Weights",
    "efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5",
    "efficientnet_b6", "efficientnet_b7", "efficientnet_v2_l", "efficientnet_v2_m", "efficientnet_v2_s",
]  # fmt: skip


@dataclass
class _MBConvConfig:
    """Configuration of a stage: `num_layers` blocks, the first with this stride."""

    expand_ratio: float
    kernel: int
    stride: int
    input_channels: int
    out_channels: int
    num_layers: int
    block: Callable[..., nn.Module] | None = None

    @staticmethod
    def adjust_channels(channels: int, width_mult: float, min_value: int | None = None) -> int:
        return _make_divisible(channels * width_mult, 8, min_value)


class MBConvConfig(_MBConvConfig):
    """A stage of MBConv blocks, scaled in width and depth."""

    def __init__(
        self,
        expand_ratio: float,
        kernel: int,
        stride: int,
        input_channels: int,
        out_channels: int,
        num_layers: int,
        width_mult: float = 1.0,
        depth_mult: float = 1.0,
        block: Callable[..., nn.Module] | None = None,
    ):
        super().__init__(
            expand_ratio,
            kernel,
            stride,
            self.adjust_channels(input_channels, width_mult),
            self.adjust_channels(out_channels, width_mult),
            self.adjust_depth(num_layers, depth_mult),
            block or MBConv,
        )

    @staticmethod
    def adjust_depth(num_layers: int, depth_mult: float) -> int:
        return math.ceil(num_layers * depth_mult)


@dataclass
class FusedMBConvConfig(_MBConvConfig):
    """A stage of fused blocks."""

    def __post_init__(self) -> None:
        self.block = self.block or FusedMBConv


class _Block(nn.Module):
    """Base of both kinds of block: the residual connection."""

    def __init__(self, cnf: _MBConvConfig, stochastic_depth_prob: float):
        super().__init__()
        if cnf.stride not in (1, 2):
            raise ValueError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.block = nn.Sequential()
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.out_channels = cnf.out_channels

    def forward(self, input: Tensor) -> Tensor:
        result = self.block(input)
        if self.use_res_connect:
            result = self.stochastic_depth(result)
            result += input
        return result


class MBConv(_Block):
    """Block that widens, convolves each channel, gates the channels, and narrows."""

    def __init__(
        self,
        cnf: MBConvConfig,
        stochastic_depth_prob: float,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = SqueezeExcitation,
    ):
        super().__init__(cnf, stochastic_depth_prob)
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        wide = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        if wide != cnf.input_channels:
            self.block.append(layer(cnf.input_channels, wide, kernel_size=1))
        self.block.append(layer(wide, wide, kernel_size=cnf.kernel, stride=cnf.stride, groups=wide))
        squeezed = max(1, cnf.input_channels // 4)
        self.block.append(se_layer(wide, squeezed, activation=partial(nn.SiLU, inplace=True)))
        self.block.append(layer(wide, cnf.out_channels, kernel_size=1, activation_layer=None))


class FusedMBConv(_Block):
    """Block that widens by a full convolution, then narrows."""

    def __init__(self, cnf: FusedMBConvConfig, stochastic_depth_prob: float, norm_layer: Callable[..., nn.Module]):
        super().__init__(cnf, stochastic_depth_prob)
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        wide = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        if wide != cnf.input_channels:
            self.block.append(layer(cnf.input_channels, wide, kernel_size=cnf.kernel, stride=cnf.stride))
            self.block.append(layer(wide, cnf.out_channels, kernel_size=1, activation_layer=None))
        else:
            self.block.append(layer(cnf.input_channels, cnf.out_channels, kernel_size=cnf.kernel, stride=cnf.stride))


class EfficientNet(nn.Module):
    """Stages of (fused) MBConv blocks with stochastic depth."""

    def __init__(
        self,
        inverted_residual_setting: Sequence[_MBConvConfig],
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_layer: Callable[..., nn.Module] | None = None,
        last_channel: int | None = None,
    ):
        super().__init__()
        setting = inverted_residual_setting
        if not setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        if not (isinstance(setting, Sequence) and all(isinstance(s, _MBConvConfig) for s in setting)):
            raise TypeError("The inverted_residual_setting should be List[MBConvConfig]")
        norm = norm_layer or nn.BatchNorm2d
        layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        features: list[nn.Module] = [layer(3, setting[0].input_channels, kernel_size=3, stride=2)]
        total, done = sum(cnf.num_layers for cnf in setting), 0
        for cnf in setting:
            stage = []
            for i in range(cnf.num_layers):
                row = _MBConvConfig(**vars(cnf))
                if i > 0:
                    row.input_channels, row.stride = row.out_channels, 1
                stage.append(_make_block(row, stochastic_depth_prob * float(done) / total, norm))
                done += 1
            features.append(nn.Sequential(*stage))
        last = setting[-1].out_channels
        self.features = nn.Sequential(*features, layer(last, last_channel or 4 * last, kernel_size=1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout, inplace=True), nn.Linear(last_channel or 4 * last, num_classes)
        )
        initialise(self, partial(nn.init.kaiming_normal_, mode="fan_out"), _uniform_by_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


def _make_block(cnf: _MBConvConfig, drop: float, norm: Callable[..., nn.Module]) -> nn.Module:
    assert cnf.block is not None
    return cnf.block(cnf, drop, norm)


def _uniform_by_outputs(weight: Tensor) -> None:
    bound = 1.0 / math.sqrt(weight.shape[0])
    nn.init.uniform_(weight, -bound, bound)


# expansion, kernel, stride, input channels, output channels, layers
_B0 = [
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1),
]  # fmt: skip
# V2: fused stages, then the others
_V2 = {
    "s": (
        [(1, 3, 1, 24, 24, 2), (4, 3, 2, 24, 48, 4), (4, 3, 2, 48, 64, 4)],
        [(4, 3, 2, 64, 128, 6), (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15)],
    ),
    "m": (
        [(1, 3, 1, 24, 24, 3), (4, 3, 2, 24, 48, 5), (4, 3, 2, 48, 80, 5)],
        [(4, 3, 2, 80, 160, 7), (6, 3, 1, 160, 176, 14), (6, 3, 2, 176, 304, 18), (6, 3, 1, 304, 512, 5)],
    ),
    "l": (
        [(1, 3, 1, 32, 32, 4), (4, 3, 2, 32, 64, 7), (4, 3, 2, 64, 96, 7)],
        [(4, 3, 2, 96, 192, 10), (6, 3, 1, 192, 224, 19), (6, 3, 2, 224, 384, 25), (6, 3, 1, 384, 640, 7)],
    ),
}


def _efficientnet(width_mult: float, depth_mult: float, drop: float, **kwargs: Any) -> EfficientNet:
    """MBConv blocks with stochastic depth, scaled in width and depth."""
    setting = [MBConvConfig(*row, width_mult, depth_mult) for row in _B0]
    return EfficientNet(setting, kwargs.pop("dropout", drop), **kwargs)


def _efficientnet_v2(size: str, drop: float, **kwargs: Any) -> EfficientNet:
    """fused MBConv blocks, then MBConv blocks, with stochastic depth."""
    fused, others = _V2[size]
    setting = [*(FusedMBConvConfig(*row) for row in fused), *(MBConvConfig(*row) for row in others)]
    return EfficientNet(setting, kwargs.pop("dropout", drop), **{"last_channel": 1280, **kwargs})


(
    EfficientNet_B0_Weights,
    EfficientNet_B1_Weights,
    EfficientNet_B2_Weights,
    EfficientNet_B3_Weights,
    EfficientNet_B4_Weights,
    EfficientNet_B5_Weights,
    EfficientNet_B6_Weights,
    EfficientNet_B7_Weights,
) = weights_enums(*(f"EfficientNet_B{i}" for i in range(8)))
EfficientNet_V2_S_Weights, EfficientNet_V2_M_Weights, EfficientNet_V2_L_Weights = weights_enums(
    "EfficientNet_V2_S", "EfficientNet_V2_M", "EfficientNet_V2_L"
)
_SLOW = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
_V2_NORM = partial(nn.BatchNorm2d, eps=1e-03)
efficientnet_b0 = builder("efficientnet_b0", _efficientnet, EfficientNet_B0_Weights, 1.0, 1.0, 0.2)
efficientnet_b1 = builder("efficientnet_b1", _efficientnet, EfficientNet_B1_Weights, 1.0, 1.1, 0.2)
efficientnet_b2 = builder("efficientnet_b2", _efficientnet, EfficientNet_B2_Weights, 1.1, 1.2, 0.3)
efficientnet_b3 = builder("efficientnet_b3", _efficientnet, EfficientNet_B3_Weights, 1.2, 1.4, 0.3)
efficientnet_b4 = builder("efficientnet_b4", _efficientnet, EfficientNet_B4_Weights, 1.4, 1.8, 0.4)
efficientnet_b5 = builder("efficientnet_b5", _efficientnet, EfficientNet_B5_Weights, 1.6, 2.2, 0.4, norm_layer=_SLOW)
efficientnet_b6 = builder("efficientnet_b6", _efficientnet, EfficientNet_B6_Weights, 1.8, 2.6, 0.5, norm_layer=_SLOW)
efficientnet_b7 = builder("efficientnet_b7", _efficientnet, EfficientNet_B7_Weights, 2.0, 3.1, 0.5, norm_layer=_SLOW)
efficientnet_v2_s = builder(
    "efficientnet_v2_s", _efficientnet_v2, EfficientNet_V2_S_Weights, "s", 0.2, norm_layer=_V2_NORM
)
efficientnet_v2_m = builder(
    "efficientnet_v2_m", _efficientnet_v2, EfficientNet_V2_M_Weights, "m", 0.3, norm_layer=_V2_NORM
)
efficientnet_v2_l = builder(
    "efficientnet_v2_l", _efficientnet_v2, EfficientNet_V2_L_Weights, "l", 0.4, norm_layer=_V2_NORM
)
