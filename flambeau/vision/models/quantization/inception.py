"""Inception v3 that can be quantized."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor, nn

from .. import inception as plain
from ..inception import Inception3, Inception_V3_Weights
from .googlenet import QuantizableBasicConv2d, QuantizableInceptions
from .utils import builder, quantized_weights

__all__ = ["Inception_V3_QuantizedWeights", "QuantizableInception3", "inception_v3"]


class _QuantizableConcat(nn.Module):
    """Mixin before a block's class: its branches are concatenated by a FloatFunctional."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "conv_block": QuantizableBasicConv2d})
        self.myop = nn.quantized.FloatFunctional()

    def _concatenate(self, branches: list[Tensor]) -> Tensor:
        return self.myop.cat(branches, 1)


class QuantizableInceptionA(_QuantizableConcat, plain.InceptionA):
    """1x1, 5x5, double 3x3 and pooled branches."""


class QuantizableInceptionB(_QuantizableConcat, plain.InceptionB):
    """Halves the size: 3x3, double 3x3 and pooled branches of stride 2."""


class QuantizableInceptionC(_QuantizableConcat, plain.InceptionC):
    """Branches of 1x7 and 7x1 convolutions."""


class QuantizableInceptionD(_QuantizableConcat, plain.InceptionD):
    """Halves the size: 3x3, 7x7 and pooled branches."""


class QuantizableInceptionE(plain.InceptionE):
    """Branches that end in two convolutions side by side, each pair joined by its own FloatFunctional."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "conv_block": QuantizableBasicConv2d})
        self.myop1, self.myop2, self.myop3 = (nn.quantized.FloatFunctional() for _ in range(3))

    def _concatenate(self, branches: list[Tensor]) -> Tensor:
        one, left, right, left_double, right_double, pooled = branches
        pairs = [self.myop1.cat([left, right], 1), self.myop2.cat([left_double, right_double], 1)]
        return self.myop3.cat([one, *pairs, pooled], 1)


class QuantizableInceptionAux(plain.InceptionAux):
    """The auxiliary classifier."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "conv_block": QuantizableBasicConv2d})


class QuantizableInception3(QuantizableInceptions, Inception3):
    """Inception v3 that can be quantized."""

    def __init__(self, *args: Any, **kwargs: Any):
        blocks = (
            QuantizableBasicConv2d, QuantizableInceptionA, QuantizableInceptionB, QuantizableInceptionC, QuantizableInceptionD,
            QuantizableInceptionE, QuantizableInceptionAux,
        )  # fmt: skip
        super().__init__(*args, inception_blocks=blocks, **kwargs)


(Inception_V3_QuantizedWeights,) = quantized_weights("Inception_V3")
inception_v3 = builder(
    "inception_v3", QuantizableInception3, Inception_V3_Weights, Inception_V3_QuantizedWeights, auxiliary=("AuxLogits",)
)
