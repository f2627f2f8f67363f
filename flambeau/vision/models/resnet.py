"""ResNet (He et al., 2016), ResNeXt (Xie et al., 2017) and Wide ResNet (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau import Tensor, flatten, nn
from flambeau.nn.modules import Conv2d, Sequential

from ._api import builder, weights_enums
from ._utils import initialise, kaiming_fan_out

__all__ = [
    "ResNeXt50_32X4D_Weights", "ResNeXt101_32X8D_Weights", "ResNeXt101_64X4D_Weights", "ResNet", "ResNet18_Weights",
    "ResNet34_Weights", "ResNet50_Weights", "ResNet101_Weights", "ResNet152_Weights", "Wide_ResNet50_2_Weights",
    "Wide_ResNet101_2_Weights", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
    "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
]  # fmt: skip


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> Conv2d:
    """3x3 convolution that keeps the size at stride 1."""
    return nn.Conv2d(
        in_planes, out_planes, 3, stride=stride, padding=dilation, groups=groups, bias=False, dilation=dilation
    )


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> Conv2d:
    """Make a 1x1 convolution."""
    return nn.Conv2d(in_planes, out_planes, 1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion: int = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
    ):
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the stride is at the 3x3 ("ResNet v1.5")."""

    expansion: int = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
    ):
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    """Residual network: a stem, four stages of residual blocks, a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ):
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation = 64, 1
        dilated = (False,) * 3 if replace_stride_with_dilation is None else replace_stride_with_dilation
        if len(dilated) != 3:
            raise ValueError(
                f"replace_stride_with_dilation should be None or a 3-element tuple, got {replace_stride_with_dilation}"
            )
        self.groups, self.base_width = groups, width_per_group
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], stride=2, dilate=dilated[0])
        self.layer3 = self._make_layer(block, 256, layers[2], stride=2, dilate=dilated[1])
        self.layer4 = self._make_layer(block, 512, layers[3], stride=2, dilate=dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        initialise(self, kaiming_fan_out)
        if zero_init_residual:  # each block starts as the identity
            for module in self.modules():
                last = module.bn3 if isinstance(module, Bottleneck) else getattr(module, "bn2", None)
                if isinstance(module, (BasicBlock, Bottleneck)) and last is not None and last.weight is not None:
                    nn.init.constant_(last.weight, 0)

    def _make_layer(
        self, block: type[BasicBlock | Bottleneck], planes: int, blocks: int, stride: int = 1, dilate: bool = False
    ) -> Sequential:
        first_dilation = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        downsample = None
        out_planes = planes * block.expansion
        if stride != 1 or self.inplanes != out_planes:
            downsample = nn.Sequential(conv1x1(self.inplanes, out_planes, stride), self._norm_layer(out_planes))
        shape = (self.groups, self.base_width)
        layers = [block(self.inplanes, planes, stride, downsample, *shape, first_dilation, self._norm_layer)]
        self.inplanes = out_planes
        for _ in range(1, blocks):
            layers.append(block(out_planes, planes, 1, None, *shape, self.dilation, self._norm_layer))
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(flatten(self.avgpool(x), 1))


ResNet18_Weights, ResNet34_Weights, ResNet50_Weights, ResNet101_Weights, ResNet152_Weights = weights_enums(
    "ResNet18", "ResNet34", "ResNet50", "ResNet101", "ResNet152"
)
ResNeXt50_32X4D_Weights, ResNeXt101_32X8D_Weights, ResNeXt101_64X4D_Weights = weights_enums(
    "ResNeXt50_32X4D", "ResNeXt101_32X8D", "ResNeXt101_64X4D"
)
Wide_ResNet50_2_Weights, Wide_ResNet101_2_Weights = weights_enums("Wide_ResNet50_2", "Wide_ResNet101_2")

_D50, _D101 = (3, 4, 6, 3), (3, 4, 23, 3)


def _widths(groups: int, width: int) -> dict[str, int]:
    return {"groups": groups, "width_per_group": width} if groups > 1 else {"width_per_group": width}


resnet18 = builder("resnet18", ResNet, ResNet18_Weights, BasicBlock, (2, 2, 2, 2))
resnet34 = builder("resnet34", ResNet, ResNet34_Weights, BasicBlock, _D50)
resnet50 = builder("resnet50", ResNet, ResNet50_Weights, Bottleneck, _D50)
resnet101 = builder("resnet101", ResNet, ResNet101_Weights, Bottleneck, _D101)
resnet152 = builder("resnet152", ResNet, ResNet152_Weights, Bottleneck, (3, 8, 36, 3))
resnext50_32x4d = builder("resnext50_32x4d", ResNet, ResNeXt50_32X4D_Weights, Bottleneck, _D50, forced=_widths(32, 4))
resnext101_32x8d = builder(
    "resnext101_32x8d", ResNet, ResNeXt101_32X8D_Weights, Bottleneck, _D101, forced=_widths(32, 8)
)
resnext101_64x4d = builder(
    "resnext101_64x4d", ResNet, ResNeXt101_64X4D_Weights, Bottleneck, _D101, forced=_widths(64, 4)
)
wide_resnet50_2 = builder("wide_resnet50_2", ResNet, Wide_ResNet50_2_Weights, Bottleneck, _D50, forced=_widths(1, 128))
wide_resnet101_2 = builder(
    "wide_resnet101_2", ResNet, Wide_ResNet101_2_Weights, Bottleneck, _D101, forced=_widths(1, 128)
)
