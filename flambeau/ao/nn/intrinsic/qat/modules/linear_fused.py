"""Linear and BatchNorm1d, for quantization-aware training."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor
from ......nn.modules.settings import extending
from ......nn.utils.fusion import fuse_linear_bn_weights
from ....qat.modules.origin import check_float_module, require_qconfig
from ...modules import fused as nni
from .norm_folding import NormFolding

__all__ = ["LinearBn1d"]


class LinearBn1d(NormFolding, nn.Linear, nni._FusedModule):
    """intrinsic.LinearBn1d with a fake-quantized weight."""

    @extending(nn.Linear, without=("device", "dtype"))
    def __init__(
        self, eps: float = 1e-05, momentum: float = 0.1, freeze_bn: bool = False, qconfig: Any = None, **settings: Any
    ):
        super().__init__(**settings)
        self.qconfig = require_qconfig(qconfig)
        self._start_norm(nn.BatchNorm1d(self.out_features, eps, momentum, True, True), freeze_bn)
        self.weight_fake_quant = self.qconfig.weight()
        if settings["bias"]:
            self.bias = nn.Parameter(torch.empty(self.out_features))
        self._begin_training(freeze_bn)

    def forward(self, input: Tensor) -> Tensor:
        weight, scale, _ = self._scaled_weight()
        return self._apply_norm(nn.functional.linear(input, weight), scale)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the layer from a fused float layer, whose parameters it shares."""
        check_float_module(cls, mod, nni.LinearBn1d, with_found=False)
        linear, bn = mod[0], mod[1]
        made = cls(
            linear.in_features, linear.out_features, linear.bias is not None, bn.eps, bn.momentum, False, mod.qconfig
        )
        return made._set_batch_norm(linear, bn)

    def to_float(self) -> nn.Linear:
        """Return a linear layer without fake quantization, with the norm folded into its weight."""
        linear = nn.Linear(self.in_features, self.out_features)
        linear.weight, linear.bias = fuse_linear_bn_weights(
            self.weight, self.bias, self.bn.running_mean, self.bn.running_var, self.bn.eps, self.bn.weight, self.bn.bias
        )
        return linear
