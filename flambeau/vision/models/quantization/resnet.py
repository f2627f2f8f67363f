"""ResNet and ResNeXt that can be quantized."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor, nn

from ..resnet import (
    _D50,
    _D101,
    BasicBlock,
    Bottleneck,
    ResNet,
    ResNet18_Weights,
    ResNet50_Weights,
    ResNeXt101_32X8D_Weights,
    ResNeXt101_64X4D_Weights,
    _widths,
)
from .utils import Quantizable, builder, fuse, quantized_weights

__all__ = [
    "QuantizableResNet", "ResNeXt101_32X8D_QuantizedWeights", "ResNeXt101_64X4D_QuantizedWeights", "ResNet18_QuantizedWeights",
    "ResNet50_QuantizedWeights", "resnet18", "resnet50", "resnext101_32x8d", "resnext101_64x4d",
]  # fmt: skip


class QuantizableBasicBlock(BasicBlock):
    """Residual block whose sum and last relu are one FloatFunctional."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.add_relu = nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.add_relu.add_relu(out, x if self.downsample is None else self.downsample(x))

    def fuse_model(self, is_qat: bool | None = None) -> None:
        fuse(self, [["conv1", "bn1", "relu"], ["conv2", "bn2"]], is_qat)
        if self.downsample:
            fuse(self.downsample, ["0", "1"], is_qat)


class QuantizableBottleneck(Bottleneck):
    """Bottleneck block for quantization: its sum and last relu are one module, and each convolution has its own relu."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.skip_add_relu = nn.quantized.FloatFunctional()
        self.relu1, self.relu2 = nn.ReLU(inplace=False), nn.ReLU(inplace=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu1(self.bn1(self.conv1(x)))
        out = self.relu2(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.skip_add_relu.add_relu(out, x if self.downsample is None else self.downsample(x))

    def fuse_model(self, is_qat: bool | None = None) -> None:
        fuse(self, [["conv1", "bn1", "relu1"], ["conv2", "bn2", "relu2"], ["conv3", "bn3"]], is_qat)
        if self.downsample:
            fuse(self.downsample, ["0", "1"], is_qat)


class QuantizableResNet(Quantizable, ResNet):
    """A residual network that can be quantized."""

    def fuse_model(self, is_qat: bool | None = None) -> None:
        """Fuse convolutions, norms and relus, in place."""
        fuse(self, ["conv1", "bn1", "relu"], is_qat)
        for module in self.modules():
            if type(module) in (QuantizableBottleneck, QuantizableBasicBlock):
                module.fuse_model(is_qat)


(
    ResNet18_QuantizedWeights,
    ResNet50_QuantizedWeights,
    ResNeXt101_32X8D_QuantizedWeights,
    ResNeXt101_64X4D_QuantizedWeights,
) = quantized_weights("ResNet18", "ResNet50", "ResNeXt101_32X8D", "ResNeXt101_64X4D")

_model, _block = QuantizableResNet, QuantizableBottleneck
resnet18 = builder("resnet18", _model, ResNet18_Weights, ResNet18_QuantizedWeights, QuantizableBasicBlock, (2, 2, 2, 2))
resnet50 = builder("resnet50", _model, ResNet50_Weights, ResNet50_QuantizedWeights, _block, _D50)
resnext101_32x8d = builder(
    "resnext101_32x8d",
    *(_model, ResNeXt101_32X8D_Weights, ResNeXt101_32X8D_QuantizedWeights, _block, _D101),
    forced=_widths(32, 8),
)
resnext101_64x4d = builder(
    "resnext101_64x4d",
    *(_model, ResNeXt101_64X4D_Weights, ResNeXt101_64X4D_QuantizedWeights, _block, _D101),
    forced=_widths(64, 4),
)
