"""MobileNet V2 that can be quantized."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor, nn

from ...ops.misc import Conv2dNormActivation
from ..mobilenetv2 import InvertedResidual, MobileNet_V2_Weights, MobileNetV2
from .utils import Quantizable, builder, fuse, quantized_weights

__all__ = ["MobileNet_V2_QuantizedWeights", "QuantizableMobileNetV2", "mobilenet_v2"]


class QuantizableInvertedResidual(InvertedResidual):
    """Inverted residual block whose sum is a FloatFunctional."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.skip_add = nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        return self.skip_add.add(x, self.conv(x)) if self.use_res_connect else self.conv(x)

    def fuse_model(self, is_qat: bool | None = None) -> None:
        for i, layer in enumerate(self.conv):
            if type(layer) is nn.Conv2d:
                fuse(self.conv, [str(i), str(i + 1)], is_qat)


class QuantizableMobileNetV2(Quantizable, MobileNetV2):
    """MobileNet V2 that can be quantized."""

    def fuse_model(self, is_qat: bool | None = None) -> None:
        """Fuse convolutions, norms and relus, in place."""
        for module in self.modules():
            if type(module) is Conv2dNormActivation:
                fuse(module, ["0", "1", "2"], is_qat)
            elif type(module) is QuantizableInvertedResidual:
                module.fuse_model(is_qat)


def _model(**kwargs: Any) -> QuantizableMobileNetV2:
    return QuantizableMobileNetV2(block=QuantizableInvertedResidual, **kwargs)


(MobileNet_V2_QuantizedWeights,) = quantized_weights("MobileNet_V2")
mobilenet_v2 = builder("mobilenet_v2", _model, MobileNet_V2_Weights, MobileNet_V2_QuantizedWeights, backend="qnnpack")
