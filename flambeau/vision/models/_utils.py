"""Helpers shared by several model families."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau import Tensor, nn
from flambeau.nn.modules import ModuleDict

kaiming_fan_out = partial(nn.init.kaiming_normal_, mode="fan_out", nonlinearity="relu")


def _make_divisible(v: float, divisor: int, min_value: int | None = None) -> int:
    """Return the multiple of `divisor` nearest to v, but never more than a tenth below it."""
    rounded = max(divisor if min_value is None else min_value, int(v + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * v else rounded


def initialise(
    model: nn.Module, conv: Callable[[Tensor], Any] | None, linear: Callable[[Tensor], Any] | None = None
) -> None:
    """Initialise the weights of all convolutions and linear layers, in order, biases with zero, and norms with the identity."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm)):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
            continue
        fill = conv if isinstance(module, (nn.Conv2d, nn.Conv3d)) else linear if isinstance(module, nn.Linear) else None
        if fill is not None:
            fill(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class IntermediateLayerGetter(ModuleDict):
    """A model cut after the last wanted layer, which returns the wanted layers' outputs by their new names.

    `return_layers` maps names of direct children to names in the result. Children must be used in the order in which they
    are registered, and each once.

    >>> from flambeau.vision.models import resnet18
    >>> from flambeau.vision.models._utils import IntermediateLayerGetter
    >>> body = IntermediateLayerGetter(resnet18(), {"layer1": "fine", "layer3": "coarse"})
    """

    _version = 2

    def __init__(self, model: nn.Module, return_layers: dict[str, str]):
        missing = [name for name in return_layers if name not in dict(model.named_children())]
        if missing:
            raise ValueError(f"return_layers are not present in model: {missing}")
        layers: dict[str, nn.Module] = OrderedDict()
        left = {str(name) for name in return_layers}
        for name, child in model.named_children():
            layers[name] = child
            left.discard(name)
            if not left:
                break
        super().__init__(layers)
        self.return_layers = {str(name): str(new) for name, new in return_layers.items()}

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = OrderedDict()
        for name, child in self.items():
            x = child(x)
            if name in self.return_layers:
                found[self.return_layers[name]] = x
        return found
