"""MobileNet V2 (Sandler et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from flambeau import Tensor, flatten, nn
from flambeau.nn import functional as F

from ..ops.misc import Conv2dNormActivation
from ._api import builder, weights_enums
from ._utils import _make_divisible, initialise

__all__ = ["MobileNetV2", "MobileNet_V2_Weights", "mobilenet_v2"]

# expansion, channels, blocks, stride of the first block
_SETTING = [
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
]  # fmt: skip


class InvertedResidual(nn.Module):
    """Block that widens by 1x1, convolves each channel by 3x3, and narrows by 1x1, with a shortcut between the narrow ends."""

    def __init__(
        self, inp: int, oup: int, stride: int, expand_ratio: int, norm_layer: Callable[..., nn.Module] | None = None
    ):
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        norm = norm_layer or nn.BatchNorm2d
        block = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.ReLU6)
        hidden = int(round(inp * expand_ratio))
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(block(inp, hidden, kernel_size=1))
        layers.append(block(hidden, hidden, stride=stride, groups=hidden))
        self.stride = stride
        self.use_res_connect = stride == 1 and inp == oup
        self.conv = nn.Sequential(*layers, nn.Conv2d(hidden, oup, 1, 1, 0, bias=False), norm(oup))
        self.out_channels = oup
        self._is_cn = stride > 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residual blocks with ReLU6."""

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: Sequence[Sequence[int]] | None = None,
        round_nearest: int = 8,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
    ):
        super().__init__()
        block = block or InvertedResidual
        norm = norm_layer or nn.BatchNorm2d
        setting = _SETTING if inverted_residual_setting is None else inverted_residual_setting
        if len(setting) == 0 or len(setting[0]) != 4:
            raise ValueError(
                f"inverted_residual_setting should be non-empty or a 4-element list, got {inverted_residual_setting}"
            )
        width = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.ReLU6)
        features: list[nn.Module] = [layer(3, width, stride=2)]
        for expansion, channels, count, stride in setting:
            out = _make_divisible(channels * width_mult, round_nearest)
            for i in range(count):
                step = stride if i == 0 else 1
                features.append(block(width, out, step, expand_ratio=expansion, norm_layer=norm))
                width = out
        features.append(layer(width, self.last_channel, kernel_size=1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes))
        initialise(self, partial(nn.init.kaiming_normal_, mode="fan_out"), partial(nn.init.normal_, mean=0, std=0.01))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(F.adaptive_avg_pool2d(self.features(x), (1, 1)), 1))


(MobileNet_V2_Weights,) = weights_enums("MobileNet_V2")
mobilenet_v2 = builder("mobilenet_v2", MobileNetV2, MobileNet_V2_Weights)
