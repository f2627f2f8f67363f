"""ShuffleNet V2 that can be quantized."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor, nn

from ..shufflenetv2 import (
    _REPEATS,
    InvertedResidual,
    ShuffleNet_V2_X0_5_Weights,
    ShuffleNet_V2_X1_0_Weights,
    ShuffleNet_V2_X1_5_Weights,
    ShuffleNet_V2_X2_0_Weights,
    ShuffleNetV2,
)
from .utils import Quantizable, builder, fuse, quantized_weights

__all__ = [
    "QuantizableShuffleNetV2", "ShuffleNet_V2_X0_5_QuantizedWeights", "ShuffleNet_V2_X1_0_QuantizedWeights",
    "ShuffleNet_V2_X1_5_QuantizedWeights", "ShuffleNet_V2_X2_0_QuantizedWeights", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0",
    "shufflenet_v2_x1_5", "shufflenet_v2_x2_0",
]  # fmt: skip


class QuantizableInvertedResidual(InvertedResidual):
    """ShuffleNet block whose concatenation is a FloatFunctional."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.cat = nn.quantized.FloatFunctional()

    def _concatenate(self, branches: list[Tensor]) -> Tensor:
        return self.cat.cat(branches, dim=1)


class QuantizableShuffleNetV2(Quantizable, ShuffleNetV2):
    """ShuffleNet V2 that can be quantized."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, inverted_residual=QuantizableInvertedResidual, **kwargs)

    def fuse_model(self, is_qat: bool | None = None) -> None:
        """Fuse convolutions, norms and relus, in place."""
        for layer in (self.conv1, self.conv5):
            fuse(layer, [["0", "1", "2"]], is_qat)
        for module in self.modules():
            if type(module) is QuantizableInvertedResidual:
                if len(module.branch1):
                    fuse(module.branch1, [["0", "1"], ["2", "3", "4"]], is_qat)
                fuse(module.branch2, [["0", "1", "2"], ["3", "4"], ["5", "6", "7"]], is_qat)


_PLAIN = (
    ShuffleNet_V2_X0_5_Weights,
    ShuffleNet_V2_X1_0_Weights,
    ShuffleNet_V2_X1_5_Weights,
    ShuffleNet_V2_X2_0_Weights,
)
_QUANTIZED = quantized_weights("ShuffleNet_V2_X0_5", "ShuffleNet_V2_X1_0", "ShuffleNet_V2_X1_5", "ShuffleNet_V2_X2_0")
(
    ShuffleNet_V2_X0_5_QuantizedWeights,
    ShuffleNet_V2_X1_0_QuantizedWeights,
    ShuffleNet_V2_X1_5_QuantizedWeights,
    ShuffleNet_V2_X2_0_QuantizedWeights,
) = _QUANTIZED
_WIDTHS = {
    "shufflenet_v2_x0_5": (24, 48, 96, 192, 1024),
    "shufflenet_v2_x1_0": (24, 116, 232, 464, 1024),
    "shufflenet_v2_x1_5": (24, 176, 352, 704, 1024),
    "shufflenet_v2_x2_0": (24, 244, 488, 976, 2048),
}
shufflenet_v2_x0_5, shufflenet_v2_x1_0, shufflenet_v2_x1_5, shufflenet_v2_x2_0 = (
    builder(name, QuantizableShuffleNetV2, plain, quantized, _REPEATS, widths)
    for (name, widths), plain, quantized in zip(_WIDTHS.items(), _PLAIN, _QUANTIZED)
)
