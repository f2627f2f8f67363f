"""What a layer returns may be changed in place, as networks with inplace=True do, and still trains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flambeau
from flambeau import nn

IMAGES = (2, 4, 6, 6)
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 4), (3, 4)),
    "linear over batches": (lambda: nn.Linear(4, 4), (2, 3, 4)),
    "convolution": (lambda: nn.Conv2d(4, 4, 3), IMAGES),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 4, 3), IMAGES),
    "batch norm": (lambda: nn.BatchNorm2d(4), IMAGES),
    "group norm": (lambda: nn.GroupNorm(2, 4), IMAGES),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGES),
    "layer norm": (lambda: nn.LayerNorm(6), IMAGES),
    "rms norm": (lambda: nn.RMSNorm(6), IMAGES),
    "max pool": (lambda: nn.MaxPool2d(2), IMAGES),
    "average pool": (lambda: nn.AvgPool2d(2), IMAGES),
    "adaptive max pool": (lambda: nn.AdaptiveMaxPool2d(2), IMAGES),
    "adaptive max pool of volumes": (lambda: nn.AdaptiveMaxPool3d(2), (2, 4, 6, 6, 6)),
    "upsampling": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES),
    "padding": (lambda: nn.ReflectionPad2d(1), IMAGES),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), IMAGES),
    "pixel unshuffle": (lambda: nn.PixelUnshuffle(2), IMAGES),
    "channel shuffle": (lambda: nn.ChannelShuffle(2), IMAGES),
    "dropout": (lambda: nn.Dropout(0.5), IMAGES),
    "flatten": (lambda: nn.Flatten(), IMAGES),
}


@pytest.mark.parametrize("name", LAYERS)
def test_relu_in_place_after(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    gradients = []
    for inplace in (True, False):
        flambeau.manual_seed(0)
        x = flambeau.randn(shape, requires_grad=True)
        nn.ReLU(inplace=inplace)(layer(x * 1.5)).square().sum().backward()
        gradients.append(x.grad)
    assert flambeau.equal(*gradients)
