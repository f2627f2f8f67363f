"""ResNets over space and time (Tran et al., 2018): full, separated (2+1) and mixed convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flambeau import Tensor, flatten, nn
from flambeau.nn.modules import Sequential

from .._api import builder, weights_enums
from .._utils import initialise, kaiming_fan_out

__all__ = ["MC3_18_Weights", "R2Plus1D_18_Weights", "R3D_18_Weights", "VideoResNet", "mc3_18", "r2plus1d_18", "r3d_18"]


class Conv3DSimple(nn.Conv3d):
    """3x3x3 convolution."""

    def __init__(
        self, in_planes: int, out_planes: int, midplanes: int | None = None, stride: int = 1, padding: int = 1
    ):
        super().__init__(in_planes, out_planes, (3, 3, 3), stride=stride, padding=padding, bias=False)

    @staticmethod
    def get_downsample_stride(stride: int) -> tuple[int, int, int]:
        """Return the stride of the shortcut over (T, H, W)."""
        return stride, stride, stride


class Conv3DNoTemporal(nn.Conv3d):
    """1x3x3 convolution: each frame separately."""

    def __init__(
        self, in_planes: int, out_planes: int, midplanes: int | None = None, stride: int = 1, padding: int = 1
    ):
        super().__init__(
            in_planes, out_planes, (1, 3, 3), stride=(1, stride, stride), padding=(0, padding, padding), bias=False
        )

    @staticmethod
    def get_downsample_stride(stride: int) -> tuple[int, int, int]:
        """Return the stride of the shortcut over (T, H, W)."""
        return 1, stride, stride


class Conv2Plus1D(nn.Sequential):
    """A convolution over space, then one over time, with `midplanes` channels between them."""

    def __init__(self, in_planes: int, out_planes: int, midplanes: int, stride: int = 1, padding: int = 1):
        space: dict[str, Any] = {"stride": (1, stride, stride), "padding": (0, padding, padding)}
        super().__init__(
            nn.Conv3d(in_planes, midplanes, (1, 3, 3), bias=False, **space),
            nn.BatchNorm3d(midplanes),
            nn.ReLU(inplace=True),
            nn.Conv3d(midplanes, out_planes, (3, 1, 1), stride=(stride, 1, 1), padding=(padding, 0, 0), bias=False),
        )

    @staticmethod
    def get_downsample_stride(stride: int) -> tuple[int, int, int]:
        """Return the stride of the shortcut over (T, H, W)."""
        return stride, stride, stride


def _midplanes(inplanes: int, planes: int) -> int:
    """Return the channels between the two convolutions of (2+1) that give it as many weights as a full 3x3x3 convolution."""
    return (inplanes * planes * 27) // (inplanes * 9 + 3 * planes)


class BasicBlock(nn.Module):
    """Two convolutions with a shortcut."""

    expansion: int = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        conv_builder: Callable[..., nn.Module],
        stride: int = 1,
        downsample: nn.Module | None = None,
    ):
        super().__init__()
        mid = _midplanes(inplanes, planes)
        self.conv1 = nn.Sequential(
            conv_builder(inplanes, planes, mid, stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv2 = nn.Sequential(conv_builder(planes, planes, mid), nn.BatchNorm3d(planes))
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.conv1(x))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """1x1x1, wide and 1x1x1 convolutions with a shortcut."""

    expansion: int = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        conv_builder: Callable[..., nn.Module],
        stride: int = 1,
        downsample: nn.Module | None = None,
    ):
        super().__init__()
        mid, out = _midplanes(inplanes, planes), planes * self.expansion
        self.conv1 = nn.Sequential(
            nn.Conv3d(inplanes, planes, kernel_size=1, bias=False), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv2 = nn.Sequential(
            conv_builder(planes, planes, mid, stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv3 = nn.Sequential(nn.Conv3d(planes, out, kernel_size=1, bias=False), nn.BatchNorm3d(out))
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv3(self.conv2(self.conv1(x)))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class BasicStem(nn.Sequential):
    """3x7x7 convolution, normalisation, ReLU."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv3d(3, 64, kernel_size=(3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False),
            nn.BatchNorm3d(64),
            nn.ReLU(inplace=True),
        )


class R2Plus1dStem(nn.Sequential):
    """7x7 convolution over space and a convolution over time, each with normalisation and ReLU."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv3d(3, 45, kernel_size=(1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False),
            nn.BatchNorm3d(45),
            nn.ReLU(inplace=True),
            nn.Conv3d(45, 64, kernel_size=(3, 1, 1), stride=(1, 1, 1), padding=(1, 0, 0), bias=False),
            nn.BatchNorm3d(64),
            nn.ReLU(inplace=True),
        )


class VideoResNet(nn.Module):
    """Residual network over videos (B, 3, T, H, W): a stem, four stages of residual blocks, a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        conv_makers: Sequence[Any],
        layers: Sequence[int],
        stem: Callable[..., nn.Module],
        num_classes: int = 400,
        zero_init_residual: bool = False,
    ):
        super().__init__()
        self.inplanes = 64
        self.stem = stem()
        self.layer1 = self._make_layer(block, conv_makers[0], 64, layers[0], stride=1)
        self.layer2 = self._make_layer(block, conv_makers[1], 128, layers[1], stride=2)
        self.layer3 = self._make_layer(block, conv_makers[2], 256, layers[2], stride=2)
        self.layer4 = self._make_layer(block, conv_makers[3], 512, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        initialise(self, kaiming_fan_out, partial(nn.init.normal_, mean=0, std=0.01))
        if zero_init_residual:  # each bottleneck starts as the identity
            for module in self.modules():
                if isinstance(module, Bottleneck):
                    nn.init.constant_(module.conv3[1].weight, 0)

    def _make_layer(
        self, block: type[BasicBlock | Bottleneck], conv_builder: Any, planes: int, blocks: int, stride: int = 1
    ) -> Sequential:
        downsample = None
        out = planes * block.expansion
        if stride != 1 or self.inplanes != out:
            steps = conv_builder.get_downsample_stride(stride)
            downsample = nn.Sequential(
                nn.Conv3d(self.inplanes, out, kernel_size=1, stride=steps, bias=False), nn.BatchNorm3d(out)
            )
        layers = [block(self.inplanes, planes, conv_builder, stride, downsample)]
        self.inplanes = out
        layers += [block(out, planes, conv_builder) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(flatten(self.avgpool(x), 1))


R3D_18_Weights, MC3_18_Weights, R2Plus1D_18_Weights = weights_enums("R3D_18", "MC3_18", "R2Plus1D_18")
_DEPTHS = (2, 2, 2, 2)
r3d_18 = builder("r3d_18", VideoResNet, R3D_18_Weights, BasicBlock, [Conv3DSimple] * 4, _DEPTHS, BasicStem)
mc3_18 = builder(
    "mc3_18", VideoResNet, MC3_18_Weights, BasicBlock, [Conv3DSimple, *[Conv3DNoTemporal] * 3], _DEPTHS, BasicStem
)
r2plus1d_18 = builder(
    "r2plus1d_18", VideoResNet, R2Plus1D_18_Weights, BasicBlock, [Conv2Plus1D] * 4, _DEPTHS, R2Plus1dStem
)
