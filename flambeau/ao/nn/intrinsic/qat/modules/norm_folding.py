"""Quantization-aware training of a layer with its batch norm folded in, so that the weight used for inference is the one rounded."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor
from ......nn import init

_STATE = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


class NormFolding(nn.Module):
    """Mixin that folds a batch norm: the weight is scaled by the running deviation, rounded and applied, and the result scaled back."""

    bn: Any
    weight: Any
    bias: Any
    weight_fake_quant: Any

    def _start_norm(self, bn: nn.Module, freeze_bn: bool) -> None:
        self.bn = bn
        self.freeze_bn = freeze_bn if self.training else True

    def reset_running_stats(self) -> None:
        self.bn.reset_running_stats()

    def reset_bn_parameters(self) -> None:
        self.bn.reset_running_stats()
        init.uniform_(self.bn.weight)
        init.zeros_(self.bn.bias)

    def update_bn_stats(self) -> Any:
        """Unfreeze the norm's running averages."""
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self) -> Any:
        """Freeze the norm's running averages."""
        self.freeze_bn = True
        self.bn.training = False
        return self

    def _begin_training(self, freeze_bn: bool) -> None:
        self.reset_bn_parameters()
        if self.training and not freeze_bn:
            self.update_bn_stats()
        else:
            self.freeze_bn_stats()

    def _scaled_weight(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return (rounded weight, its scale along the results' channels, running deviation)."""
        if self.bn.running_var is None:
            raise AssertionError("self.bn.running_var must not be None")
        deviation = torch.sqrt(self.bn.running_var + self.bn.eps)
        scale = self.bn.weight / deviation
        weight = self.weight_fake_quant(self.weight * scale.reshape([-1] + [1] * (self.weight.dim() - 1)))
        return weight, self._along_channels(scale), deviation

    def _along_channels(self, x: Tensor) -> Tensor:
        return x.reshape([1, -1] + [1] * (self.weight.dim() - 2))

    def _apply_norm(self, product: Tensor, scale: Tensor) -> Tensor:
        unscaled = product / scale
        if self.bias is not None:
            unscaled = unscaled + self._along_channels(self.bias)
        return self.bn(unscaled)

    def train(self, mode: bool = True) -> Any:
        """Set the training mode; that of the norm only if it is not frozen."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():
                module.train(mode)
        return self

    def _set_batch_norm(self, first: Any, bn: Any) -> Any:
        self.weight, self.bias = first.weight, first.bias
        for name in _STATE:
            setattr(self.bn, name, getattr(bn, name))
        return self
