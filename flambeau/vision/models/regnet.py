"""RegNet (Radosavovic et al., 2020)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from flambeau import Tensor, nn
from flambeau.nn.modules import Sequential

from ..ops.misc import Conv2dNormActivation, SqueezeExcitation
from ._api import builder, weights_enums
from ._utils import _make_divisible

__all__ = [
    "RegNet", "RegNet_X_1_6GF_Weights", "RegNet_X_3_2GF_Weights", "RegNet_X_8GF_Weights", "RegNet_X_16GF_Weights",
    "RegNet_X_32GF_Weights", "RegNet_X_400MF_Weights", "RegNet_X_800MF_Weights", "RegNet_Y_1_6GF_Weights",
    "RegNet_Y_3_2GF_Weights", "RegNet_Y_8GF_Weights", "RegNet_Y_16GF_Weights", "RegNet_Y_32GF_Weights",
    "RegNet_Y_128GF_Weights", "RegNet_Y_400MF_Weights", "RegNet_Y_800MF_Weights", "regnet_x_1_6gf", "regnet_x_3_2gf",
    "regnet_x_8gf", "regnet_x_16gf", "regnet_x_32gf", "regnet_x_400mf", "regnet_x_800mf", "regnet_y_1_6gf",
    "regnet_y_3_2gf", "regnet_y_8gf", "regnet_y_16gf", "regnet_y_32gf", "regnet_y_128gf", "regnet_y_400mf",
    "regnet_y_800mf",
]  # fmt: skip

Layer = Callable[..., nn.Module]


class SimpleStemIN(Conv2dNormActivation):
    """The stem: a 3x3 convolution of stride 2, batch norm and activation."""

    def __init__(self, width_in: int, width_out: int, norm_layer: Layer, activation_layer: Layer):
        super().__init__(
            width_in, width_out, kernel_size=3, stride=2, norm_layer=norm_layer, activation_layer=activation_layer
        )


class BottleneckTransform(Sequential):
    """1x1, grouped 3x3 (then a channel gate) and 1x1 convolutions."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        norm_layer: Layer,
        activation_layer: Layer,
        group_width: int,
        bottleneck_multiplier: float,
        se_ratio: float | None,
    ):
        width = int(round(width_out * bottleneck_multiplier))
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation_layer)
        layers: dict[str, nn.Module] = OrderedDict()
        layers["a"] = layer(width_in, width, kernel_size=1)
        layers["b"] = layer(width, width, kernel_size=3, stride=stride, groups=width // group_width)
        if se_ratio:
            layers["se"] = SqueezeExcitation(width, int(round(se_ratio * width_in)), activation=activation_layer)
        layers["c"] = layer(width, width_out, kernel_size=1, activation_layer=None)
        super().__init__(layers)


class ResBottleneckBlock(nn.Module):
    """Residual block: a bottleneck with a shortcut."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        norm_layer: Layer,
        activation_layer: Layer,
        group_width: int = 1,
        bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
    ):
        super().__init__()
        self.proj = None
        if width_in != width_out or stride != 1:
            self.proj = Conv2dNormActivation(
                width_in, width_out, kernel_size=1, stride=stride, norm_layer=norm_layer, activation_layer=None
            )
        self.f = BottleneckTransform(
            width_in, width_out, stride, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio
        )
        self.activation = activation_layer(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation((x if self.proj is None else self.proj(x)) + self.f(x))


class AnyStage(Sequential):
    """Blocks of one width; the first halves the size."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        depth: int,
        block_constructor: Layer,
        norm_layer: Layer,
        activation_layer: Layer,
        group_width: int,
        bottleneck_multiplier: float,
        se_ratio: float | None = None,
        stage_index: int = 0,
    ):
        super().__init__()
        for i in range(depth):
            block = block_constructor(
                width_in if i == 0 else width_out,
                width_out,
                stride if i == 0 else 1,
                norm_layer,
                activation_layer,
                group_width,
                bottleneck_multiplier,
                se_ratio,
            )
            self.add_module(f"block{stage_index}-{i}", block)


