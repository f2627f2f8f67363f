"""Inception v3 (Szegedy et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor, flatten, nn
from flambeau.nn import functional as F

from ._api import expect_option, load_weights, model_builder, weights_enums
from .googlenet import BasicConv2d, init_truncated, to_half_range, warn_default

__all__ = ["Inception3", "InceptionOutputs", "Inception_V3_Weights", "_InceptionOutputs", "inception_v3"]

Layer = Callable[..., nn.Module]


class InceptionOutputs(NamedTuple):
    """The outputs of a network in training mode: the logits and those of the auxiliary classifier."""

    logits: Tensor
    aux_logits: Tensor | None


_InceptionOutputs = InceptionOutputs


def _average_pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)


class _Branches(nn.Module):
    """Base of blocks whose branches are concatenated."""

    def _concatenate(self, branches: list[Tensor]) -> Tensor:
        return flambeau.cat(branches, 1)


class InceptionA(_Branches):
    """1x1, 5x5, double 3x3 and pooled branches."""

    def __init__(self, in_channels: int, pool_features: int, conv_block: Layer | None = None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch1x1 = conv(in_channels, 64, kernel_size=1)
        self.branch5x5_1 = conv(in_channels, 48, kernel_size=1)
        self.branch5x5_2 = conv(48, 64, kernel_size=5, padding=2)
        self.branch3x3dbl_1 = conv(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = conv(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = conv(96, 96, kernel_size=3, padding=1)
        self.branch_pool = conv(in_channels, pool_features, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.branch1x1(x)
        five = self.branch5x5_2(self.branch5x5_1(x))
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return self._concatenate([one, five, double, self.branch_pool(_average_pool(x))])


class InceptionB(_Branches):
    """Halves the size: 3x3, double 3x3 and pooled branches of stride 2."""

    def __init__(self, in_channels: int, conv_block: Layer | None = None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch3x3 = conv(in_channels, 384, kernel_size=3, stride=2)
        self.branch3x3dbl_1 = conv(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = conv(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = conv(96, 96, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3(x)
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return self._concatenate([three, double, F.max_pool2d(x, kernel_size=3, stride=2)])


class InceptionC(_Branches):
    """Branches of 1x7 and 7x1 convolutions."""

    def __init__(self, in_channels: int, channels_7x7: int, conv_block: Layer | None = None):
        super().__init__()
        conv = conv_block or BasicConv2d
        c7 = channels_7x7
        row = partial(conv, kernel_size=(1, 7), padding=(0, 3))
        column = partial(conv, kernel_size=(7, 1), padding=(3, 0))
        self.branch1x1 = conv(in_channels, 192, kernel_size=1)
        self.branch7x7_1 = conv(in_channels, c7, kernel_size=1)
        self.branch7x7_2 = row(c7, c7)
        self.branch7x7_3 = column(c7, 192)
        self.branch7x7dbl_1 = conv(in_channels, c7, kernel_size=1)
        self.branch7x7dbl_2 = column(c7, c7)
        self.branch7x7dbl_3 = row(c7, c7)
        self.branch7x7dbl_4 = column(c7, c7)
        self.branch7x7dbl_5 = row(c7, 192)
        self.branch_pool = conv(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.branch1x1(x)
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return self._concatenate([one, seven, double, self.branch_pool(_average_pool(x))])


class InceptionD(_Branches):
    """Halves the size: 3x3, 7x7 and pooled branches."""

    def __init__(self, in_channels: int, conv_block: Layer | None = None):
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch3x3_1 = conv(in_channels, 192, kernel_size=1)
        self.branch3x3_2 = conv(192, 320, kernel_size=3, stride=2)
        self.branch7x7x3_1 = conv(in_channels, 192, kernel_size=1)
        self.branch7x7x3_2 = conv(192, 192, kernel_size=(1, 7), padding=(0, 3))
        self.branch7x7x3_3 = conv(192, 192, kernel_size=(7, 1), padding=(3, 0))
        self.branch7x7x3_4 = conv(192, 192, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_2(self.branch3x3_1(x))
        seven = self.branch7x7x3_2(self.branch7x7x3_1(x))
        seven = self.branch7x7x3_4(self.branch7x7x3_3(seven))
        return self._concatenate([three, seven, F.max_pool2d(x, 3, stride=2)])


class InceptionE(_Branches):
    """Branches that end in a 1x3 and a 3x1 convolution side by side."""

    def __init__(self, in_channels: int, conv_block: Layer | None = None):
        super().__init__()
        conv = conv_block or BasicConv2d
        row = partial(conv, kernel_size=(1, 3), padding=(0, 1))
        column = partial(conv, kernel_size=(3, 1), padding=(1, 0))
        self.branch1x1 = conv(in_channels, 320, kernel_size=1)
        self.branch3x3_1 = conv(in_channels, 384, kernel_size=1)
        self.branch3x3_2a = row(384, 384)
        self.branch3x3_2b = column(384, 384)
        self.branch3x3dbl_1 = conv(in_channels, 448, kernel_size=1)
        self.branch3x3dbl_2 = conv(448, 384, kernel_size=3, padding=1)
        self.branch3x3dbl_3a = row(384, 384)
        self.branch3x3dbl_3b = column(384, 384)
        self.branch_pool = conv(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.branch1x1(x)
        three = self.branch3x3_1(x)
        threes = [self.branch3x3_2a(three), self.branch3x3_2b(three)]
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        doubles = [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)]
        return self._concatenate([one] + threes + doubles + [self.branch_pool(_average_pool(x))])


class InceptionAux(nn.Module):
    """The auxiliary classifier."""

    def __init__(self, in_channels: int, num_classes: int, conv_block: Layer | None = None):
        super().__init__()
        conv: Any = conv_block or BasicConv2d
        self.conv0 = conv(in_channels, 128, kernel_size=1)
        self.conv1 = conv(128, 768, kernel_size=5)
        self.conv1.stddev = 0.01
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.conv0(F.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class Inception3(nn.Module):
    """Inception modules with factorised convolutions and one auxiliary classifier; made for 299x299 images."""

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        inception_blocks: Sequence[Layer] | None = None,
        init_weights: bool | None = None,
        dropout: float = 0.5,
    ):
        super().__init__()
        blocks = inception_blocks or (
            BasicConv2d, InceptionA, InceptionB, InceptionC, InceptionD, InceptionE, InceptionAux,
        )  # fmt: skip
        if len(blocks) != 7:
            raise ValueError(f"length of inception_blocks should be 7 instead of {len(blocks)}")
        if init_weights is None:
            warn_default("inception_v3")
            init_weights = True
        conv, a, b, c, d, e, auxiliary = blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = conv(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = conv(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = conv(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = conv(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = conv(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b = a(192, pool_features=32)
        self.Mixed_5c = a(256, pool_features=64)
        self.Mixed_5d = a(288, pool_features=64)
        self.Mixed_6a = b(288)
        self.Mixed_6b = c(768, channels_7x7=128)
        self.Mixed_6c = c(768, channels_7x7=160)
        self.Mixed_6d = c(768, channels_7x7=160)
        self.Mixed_6e = c(768, channels_7x7=192)
        self.AuxLogits = auxiliary(768, num_classes) if aux_logits else None
        self.Mixed_7a = d(768)
        self.Mixed_7b = e(1280)
        self.Mixed_7c = e(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(2048, num_classes)
        if init_weights:
            init_truncated(self, lambda module: float(getattr(module, "stddev", 0.1)))

    def _transform_input(self, x: Tensor) -> Tensor:
        return to_half_range(x) if self.transform_input else x

    def forward(self, x: Tensor) -> Tensor | InceptionOutputs:
        x = self._transform_input(x)
        auxiliary: Tensor | None = None
        for name, module in self.named_children():
            if name == "AuxLogits":
                auxiliary = module(x) if self.training else None
            elif name == "fc":
                x = module(flatten(x, 1))
            elif name != "quant" and name != "dequant":  # stubs of the form that can be quantized are called apart
                x = module(x)
        if flambeau.jit.is_scripting() or (self.training and self.aux_logits):  # compiled code has one kind of result
            return InceptionOutputs(x, auxiliary)
        return x


(Inception_V3_Weights,) = weights_enums("Inception_V3")


@model_builder(Inception_V3_Weights)
def inception_v3(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> Inception3:
    """Make an Inception v3. With `weights`, images are re-normalised inside; the auxiliary classifier is kept unless refused."""
    wanted = kwargs.get("aux_logits", True)
    if weights is not None:
        kwargs.setdefault("transform_input", True)
        expect_option(kwargs, "init_weights", False)
        expect_option(kwargs, "num_classes", len(weights.meta["categories"]))
        kwargs["aux_logits"] = True  # the file has it
    model = load_weights(Inception3(**kwargs), weights, progress)
    if weights is not None and not wanted:
        model.aux_logits, model.AuxLogits = False, None
    return model
