"""Markers of where a model's values become quantized, and floating-point numbers again."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...core.tensor import Tensor

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class QuantStub(nn.Module):
    """Values are quantized here: an observer before `convert`, `nn.quantized.Quantize` afterwards."""

    def __init__(self, qconfig: Any = None):
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(nn.Module):
    """Values are floating-point numbers again from here: `nn.quantized.DeQuantize` after `convert`."""

    def __init__(self, qconfig: Any = None):
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantWrapper(nn.Module):
    """A module between a QuantStub and a DeQuantStub."""

    quant: QuantStub
    dequant: DeQuantStub
    module: nn.Module

    def __init__(self, module: nn.Module):
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.add_module("quant", QuantStub(qconfig))
        self.add_module("dequant", DeQuantStub(qconfig))
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        X = self.quant(X)
        X = self.module(X)
        return self.dequant(X)