class BlockParams:
    """Depths, widths and group widths of the stages."""

    def __init__(
        self,
        depths: Sequence[int],
        widths: Sequence[int],
        group_widths: Sequence[int],
        bottleneck_multipliers: Sequence[float],
        strides: Sequence[int],
        se_ratio: float | None = None,
    ):
        self.depths, self.widths, self.group_widths = list(depths), list(widths), list(group_widths)
        self.bottleneck_multipliers, self.strides = list(bottleneck_multipliers), list(strides)
        self.se_ratio = se_ratio

    @classmethod
    def from_init_params(
        cls,
        depth: int,
        w_0: int,
        w_a: float,
        w_m: float,
        group_width: int,
        bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
        **kwargs: Any,
    ) -> BlockParams:
        """Make parameters by a linear rule: block j has width w_0 + w_a j, rounded to w_0 w_m^k and multiples of 8; equal widths: a
        stage."""
        if w_a < 0 or w_0 <= 0 or w_m <= 1 or w_0 % 8 != 0:
            raise ValueError("Invalid RegNet settings")
        wanted = np.arange(depth) * w_a + w_0
        steps = np.round(np.log(wanted / w_0) / math.log(w_m))
        rounded = [int(w) for w in np.round(w_0 * np.power(w_m, steps) / 8) * 8]
        stages = [(width, len(list(run))) for width, run in groupby(rounded)]
        widths, groups = [], []
        for width, _ in stages:  # a bottleneck is a whole number of groups
            inner = int(width * bottleneck_multiplier)
            group = min(group_width, inner)
            widths.append(int(_make_divisible(inner, group) / bottleneck_multiplier))
            groups.append(group)
        count = len(stages)
        return cls([n for _, n in stages], widths, groups, [bottleneck_multiplier] * count, [2] * count, se_ratio)

    def _get_expanded_params(self) -> Iterator[tuple[int, int, int, int, float]]:
        return zip(self.widths, self.strides, self.depths, self.group_widths, self.bottleneck_multipliers)


class RegNet(nn.Module):
    """Bottleneck blocks whose widths follow one quantised line."""

    def __init__(
        self,
        block_params: BlockParams,
        num_classes: int = 1000,
        stem_width: int = 32,
        stem_type: Layer | None = None,
        block_type: Layer | None = None,
        norm_layer: Layer | None = None,
        activation: Layer | None = None,
    ):
        super().__init__()
        norm, act = norm_layer or nn.BatchNorm2d, activation or nn.ReLU
        self.stem = (stem_type or SimpleStemIN)(3, stem_width, norm, act)
        stages: dict[str, nn.Module] = OrderedDict()
        width_in = stem_width
        for i, (width, stride, depth, group, multiplier) in enumerate(block_params._get_expanded_params(), 1):
            stages[f"block{i}"] = AnyStage(
                width_in,
                width,
                stride,
                depth,
                block_type or ResBottleneckBlock,
                norm,
                act,
                group,
                multiplier,
                block_params.se_ratio,
                stage_index=i,
            )
            width_in = width
        self.trunk_output = nn.Sequential(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width_in, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                _normal_by_outputs(module.weight)
        nn.init.normal_(self.fc.weight, mean=0.0, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.trunk_output(self.stem(x))).flatten(start_dim=1))


def _normal_by_outputs(weight: Tensor) -> None:
    """Initialise by Kaiming's rule with the fan-out of all outputs, not of those of one group."""
    outputs, _, height, width = weight.shape
    nn.init.normal_(weight, mean=0.0, std=math.sqrt(2.0 / (height * width * outputs)))


