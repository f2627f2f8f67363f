"""Linear layer for quantization-aware training."""

from __future__ import annotations

from typing import Any

from ..... import nn
from .....core.tensor import Tensor
from .....nn.modules.settings import extending
from .....nn.utils.parametrize import is_parametrized, transfer_parametrizations_and_params
from ...intrinsic.modules.fused import LinearReLU
from .origin import check_float_module, require_qconfig

__all__ = ["Linear"]


class Linear(nn.Linear):
    """nn.Linear whose weight passes through `weight_fake_quant`, made by `qconfig.weight`."""

    _FLOAT_MODULE: type = nn.Linear

    @extending(nn.Linear, before="device")
    def __init__(self, qconfig: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.qconfig = require_qconfig(qconfig)
        where = {"device": settings["device"], "dtype": settings["dtype"]}
        self.weight_fake_quant = qconfig.weight(factory_kwargs=where)

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the layer from a float layer, whose parameters it shares."""
        check_float_module(cls, mod, cls._FLOAT_MODULE)
        if isinstance(mod, LinearReLU):
            mod = mod[0]
        made = cls(mod.in_features, mod.out_features, bias=mod.bias is not None, qconfig=mod.qconfig)
        for name in ("weight", "bias"):
            if is_parametrized(mod, name):
                transfer_parametrizations_and_params(mod, made, name)
            else:
                setattr(made, name, getattr(mod, name))
        return made

    def to_float(self) -> nn.Module:
        """Return the layer as a float layer, without fake quantization."""
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        linear.weight = nn.Parameter(self.weight.detach())
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach())
        linear.train(self.training)
        return linear
