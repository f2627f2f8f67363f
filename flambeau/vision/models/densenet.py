"""DenseNet (Huang et al., 2017)."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, flatten, nn
from flambeau.nn import functional as F
from flambeau.nn.modules import ModuleDict, Sequential
from flambeau.utils.checkpoint import checkpoint

from ._api import builder, weights_enums
from ._utils import initialise

__all__ = [
    "DenseNet", "DenseNet121_Weights", "DenseNet161_Weights", "DenseNet169_Weights", "DenseNet201_Weights", "densenet121",
    "densenet161", "densenet169", "densenet201",
]  # fmt: skip


class _DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth_rate: int, bn_size: int, drop_rate: float, memory_efficient: bool):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, bn_size * growth_rate, kernel_size=1, stride=1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth_rate)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, kernel_size=3, stride=1, padding=1, bias=False)
        self.drop_rate = float(drop_rate)
        self.memory_efficient = memory_efficient

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        old = re.compile(re.escape(prefix) + r"(norm|conv)\.([12])\.(\w+)")
        for key in list(state_dict):  # files of old releases say norm.1 for norm1
            match = old.fullmatch(key)
            if match:
                kind, number, name = match.groups()
                state_dict[f"{prefix}{kind}{number}.{name}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, features: Tensor | list[Tensor]) -> Tensor:
        given = [features] if isinstance(features, Tensor) else features
        if not flambeau.jit.is_scripting() and self.memory_efficient and any(x.requires_grad for x in given):
            narrow = checkpoint(lambda *tensors: self._bottleneck(list(tensors)), *given, use_reentrant=False)
        else:
            narrow = self._bottleneck(given)
        new = self.conv2(self.relu2(self.norm2(narrow)))
        return F.dropout(new, p=self.drop_rate, training=self.training) if self.drop_rate > 0 else new

    def _bottleneck(self, features: list[Tensor]) -> Tensor:
        return self.conv1(self.relu1(self.norm1(flambeau.cat(features, 1))))


class _DenseBlock(ModuleDict):
    """Layers whose input is the concatenation of all earlier outputs."""

    _version = 2

    def __init__(
        self, layers: int, inputs: int, bn_size: int, growth_rate: int, drop_rate: float, memory_efficient: bool
    ):
        super().__init__()
        for i in range(layers):
            layer = _DenseLayer(inputs + i * growth_rate, growth_rate, bn_size, drop_rate, memory_efficient)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return flambeau.cat(features, 1)


class _Transition(Sequential):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, outputs, kernel_size=1, stride=1, bias=False)
        self.pool = nn.AvgPool2d(kernel_size=2, stride=2)


class DenseNet(nn.Module):
    """Densely connected network: each layer's input is the concatenation of all earlier outputs of its block.

    With `memory_efficient`, concatenated and normalised inputs are recomputed in the backward pass instead of saved.
    """

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: Sequence[int] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
        memory_efficient: bool = False,
    ):
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, num_init_features, kernel_size=7, stride=2, padding=3, bias=False),
                norm0=nn.BatchNorm2d(num_init_features),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
            )
        )
        width = num_init_features
        for i, layers in enumerate(block_config, 1):
            block = _DenseBlock(layers, width, bn_size, growth_rate, drop_rate, memory_efficient)
            self.features.add_module(f"denseblock{i}", block)
            width += layers * growth_rate
            if i < len(block_config):
                self.features.add_module(f"transition{i}", _Transition(width, width // 2))
                width //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, num_classes)
        initialise(self, nn.init.kaiming_normal_)
        nn.init.constant_(self.classifier.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.features(x), inplace=True)
        return self.classifier(flatten(F.adaptive_avg_pool2d(out, (1, 1)), 1))


DenseNet121_Weights, DenseNet161_Weights, DenseNet169_Weights, DenseNet201_Weights = weights_enums(
    "DenseNet121", "DenseNet161", "DenseNet169", "DenseNet201"
)
densenet121 = builder("densenet121", DenseNet, DenseNet121_Weights, 32, (6, 12, 24, 16), 64)
densenet161 = builder("densenet161", DenseNet, DenseNet161_Weights, 48, (6, 12, 36, 24), 96)
densenet169 = builder("densenet169", DenseNet, DenseNet169_Weights, 32, (6, 12, 32, 32), 64)
densenet201 = builder("densenet201", DenseNet, DenseNet201_Weights, 32, (6, 12, 48, 32), 64)
