"""GoogLeNet that can be quantized."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor, flatten, nn
from flambeau.nn import functional as F

from ..googlenet import BasicConv2d, GoogLeNet, GoogLeNet_Weights, Inception, InceptionAux
from .utils import Quantizable, builder, fuse, quantized_weights

__all__ = ["GoogLeNet_QuantizedWeights", "QuantizableGoogLeNet", "googlenet"]


class QuantizableBasicConv2d(BasicConv2d):
    """Convolution, batch normalisation and a relu that is a module."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.bn(self.conv(x)))

    def fuse_model(self, is_qat: bool | None = None) -> None:
        fuse(self, ["conv", "bn", "relu"], is_qat)


class QuantizableInception(Inception):
    """Four branches, concatenated by a FloatFunctional."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "conv_block": QuantizableBasicConv2d})
        self.cat = nn.quantized.FloatFunctional()

    def _concatenate(self, branches: list[Tensor]) -> Tensor:
        return self.cat.cat(branches, 1)


class QuantizableInceptionAux(InceptionAux):
    """An auxiliary classifier with a relu that is a module."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "conv_block": QuantizableBasicConv2d})
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = flatten(self.conv(F.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(self.relu(self.fc1(x))))


class QuantizableInceptions(Quantizable):
    """Base of quantizable inception networks: images are quantized after normalisation, and only the logits of the last classifier are
    dequantized."""

    def _transform_input(self, x: Tensor) -> Tensor:
        return self.quant(super()._transform_input(x))  # type: ignore[misc]

    def forward(self, x: Tensor) -> Any:
        result = super(Quantizable, self).forward(x)
        if isinstance(result, tuple):
            return result._replace(logits=self.dequant(result.logits))  # type: ignore[attr-defined]
        return self.dequant(result)

    def fuse_model(self, is_qat: bool | None = None) -> None:
        """Fuse convolutions, norms and relus, in place."""
        for module in self.modules():
            if type(module) is QuantizableBasicConv2d:
                module.fuse_model(is_qat)


class QuantizableGoogLeNet(QuantizableInceptions, GoogLeNet):
    """GoogLeNet that can be quantized."""

    def __init__(self, *args: Any, **kwargs: Any):
        blocks = (QuantizableBasicConv2d, QuantizableInception, QuantizableInceptionAux)
        super().__init__(*args, blocks=blocks, **kwargs)


(GoogLeNet_QuantizedWeights,) = quantized_weights("GoogLeNet")
googlenet = builder(
    "googlenet", QuantizableGoogLeNet, GoogLeNet_Weights, GoogLeNet_QuantizedWeights, auxiliary=("aux1", "aux2")
)
