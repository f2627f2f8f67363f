"""MobileNet V3 (Howard et al., 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flambeau import Tensor, flatten, nn

from ..ops.misc import Conv2dNormActivation, SqueezeExcitation
from ._api import builder, weights_enums
from ._utils import _make_divisible, initialise

__all__ = [
    "MobileNetV3", "MobileNet_V3_Large_Weights", "MobileNet_V3_Small_Weights", "mobilenet_v3_large", "mobilenet_v3_small",
]  # fmt: skip

# input channels, kernel, expanded channels, output channels, squeeze-excitation, activation, stride
_LARGE = [
    (16, 3, 16, 16, False, "RE", 1), (16, 3, 64, 24, False, "RE", 2), (24, 3, 72, 24, False, "RE", 1),
    (24, 5, 72, 40, True, "RE", 2), (40, 5, 120, 40, True, "RE", 1), (40, 5, 120, 40, True, "RE", 1),
    (40, 3, 240, 80, False, "HS", 2), (80, 3, 200, 80, False, "HS", 1), (80, 3, 184, 80, False, "HS", 1),
    (80, 3, 184, 80, False, "HS", 1), (80, 3, 480, 112, True, "HS", 1), (112, 3, 672, 112, True, "HS", 1),
    (112, 5, 672, 160, True, "HS", 2), (160, 5, 960, 160, True, "HS", 1), (160, 5, 960, 160, True, "HS", 1),
]  # fmt: skip
_SMALL = [
    (16, 3, 16, 16, True, "RE", 2), (16, 3, 72, 24, False, "RE", 2), (24, 3, 88, 24, False, "RE", 1),
    (24, 5, 96, 40, True, "HS", 2), (40, 5, 240, 40, True, "HS", 1), (40, 5, 240, 40, True, "HS", 1),
    (40, 5, 120, 48, True, "HS", 1), (48, 5, 144, 48, True, "HS", 1),
    (48, 5, 288, 96, True, "HS", 2), (96, 5, 576, 96, True, "HS", 1), (96, 5, 576, 96, True, "HS", 1),
]  # fmt: skip


_SQUEEZE_EXCITE = partial(SqueezeExcitation, scale_activation=nn.Hardsigmoid)


class InvertedResidualConfig:
    """Configuration of one block."""

    def __init__(
        self,
        input_channels: int,
        kernel: int,
        expanded_channels: int,
        out_channels: int,
        use_se: bool,
        activation: str,
        stride: int,
        dilation: int,
        width_mult: float,
    ):
        self.input_channels = self.adjust_channels(input_channels, width_mult)
        self.kernel = kernel
        self.expanded_channels = self.adjust_channels(expanded_channels, width_mult)
        self.out_channels = self.adjust_channels(out_channels, width_mult)
        self.use_se = use_se
        self.use_hs = activation == "HS"
        self.stride = stride
        self.dilation = dilation

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        return _make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """Block that widens, convolves each channel, gates the channels, and narrows."""

    def __init__(
        self,
        cnf: InvertedResidualConfig,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = _SQUEEZE_EXCITE,
    ):
        super().__init__()
        if cnf.stride not in (1, 2):
            raise ValueError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        layer = partial(
            Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.Hardswish if cnf.use_hs else nn.ReLU
        )
        wide = cnf.expanded_channels
        layers: list[nn.Module] = []
        if wide != cnf.input_channels:
            layers.append(layer(cnf.input_channels, wide, kernel_size=1))
        stride = 1 if cnf.dilation > 1 else cnf.stride
        layers.append(layer(wide, wide, kernel_size=cnf.kernel, stride=stride, dilation=cnf.dilation, groups=wide))
        if cnf.use_se:
            layers.append(se_layer(wide, _make_divisible(wide // 4, 8)))
        layers.append(layer(wide, cnf.out_channels, kernel_size=1, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.out_channels = cnf.out_channels
        self._is_cn = cnf.stride > 1

    def forward(self, input: Tensor) -> Tensor:
        result = self.block(input)
        if self.use_res_connect:
            result += input
        return result


class MobileNetV3(nn.Module):
    """Inverted residual blocks with squeeze-excitation and hard-swish."""

    def __init__(
        self,
        inverted_residual_setting: Sequence[InvertedResidualConfig],
        last_channel: int,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
        **kwargs: Any,
    ):
        super().__init__()
        setting = inverted_residual_setting
        if not setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        if not (isinstance(setting, Sequence) and all(isinstance(s, InvertedResidualConfig) for s in setting)):
            raise TypeError("The inverted_residual_setting should be List[InvertedResidualConfig]")
        block = block or InvertedResidual
        norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.Hardswish)
        last = setting[-1].out_channels
        self.features = nn.Sequential(
            layer(3, setting[0].input_channels, kernel_size=3, stride=2),
            *(block(cnf, norm) for cnf in setting),
            layer(last, 6 * last, kernel_size=1),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * last, last_channel),
            nn.Hardswish(inplace=True),
            nn.Dropout(p=dropout, inplace=True),
            nn.Linear(last_channel, num_classes),
        )
        initialise(self, partial(nn.init.kaiming_normal_, mode="fan_out"), partial(nn.init.normal_, mean=0, std=0.01))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


def _mobilenet_v3(
    rows: list,
    last_channel: int,
    width_mult: float = 1.0,
    reduced_tail: bool = False,
    dilated: bool = False,
    model: Callable[..., MobileNetV3] = MobileNetV3,
    **kwargs: Any,
) -> MobileNetV3:
    """inverted residual blocks with squeeze-excitation and hard-swish; `reduced_tail` halves the last blocks, `dilated`
    replaces their stride (both for use as a backbone)."""
    setting = []
    tail = len(rows) - 3
    for i, (inputs, kernel, wide, out, se, activation, stride) in enumerate(rows):
        less = 2 if reduced_tail else 1
        if i > tail:
            inputs, wide = inputs // less, wide // less
        out = out // less if i >= tail else out
        dilation = 2 if dilated and i >= tail else 1
        setting.append(InvertedResidualConfig(inputs, kernel, wide, out, se, activation, stride, dilation, width_mult))
    last = InvertedResidualConfig.adjust_channels(last_channel // (2 if reduced_tail else 1), width_mult)
    return model(setting, last, **kwargs)


MobileNet_V3_Large_Weights, MobileNet_V3_Small_Weights = weights_enums("MobileNet_V3_Large", "MobileNet_V3_Small")
mobilenet_v3_large = builder("mobilenet_v3_large", _mobilenet_v3, MobileNet_V3_Large_Weights, _LARGE, 1280)
mobilenet_v3_small = builder("mobilenet_v3_small", _mobilenet_v3, MobileNet_V3_Small_Weights, _SMALL, 1024)
