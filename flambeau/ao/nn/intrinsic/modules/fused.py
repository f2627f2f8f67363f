"""Several layers as one module, in floating point. Observers look only at what comes out of the last."""

from __future__ import annotations

from typing import Any

from ..... import nn
from .....nn.utils.parametrize import type_before_parametrizations

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d",
    "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearLeakyReLU", "LinearReLU", "LinearTanh",
]  # fmt: skip


class _FusedModule(nn.Sequential):
    """The base of all fused layers, trained and quantized ones, too."""


class _Chain(_FusedModule):
    """Layers of known types, one after the other."""

    _types: tuple[type, ...]

    def __init__(self, *modules: nn.Module):
        found = [type_before_parametrizations(m) for m in modules]
        if tuple(found) != self._types:
            names = [kind.__name__ for kind in found]
            listed = " and ".join(names) if len(names) == 2 else ", ".join([*names[:-1], f"and {names[-1]}"])
            raise AssertionError(f"Incorrect types for input modules: {listed}")
        super().__init__(*modules)


class ConvReLU1d(_Chain):
    """Conv1d and ReLU."""

    _types = (nn.Conv1d, nn.ReLU)


class ConvReLU2d(_Chain):
    """Conv2d and ReLU."""

    _types = (nn.Conv2d, nn.ReLU)


class ConvReLU3d(_Chain):
    """Conv3d and ReLU."""

    _types = (nn.Conv3d, nn.ReLU)


class LinearReLU(_Chain):
    """Linear and ReLU."""

    _types = (nn.Linear, nn.ReLU)


class ConvBn1d(_Chain):
    """Conv1d and BatchNorm1d."""

    _types = (nn.Conv1d, nn.BatchNorm1d)


class ConvBn2d(_Chain):
    """Conv2d and BatchNorm2d."""

    _types = (nn.Conv2d, nn.BatchNorm2d)


class ConvBn3d(_Chain):
    """Conv3d and BatchNorm3d."""

    _types = (nn.Conv3d, nn.BatchNorm3d)


class ConvBnReLU1d(_Chain):
    """Conv1d, BatchNorm1d and ReLU."""

    _types = (nn.Conv1d, nn.BatchNorm1d, nn.ReLU)


class ConvBnReLU2d(_Chain):
    """Conv2d, BatchNorm2d and ReLU."""

    _types = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU)


class ConvBnReLU3d(_Chain):
    """Conv3d, BatchNorm3d and ReLU."""

    _types = (nn.Conv3d, nn.BatchNorm3d, nn.ReLU)


class BNReLU2d(_Chain):
    """BatchNorm2d and ReLU."""

    _types = (nn.BatchNorm2d, nn.ReLU)


class BNReLU3d(_Chain):
    """BatchNorm3d and ReLU."""

    _types = (nn.BatchNorm3d, nn.ReLU)


class LinearBn1d(_Chain):
    """Linear and BatchNorm1d."""

    _types = (nn.Linear, nn.BatchNorm1d)


class LinearLeakyReLU(_Chain):
    """Linear and LeakyReLU."""

    _types = (nn.Linear, nn.LeakyReLU)


class LinearTanh(_Chain):
    """Linear and Tanh."""

    _types = (nn.Linear, nn.Tanh)


class ConvAdd2d(_FusedModule):
    """Conv2d, and the sum of its result and another tensor."""

    def __init__(self, conv: nn.Module, add: Any):
        super().__init__(conv)
        self.add = add

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """Conv2d, the sum of its result and another tensor, and ReLU."""

    def __init__(self, conv: nn.Module, add: Any, relu: nn.Module):
        super().__init__(conv)
        self.add = add
        self.relu = relu

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.relu(self.add(self[0](x1), x2))
