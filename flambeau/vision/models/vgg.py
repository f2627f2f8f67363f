"""VGG (Simonyan and Zisserman, 2015), with and without batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from flambeau import Tensor, flatten, nn
from flambeau.nn.modules import Sequential

from ._api import builder, weights_enums
from ._utils import initialise, kaiming_fan_out

__all__ = [
    "VGG", "VGG11_BN_Weights", "VGG11_Weights", "VGG13_BN_Weights", "VGG13_Weights", "VGG16_BN_Weights", "VGG16_Weights",
    "VGG19_BN_Weights", "VGG19_Weights", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
]  # fmt: skip


class VGG(nn.Module):
    """Stacks of 3x3 convolutions, each ending in a max-pool, then three linear layers."""

    def __init__(self, features: Any, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5):
        super().__init__()
        self.features: nn.Sequential = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            initialise(self, kaiming_fan_out, partial(nn.init.normal_, mean=0, std=0.01))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


def make_layers(cfg: Sequence[int | str], batch_norm: bool = False) -> Sequential:
    """Make convolutions of these widths; "M" is a max-pool."""
    layers: list[nn.Module] = []
    width = 3
    for item in cfg:
        if isinstance(item, str):
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            continue
        layers.append(nn.Conv2d(width, item, kernel_size=3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(item))
        layers.append(nn.ReLU(inplace=True))
        width = item
    return nn.Sequential(*layers)


# Convolutions per stack; the stacks are 64, 128, 256, 512 and 512 wide.
_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _vgg(depth: int, batch_norm: bool, **kwargs: Any) -> VGG:
    """stacks of 3x3 convolutions and three linear layers."""
    cfg: list[int | str] = []
    for width, count in zip((64, 128, 256, 512, 512), _DEPTHS[depth]):
        cfg += [width] * count + ["M"]
    return VGG(make_layers(cfg, batch_norm), **kwargs)


VGG11_Weights, VGG13_Weights, VGG16_Weights, VGG19_Weights = weights_enums("VGG11", "VGG13", "VGG16", "VGG19")
VGG11_BN_Weights, VGG13_BN_Weights, VGG16_BN_Weights, VGG19_BN_Weights = weights_enums(
    "VGG11_BN", "VGG13_BN", "VGG16_BN", "VGG19_BN"
)


def _skip_initialisation(kwargs: dict[str, Any], weights: Any) -> None:
    kwargs["init_weights"] = False


_builder = partial(builder, prepare=_skip_initialisation)
vgg11 = _builder("vgg11", _vgg, VGG11_Weights, 11, False)
vgg11_bn = _builder("vgg11_bn", _vgg, VGG11_BN_Weights, 11, True)
vgg13 = _builder("vgg13", _vgg, VGG13_Weights, 13, False)
vgg13_bn = _builder("vgg13_bn", _vgg, VGG13_BN_Weights, 13, True)
vgg16 = _builder("vgg16", _vgg, VGG16_Weights, 16, False)
vgg16_bn = _builder("vgg16_bn", _vgg, VGG16_BN_Weights, 16, True)
vgg19 = _builder("vgg19", _vgg, VGG19_Weights, 19, False)
vgg19_bn = _builder("vgg19_bn", _vgg, VGG19_BN_Weights, 19, True)
