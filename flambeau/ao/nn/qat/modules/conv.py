"""Convolutions for quantization-aware training."""

from __future__ import annotations

from typing import Any

from ..... import nn
from .....core.tensor import Tensor
from .....nn.modules.conv import _ConvNd as _FloatConvNd
from .....nn.modules.settings import extending
from ...intrinsic.modules.fused import _FusedModule
from .origin import check_float_module, require_qconfig

__all__ = ["Conv1d", "Conv2d", "Conv3d"]


class _ConvNd(_FloatConvNd):
    """Base of the QAT convolutions: the weight passes through `weight_fake_quant`, made by `qconfig.weight`."""

    _FLOAT_MODULE: type
    _FLOAT_CONV_MODULE: type

    @extending(nn.Conv2d, before="device")
    def __init__(self, qconfig: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.qconfig = require_qconfig(qconfig)
        where = {"device": settings["device"], "dtype": settings["dtype"]}
        self.weight_fake_quant = qconfig.weight(factory_kwargs=where)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the layer from a float layer, whose parameters it shares."""
        check_float_module(cls, mod, cls._FLOAT_MODULE)
        if isinstance(mod, _FusedModule):
            mod = mod[0]
        made = cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.dilation, mod.groups,
            mod.bias is not None, mod.padding_mode, qconfig=mod.qconfig,
        )  # fmt: skip
        made.weight, made.bias = mod.weight, mod.bias
        return made

    def to_float(self) -> nn.Module:
        """Return the layer as a float layer, without fake quantization."""
        conv = self._FLOAT_CONV_MODULE(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding, self.dilation, self.groups,
            self.bias is not None, self.padding_mode,
        )  # fmt: skip
        conv.weight = nn.Parameter(self.weight.detach())
        if self.bias is not None:
            conv.bias = nn.Parameter(self.bias.detach())
        if not isinstance(self, _FusedModule):
            return conv
        fused = self._FLOAT_MODULE(conv, nn.ReLU())
        fused.train(self.training)
        return fused


class Conv1d(_ConvNd, nn.Conv1d):
    """nn.Conv1d with a fake-quantized weight."""

    _FLOAT_MODULE = _FLOAT_CONV_MODULE = nn.Conv1d


class Conv2d(_ConvNd, nn.Conv2d):
    """nn.Conv2d with a fake-quantized weight."""

    _FLOAT_MODULE = _FLOAT_CONV_MODULE = nn.Conv2d


class Conv3d(_ConvNd, nn.Conv3d):
    """nn.Conv3d with a fake-quantized weight."""

    _FLOAT_MODULE = _FLOAT_CONV_MODULE = nn.Conv3d