# depth, w_0, w_a, w_m, group width
_X = {
    "400MF": (22, 24, 24.48, 2.54, 16), "800MF": (16, 56, 35.73, 2.28, 16), "1_6GF": (18, 80, 34.01, 2.25, 24),
    "3_2GF": (25, 88, 26.31, 2.25, 48), "8GF": (23, 80, 49.56, 2.88, 120), "16GF": (22, 216, 55.59, 2.1, 128),
    "32GF": (23, 320, 69.86, 2.0, 168),
}  # fmt: skip
_Y = {
    "400MF": (16, 48, 27.89, 2.09, 8), "800MF": (14, 56, 38.84, 2.4, 16), "1_6GF": (27, 48, 20.71, 2.65, 24),
    "3_2GF": (21, 80, 42.63, 2.66, 24), "8GF": (17, 192, 76.82, 2.19, 56), "16GF": (18, 200, 106.23, 2.48, 112),
    "32GF": (20, 232, 115.89, 2.53, 232), "128GF": (27, 456, 160.83, 2.52, 264),
}  # fmt: skip


def _regnet(row: tuple[int, int, float, float, int], se_ratio: float | None, **kwargs: Any) -> RegNet:
    """bottleneck blocks whose widths follow one quantised line."""
    norm = kwargs.pop("norm_layer", partial(nn.BatchNorm2d, eps=1e-05, momentum=0.1))
    return RegNet(BlockParams.from_init_params(*row, se_ratio=se_ratio), norm_layer=norm, **kwargs)


(
    RegNet_X_400MF_Weights,
    RegNet_X_800MF_Weights,
    RegNet_X_1_6GF_Weights,
    RegNet_X_3_2GF_Weights,
    RegNet_X_8GF_Weights,
    RegNet_X_16GF_Weights,
    RegNet_X_32GF_Weights,
) = weights_enums(*(f"RegNet_X_{size}" for size in _X))
(
    RegNet_Y_400MF_Weights,
    RegNet_Y_800MF_Weights,
    RegNet_Y_1_6GF_Weights,
    RegNet_Y_3_2GF_Weights,
    RegNet_Y_8GF_Weights,
    RegNet_Y_16GF_Weights,
    RegNet_Y_32GF_Weights,
    RegNet_Y_128GF_Weights,
) = weights_enums(*(f"RegNet_Y_{size}" for size in _Y))

regnet_x_400mf = builder("regnet_x_400mf", _regnet, RegNet_X_400MF_Weights, _X["400MF"], None)
regnet_x_800mf = builder("regnet_x_800mf", _regnet, RegNet_X_800MF_Weights, _X["800MF"], None)
regnet_x_1_6gf = builder("regnet_x_1_6gf", _regnet, RegNet_X_1_6GF_Weights, _X["1_6GF"], None)
regnet_x_3_2gf = builder("regnet_x_3_2gf", _regnet, RegNet_X_3_2GF_Weights, _X["3_2GF"], None)
regnet_x_8gf = builder("regnet_x_8gf", _regnet, RegNet_X_8GF_Weights, _X["8GF"], None)
regnet_x_16gf = builder("regnet_x_16gf", _regnet, RegNet_X_16GF_Weights, _X["16GF"], None)
regnet_x_32gf = builder("regnet_x_32gf", _regnet, RegNet_X_32GF_Weights, _X["32GF"], None)
regnet_y_400mf = builder("regnet_y_400mf", _regnet, RegNet_Y_400MF_Weights, _Y["400MF"], 0.25)
regnet_y_800mf = builder("regnet_y_800mf", _regnet, RegNet_Y_800MF_Weights, _Y["800MF"], 0.25)
regnet_y_1_6gf = builder("regnet_y_1_6gf", _regnet, RegNet_Y_1_6GF_Weights, _Y["1_6GF"], 0.25)
regnet_y_3_2gf = builder("regnet_y_3_2gf", _regnet, RegNet_Y_3_2GF_Weights, _Y["3_2GF"], 0.25)
regnet_y_8gf = builder("regnet_y_8gf", _regnet, RegNet_Y_8GF_Weights, _Y["8GF"], 0.25)
regnet_y_16gf = builder("regnet_y_16gf", _regnet, RegNet_Y_16GF_Weights, _Y["16GF"], 0.25)
regnet_y_32gf = builder("regnet_y_32gf", _regnet, RegNet_Y_32GF_Weights, _Y["32GF"], 0.25)
regnet_y_128gf = builder("regnet_y_128gf", _regnet, RegNet_Y_128GF_Weights, _Y["128GF"], 0.25)
