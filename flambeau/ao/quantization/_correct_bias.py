"""Bias correction: the biases of quantized layers compensate the mean error that quantization causes (arXiv 1906.04721, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flambeau as torch

from ... import nn
from ...core.tensor import Tensor
from ..nn import quantized as nnq
from ..ns import _numeric_suite as ns
from .utils import _parent_name as parent_child_names

__all__ = ["MeanShadowLogger", "bias_correction", "get_module", "get_param", "parent_child_names"]

_supported_modules = {nn.Linear, nn.Conv2d}
_supported_modules_quantized = {nnq.Linear, nnq.Conv2d}


def get_module(model: nn.Module, name: str) -> nn.Module:
    """Return the submodule of a model with the given dotted name."""
    return dict(model.named_modules())[name]


def get_param(module: Any, attr: str) -> Any:
    """Return a parameter, which is a method of quantized layers."""
    param = getattr(module, attr, None)
    return param() if callable(param) else param


class MeanShadowLogger(ns.Logger):
    """Logger of the mean outputs of a quantized layer and its shadow."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def forward(self, x: Tensor, y: Tensor) -> None:  # type: ignore[override]
        self.count += 1
        for name, given in (("quantized", x.dequantize() if x.is_quantized else x), ("float", y)):
            total = given if self.sums[name] is None else self.sums[name] + given
            self.sums[name], self.stats[name] = total, total / self.count

    def clear(self) -> None:
        self.count = 0
        self.sums: dict[str, Any] = {"float": None, "quantized": None}
        self.stats.update(self.sums)


def bias_correction(
    float_model: nn.Module,
    quantized_model: nn.Module,
    img_data: Iterable,
    target_modules: Any = _supported_modules_quantized,
    neval_batches: int | None = None,
) -> None:
    """Shift the biases of a quantized model's layers so that their mean results on the data equal the float model's."""
    ns.prepare_model_with_stubs(float_model, quantized_model, _supported_modules, MeanShadowLogger)
    names = [name for name, module in quantized_model.named_modules() if type(module) in target_modules]
    for name in names:
        layer: Any = get_module(quantized_model, name)
        bias = get_param(layer, "bias")
        if bias is None:
            continue
        for count, data in enumerate(img_data, start=1):
            quantized_model(data[0])
            if count == neval_batches:
                break
        stats = ns.get_logger_dict(quantized_model)[parent_child_names(name)[0] + ".stats"]
        error = stats["quantized"] - stats["float"]
        moved = bias.detach() - torch.mean(error, [d for d in range(error.dim()) if d != 1])
        if callable(layer.bias):  # whose weights are packed
            layer.set_weight_bias(layer.weight(), moved)
        else:
            bias.data = moved
        for module in quantized_model.modules():
            if isinstance(module, MeanShadowLogger):
                module.clear()
