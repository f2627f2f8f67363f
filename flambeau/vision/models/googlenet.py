"""GoogLeNet (Szegedy et al., 2015), with batch normalisation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor, flatten, nn
from flambeau.nn import functional as F

from ._api import expect_option, load_weights, model_builder, weights_enums

__all__ = ["GoogLeNet", "GoogLeNetOutputs", "GoogLeNet_Weights", "_GoogLeNetOutputs", "googlenet"]

Layer = Callable[..., nn.Module]


class GoogLeNetOutputs(NamedTuple):
    """The outputs of a network in training mode: the logits and those of the two auxiliary classifiers."""

    logits: Tensor
    aux_logits2: Tensor | None
    aux_logits1: Tensor | None


_GoogLeNetOutputs = GoogLeNetOutputs

# Inception modules: inputs, 1x1, 3x3 (reduced, out), 5x5 (reduced, out), pool projection
_MODULES = {
    "inception3a": (192, 64, 96, 128, 16, 32, 32),
    "inception3b": (256, 128, 128, 192, 32, 96, 64),
    "maxpool3": (3, 2),
    "inception4a": (480, 192, 96, 208, 16, 48, 64),
    "inception4b": (512, 160, 112, 224, 24, 64, 64),
    "inception4c": (512, 128, 128, 256, 24, 64, 64),
    "inception4d": (512, 112, 144, 288, 32, 64, 64),
    "inception4e": (528, 256, 160, 320, 32, 128, 128),
    "maxpool4": (2, 2),
    "inception5a": (832, 256, 160, 320, 32, 128, 128),
    "inception5b": (832, 384, 192, 384, 48, 128, 128),
}


class BasicConv2d(nn.Module):
    """Convolution, batch normalisation, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    """Inception block with four parallel branches. The one called 5x5 is 3x3: published weights were trained so."""

    def __init__(
        self,
        in_channels: int,
        ch1x1: int,
        ch3x3red: int,
        ch3x3: int,
        ch5x5red: int,
        ch5x5: int,
        pool_proj: int,
        conv_block: Layer | None = None,
    ):
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch1 = conv(in_channels, ch1x1, kernel_size=1)
        self.branch2 = nn.Sequential(
            conv(in_channels, ch3x3red, kernel_size=1), conv(ch3x3red, ch3x3, kernel_size=3, padding=1)
        )
        self.branch3 = nn.Sequential(
            conv(in_channels, ch5x5red, kernel_size=1), conv(ch5x5red, ch5x5, kernel_size=3, padding=1)
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=True),
            conv(in_channels, pool_proj, kernel_size=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self._concatenate([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)])

    def _concatenate(self, branches: list[Tensor]) -> Tensor:
        return flambeau.cat(branches, 1)


class InceptionAux(nn.Module):
    """An auxiliary classifier."""

    def __init__(self, in_channels: int, num_classes: int, conv_block: Layer | None = None, dropout: float = 0.7):
        super().__init__()
        self.conv = (conv_block or BasicConv2d)(in_channels, 128, kernel_size=1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = flatten(self.conv(F.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(F.relu(self.fc1(x), inplace=True)))


def to_half_range(x: Tensor) -> Tensor:
    """Convert images normalised with ImageNet's statistics to mean and deviation 0.5."""
    red = x[:, 0] * (0.229 / 0.5) + (0.485 - 0.5) / 0.5
    green = x[:, 1] * (0.224 / 0.5) + (0.456 - 0.5) / 0.5
    blue = x[:, 2] * (0.225 / 0.5) + (0.406 - 0.5) / 0.5
    return flambeau.stack([red, green, blue], 1)


def init_truncated(model: nn.Module, deviation: Callable[[nn.Module], float]) -> None:
    """Initialise convolutions and linear layers with truncated normals, and norms with the identity."""
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(module.weight, mean=0.0, std=deviation(module), a=-2, b=2)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.weight, 1)
            nn.init.constant_(module.bias, 0)


class GoogLeNet(nn.Module):
    """Inception modules with two auxiliary classifiers."""

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool | None = None,
        blocks: Sequence[Layer] | None = None,
        dropout: float = 0.2,
        dropout_aux: float = 0.7,
    ):
        super().__init__()
        blocks = (BasicConv2d, Inception, InceptionAux) if blocks is None else blocks
        if len(blocks) != 3:
            raise ValueError(f"blocks length should be 3 instead of {len(blocks)}")
        if init_weights is None:
            warn_default("GoogleNet")
            init_weights = True
        conv, inception, auxiliary = blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = conv(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = conv(64, 64, kernel_size=1)
        self.conv3 = conv(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        for name, row in _MODULES.items():
            if name.startswith("maxpool"):
                self.add_module(name, nn.MaxPool2d(row[0], stride=row[1], ceil_mode=True))
            else:
                self.add_module(name, inception(*row))
        self.aux1 = auxiliary(512, num_classes, dropout=dropout_aux) if aux_logits else None
        self.aux2 = auxiliary(528, num_classes, dropout=dropout_aux) if aux_logits else None
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(1024, num_classes)
        if init_weights:
            init_truncated(self, lambda module: 0.01)

    def _transform_input(self, x: Tensor) -> Tensor:
        return to_half_range(x) if self.transform_input else x

    def forward(self, x: Tensor) -> Tensor | GoogLeNetOutputs:
        x = self._transform_input(x)
        x = self.maxpool2(self.conv3(self.conv2(self.maxpool1(self.conv1(x)))))
        x = self.inception4a(self.maxpool3(self.inception3b(self.inception3a(x))))
        first: Tensor | None = None
        if self.aux1 is not None and self.training:
            first = self.aux1(x)
        x = self.inception4d(self.inception4c(self.inception4b(x)))
        second: Tensor | None = None
        if self.aux2 is not None and self.training:
            second = self.aux2(x)
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(x))))
        x = self.fc(self.dropout(flatten(self.avgpool(x), 1)))
        if flambeau.jit.is_scripting() or (self.training and self.aux_logits):  # compiled code has one kind of result
            return GoogLeNetOutputs(x, second, first)
        return x


def warn_default(model: str) -> None:
    warnings.warn(
        f"{model} fills its weights with truncated normals unless told otherwise; this default may change, so please pass "
        "init_weights=True (or False).",
        FutureWarning,
        stacklevel=4,
    )


(GoogLeNet_Weights,) = weights_enums("GoogLeNet")


@model_builder(GoogLeNet_Weights)
def googlenet(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> GoogLeNet:
    """Make a GoogLeNet. With `weights`, images are re-normalised inside; auxiliary classifiers only if requested."""
    wanted = kwargs.get("aux_logits", False)
    if weights is not None:
        kwargs.setdefault("transform_input", True)
        expect_option(kwargs, "init_weights", False)
        expect_option(kwargs, "num_classes", len(weights.meta["categories"]))
        kwargs["aux_logits"] = True  # the file has them
    model = load_weights(GoogLeNet(**kwargs), weights, progress)
    if weights is not None:
        if wanted:
            warnings.warn(
                "auxiliary heads in the pretrained googlenet model are NOT pretrained, so make sure to train them",
                stacklevel=3,
            )
        else:
            model.aux_logits, model.aux1, model.aux2 = False, None, None
    return model
