"""Fused modules in floating point: several layers as one, observed only at the output of the last."""

from __future__ import annotations

from typing import Any

from ..... import nn
from .....nn.utils.parametrize import type_before_parametrizations

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d",
    "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearLeakyReLU", "LinearReLU", "LinearTanh",
]  # fmt: skip


class _FusedModule(nn.Sequential):
    """Base of all fused layers, in floating point, QAT and quantized."""


class _FusedLayers(_FusedModule):
    """Fused layers of known types, applied in order."""

    _types: tuple[type, ...]

    def __init__(self, *modules: nn.Module):
        found = [type_before_parametrizations(m) for m in modules]
        if tuple(found) != self._types:
            names = [kind.__name__ for kind in found]
            listed = " and ".join(names) if len(names) == 2 else ", ".join([*names[:-1], f"and {names[-1]}"])
            raise AssertionError(f"Incorrect types for input modules: {listed}")
        super().__init__(*modules)


def _make_fused_class(name: str, *types: type) -> type[_FusedLayers]:
    """Make a class of fused layers: a sequence of layers of these types."""
    *first, last = (kind.__name__ for kind in types)
    told = f"{', '.join(first)} and {last}."
    return type(name, (_FusedLayers,), {"__doc__": told, "__module__": __name__, "__qualname__": name, "_types": types})


ConvReLU1d: type[_FusedLayers] = _make_fused_class("ConvReLU1d", nn.Conv1d, nn.ReLU)
ConvReLU2d: type[_FusedLayers] = _make_fused_class("ConvReLU2d", nn.Conv2d, nn.ReLU)
ConvReLU3d: type[_FusedLayers] = _make_fused_class("ConvReLU3d", nn.Conv3d, nn.ReLU)
LinearReLU: type[_FusedLayers] = _make_fused_class("LinearReLU", nn.Linear, nn.ReLU)
ConvBn1d: type[_FusedLayers] = _make_fused_class("ConvBn1d", nn.Conv1d, nn.BatchNorm1d)
ConvBn2d: type[_FusedLayers] = _make_fused_class("ConvBn2d", nn.Conv2d, nn.BatchNorm2d)
ConvBn3d: type[_FusedLayers] = _make_fused_class("ConvBn3d", nn.Conv3d, nn.BatchNorm3d)
ConvBnReLU1d: type[_FusedLayers] = _make_fused_class("ConvBnReLU1d", nn.Conv1d, nn.BatchNorm1d, nn.ReLU)
ConvBnReLU2d: type[_FusedLayers] = _make_fused_class("ConvBnReLU2d", nn.Conv2d, nn.BatchNorm2d, nn.ReLU)
ConvBnReLU3d: type[_FusedLayers] = _make_fused_class("ConvBnReLU3d", nn.Conv3d, nn.BatchNorm3d, nn.ReLU)
BNReLU2d: type[_FusedLayers] = _make_fused_class("BNReLU2d", nn.BatchNorm2d, nn.ReLU)
BNReLU3d: type[_FusedLayers] = _make_fused_class("BNReLU3d", nn.BatchNorm3d, nn.ReLU)
LinearBn1d: type[_FusedLayers] = _make_fused_class("LinearBn1d", nn.Linear, nn.BatchNorm1d)
LinearLeakyReLU: type[_FusedLayers] = _make_fused_class("LinearLeakyReLU", nn.Linear, nn.LeakyReLU)
LinearTanh: type[_FusedLayers] = _make_fused_class("LinearTanh", nn.Linear, nn.Tanh)


class ConvAdd2d(_FusedModule):
    """Conv2d, followed by the sum of its result and another tensor."""

    def __init__(self, conv: nn.Module, add: Any):
        super().__init__(conv)
        self.add = add

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """Conv2d, followed by the sum of its result and another tensor, and ReLU."""

    def __init__(self, conv: nn.Module, add: Any, relu: nn.Module):
        super().__init__(conv)
        self.add = add
        self.relu = relu

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.relu(self.add(self[0](x1), x2))
