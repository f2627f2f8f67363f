"""`quantize_`: linear layers of a model with 8-bit weights, in one call, as in the package torchao.

>>> quantize_(model, Int8WeightOnlyConfig())                        # weights are bytes, products in floating point
>>> quantize_(model, Int8DynamicActivationInt8WeightConfig())       # both factors are bytes, products of whole numbers

torchao itself keeps such a weight in a tensor without memory of its own, which Flambeau does not have; here the layer changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau as torch

from ... import nn
from ...core.tensor import Tensor

__all__ = ["Int8DynamicActivationInt8WeightConfig", "Int8Linear", "Int8WeightOnlyConfig", "quantize_"]

_LOW, _HIGH = -128, 127
_EPS = torch.finfo(torch.float32).eps  # the smallest scale


@dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """Bytes for weights, one scale for each output (symmetric)."""


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig:
    """Bytes for weights, one scale for each output, and for inputs, one for each row, found at each call (both symmetric)."""


def _rows_as_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    """(whole numbers, scale of each row) of a matrix."""
    low, high = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True).clamp(min=0)
    scale = (torch.maximum(-low, high) / ((_HIGH - _LOW) / 2)).to(torch.float32).clamp(min=_EPS)
    return torch.round(x * (1.0 / scale)).clamp(_LOW, _HIGH).to(torch.int8), scale


class Int8Linear(nn.Module):
    """A linear layer whose weight is kept as bytes and one scale for each output."""

    qdata: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: Any, quantizes_input: bool):
        super().__init__()
        qdata, scale = _rows_as_bytes(weight.detach())
        self.register_buffer("qdata", qdata)
        self.register_buffer("scale", scale)
        self.bias = bias
        self.out_features, self.in_features = weight.shape
        self.quantizes_input = quantizes_input

    def extra_repr(self) -> str:
        about = "int8 inputs and weight" if self.quantizes_input else "int8 weight"
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, {about}"

    def forward(self, input: Tensor) -> Tensor:
        rows = input.reshape(-1, self.in_features)
        if self.quantizes_input:
            codes, scale = _rows_as_bytes(rows)
            product = (torch._int_mm(codes, self.qdata.t()) * scale).to(input.dtype)
        else:
            product = torch.mm(rows, self.qdata.t().to(input.dtype))
        result = (product * self.scale.to(product.dtype).flatten()).reshape(*input.shape[:-1], self.out_features)
        return result.to(input.dtype) if self.bias is None else (result + self.bias).to(input.dtype)


def _is_linear(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Linear) and "_lora" not in name


def quantize_(
    model: nn.Module, config: Any, filter_fn: Callable[[nn.Module, str], bool] | None = None, device: Any = None
) -> None:
    """Changes the linear layers of a model (or those that `filter_fn(module, name)` chooses) as a configuration says."""
    kinds = (Int8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig)
    if not isinstance(config, kinds):
        raise NotImplementedError(f"quantize_: {type(config).__name__} is not in Flambeau; there are {[k.__name__ for k in kinds]}")
    wanted = _is_linear if filter_fn is None else filter_fn
    for name, module in list(model.named_modules()):
        if not name or not wanted(module, name):
            continue
        if not isinstance(module, nn.Linear):
            raise NotImplementedError(f"quantize_: {name} is a {type(module).__name__}, not a linear layer")
        made: Any = Int8Linear(module.weight, module.bias, isinstance(config, kinds[1]))
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, made.train(module.training) if device is None else made.to(device))
