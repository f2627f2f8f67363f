"""MNASNet (Tan et al., 2019)."""

from __future__ import annotations

from functools import partial

from flambeau import Tensor, nn

from ._api import builder, weights_enums
from ._utils import _make_divisible, initialise, kaiming_fan_out

__all__ = [
    "MNASNet", "MNASNet0_5_Weights", "MNASNet0_75_Weights", "MNASNet1_0_Weights", "MNASNet1_3_Weights", "mnasnet0_5",
    "mnasnet0_75", "mnasnet1_0", "mnasnet1_3",
]  # fmt: skip

_MOMENTUM = 1 - 0.9997  # of running statistics: the paper's 0.9997 counts the other way
# kernel, stride, expansion, repeats of each stack
_STACKS = [(3, 2, 3, 3), (5, 2, 3, 3), (5, 2, 6, 3), (3, 1, 6, 2), (5, 2, 6, 4), (3, 1, 6, 1)]


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs, momentum=_MOMENTUM)]


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        if kernel not in (3, 5):
            raise ValueError(f"kernel_size should be 3 or 5 instead of {kernel}")
        wide = inputs * expansion
        self.apply_residual = inputs == outputs and stride == 1
        self.layers = nn.Sequential(
            *_conv(inputs, wide, 1),
            nn.ReLU(inplace=True),
            *_conv(wide, wide, kernel, stride, groups=wide),
            nn.ReLU(inplace=True),
            *_conv(wide, outputs, 1),
        )

    def forward(self, input: Tensor) -> Tensor:
        return self.layers(input) + input if self.apply_residual else self.layers(input)


class MNASNet(nn.Module):
    """Inverted residual blocks found by architecture search; `alpha` scales the width."""

    _version = 2

    def __init__(self, alpha: float, num_classes: int = 1000, dropout: float = 0.2):
        super().__init__()
        if alpha <= 0.0:
            raise ValueError(f"alpha should be greater than 0.0 instead of {alpha}")
        self.alpha, self.num_classes = alpha, num_classes
        widths = [_make_divisible(width * alpha, 8) for width in (32, 16, 24, 40, 80, 96, 192, 320)]
        layers: list[nn.Module] = [
            *_conv(3, widths[0], 3, stride=2),
            nn.ReLU(inplace=True),
            *_conv(widths[0], widths[0], 3, groups=widths[0]),
            nn.ReLU(inplace=True),
            *_conv(widths[0], widths[1], 1),
        ]
        for inputs, outputs, (kernel, stride, expansion, repeats) in zip(widths[1:], widths[2:], _STACKS):
            blocks = [_InvertedResidual(inputs, outputs, kernel, stride, expansion)]
            blocks += [_InvertedResidual(outputs, outputs, kernel, 1, expansion) for _ in range(repeats - 1)]
            layers.append(nn.Sequential(*blocks))
        self.layers = nn.Sequential(*layers, *_conv(widths[-1], 1280, 1), nn.ReLU(inplace=True))
        self.classifier = nn.Sequential(nn.Dropout(p=dropout, inplace=True), nn.Linear(1280, num_classes))
        initialise(self, kaiming_fan_out, partial(nn.init.kaiming_uniform_, mode="fan_out", nonlinearity="sigmoid"))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.layers(x).mean([2, 3]))


MNASNet0_5_Weights, MNASNet0_75_Weights, MNASNet1_0_Weights, MNASNet1_3_Weights = weights_enums(
    "MNASNet0_5", "MNASNet0_75", "MNASNet1_0", "MNASNet1_3"
)
mnasnet0_5 = builder("mnasnet0_5", MNASNet, MNASNet0_5_Weights, 0.5)
mnasnet0_75 = builder("mnasnet0_75", MNASNet, MNASNet0_75_Weights, 0.75)
mnasnet1_0 = builder("mnasnet1_0", MNASNet, MNASNet1_0_Weights, 1.0)
mnasnet1_3 = builder("mnasnet1_3", MNASNet, MNASNet1_3_Weights, 1.3)
