"""ShuffleNet V2 (Ma et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flambeau
from flambeau import Tensor, nn

from ._api import builder, weights_enums

__all__ = [
    "ShuffleNetV2", "ShuffleNet_V2_X0_5_Weights", "ShuffleNet_V2_X1_0_Weights", "ShuffleNet_V2_X1_5_Weights",
    "ShuffleNet_V2_X2_0_Weights", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0",
]  # fmt: skip


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Interleave the channels of `groups` groups."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def _pointwise(inputs: int, outputs: int) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel_size=1, stride=1, padding=0, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def _depthwise(width: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, groups=width, bias=False)
    return [conv, nn.BatchNorm2d(width)]


class InvertedResidual(nn.Module):
    """Block that passes half of the channels on and convolves the other half (both, at stride 2), then shuffles all of them."""

    def __init__(self, inp: int, oup: int, stride: int):
        super().__init__()
        if not 1 <= stride <= 3:
            raise ValueError("illegal stride value")
        self.stride = stride
        half = oup // 2
        if stride == 1 and inp != half << 1:
            raise ValueError(
                f"Invalid combination of stride {stride}, inp {inp} and oup {oup} values. If stride == 1 then inp should be "
                "equal to oup // 2 << 1."
            )
        self.branch1 = (
            nn.Sequential(*_depthwise(inp, stride), *_pointwise(inp, half)) if stride > 1 else nn.Sequential()
        )
        self.branch2 = nn.Sequential(
            *_pointwise(inp if stride > 1 else half, half), *_depthwise(half, stride), *_pointwise(half, half)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            kept, changed = x.chunk(2, dim=1)
            out = self._concatenate([kept, self.branch2(changed)])
        else:
            out = self._concatenate([self.branch1(x), self.branch2(x)])
        return channel_shuffle(out, 2)

    def _concatenate(self, branches: list[Tensor]) -> Tensor:
        return flambeau.cat(branches, dim=1)


class ShuffleNetV2(nn.Module):
    """Blocks that split, convolve and shuffle channels."""

    def __init__(
        self,
        stages_repeats: Sequence[int],
        stages_out_channels: Sequence[int],
        num_classes: int = 1000,
        inverted_residual: Callable[..., nn.Module] = InvertedResidual,
    ):
        super().__init__()
        if len(stages_repeats) != 3:
            raise ValueError("expected stages_repeats as list of 3 positive ints")
        if len(stages_out_channels) != 5:
            raise ValueError("expected stages_out_channels as list of 5 positive ints")
        first, *stages, last = self._stage_out_channels = list(stages_out_channels)
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU(inplace=True)
        )
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        width = first
        for i, (repeats, out) in enumerate(zip(stages_repeats, stages), 2):
            blocks = [inverted_residual(width, out, 2)]
            blocks += [inverted_residual(out, out, 1) for _ in range(repeats - 1)]
            self.add_module(f"stage{i}", nn.Sequential(*blocks))
            width = out
        self.conv5 = nn.Sequential(*_pointwise(width, last))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.conv1(x))
        x = self.conv5(self.stage4(self.stage3(self.stage2(x))))
        return self.fc(x.mean([2, 3]))


(ShuffleNet_V2_X0_5_Weights, ShuffleNet_V2_X1_0_Weights, ShuffleNet_V2_X1_5_Weights, ShuffleNet_V2_X2_0_Weights) = (
    weights_enums("ShuffleNet_V2_X0_5", "ShuffleNet_V2_X1_0", "ShuffleNet_V2_X1_5", "ShuffleNet_V2_X2_0")
)

_REPEATS = (4, 8, 4)
shufflenet_v2_x0_5 = builder(
    "shufflenet_v2_x0_5", ShuffleNetV2, ShuffleNet_V2_X0_5_Weights, _REPEATS, (24, 48, 96, 192, 1024)
)
shufflenet_v2_x1_0 = builder(
    "shufflenet_v2_x1_0", ShuffleNetV2, ShuffleNet_V2_X1_0_Weights, _REPEATS, (24, 116, 232, 464, 1024)
)
shufflenet_v2_x1_5 = builder(
    "shufflenet_v2_x1_5", ShuffleNetV2, ShuffleNet_V2_X1_5_Weights, _REPEATS, (24, 176, 352, 704, 1024)
)
shufflenet_v2_x2_0 = builder(
    "shufflenet_v2_x2_0", ShuffleNetV2, ShuffleNet_V2_X2_0_Weights, _REPEATS, (24, 244, 488, 976, 2048)
)
