"""S3D (Xie et al., 2018): an inception network whose convolutions over space and over time are separate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn

from ...ops.misc import Conv3dNormActivation
from .._api import builder, weights_enums

__all__ = ["S3D", "S3D_Weights", "s3d"]

Layer = Callable[..., nn.Module]


class TemporalSeparableConv(nn.Sequential):
    """A convolution over space and one over time, each with normalisation and ReLU."""

    def __init__(self, in_planes: int, out_planes: int, kernel_size: int, stride: int, padding: int, norm_layer: Layer):
        k, s, p = kernel_size, stride, padding
        options: dict[str, Any] = {"bias": False, "norm_layer": norm_layer}
        super().__init__(
            Conv3dNormActivation(in_planes, out_planes, (1, k, k), stride=(1, s, s), padding=(0, p, p), **options),
            Conv3dNormActivation(out_planes, out_planes, (k, 1, 1), stride=(s, 1, 1), padding=(p, 0, 0), **options),
        )


class SepInceptionBlock3D(nn.Module):
    """Four branches, concatenated: 1x1x1, two separable 3x3x3, and pooling."""

    def __init__(
        self,
        in_planes: int,
        b0_out: int,
        b1_mid: int,
        b1_out: int,
        b2_mid: int,
        b2_out: int,
        b3_out: int,
        norm_layer: Layer,
    ):
        super().__init__()

        def point(inside: int, outside: int) -> nn.Module:
            return Conv3dNormActivation(inside, outside, kernel_size=1, stride=1, norm_layer=norm_layer)

        def separable(inside: int, outside: int) -> nn.Module:
            return TemporalSeparableConv(inside, outside, 3, 1, 1, norm_layer)

        self.branch0 = point(in_planes, b0_out)
        self.branch1 = nn.Sequential(point(in_planes, b1_mid), separable(b1_mid, b1_out))
        self.branch2 = nn.Sequential(point(in_planes, b2_mid), separable(b2_mid, b2_out))
        self.branch3 = nn.Sequential(nn.MaxPool3d(kernel_size=(3, 3, 3), stride=1, padding=1), point(in_planes, b3_out))

    def forward(self, x: Tensor) -> Tensor:
        return flambeau.cat((self.branch0(x), self.branch1(x), self.branch2(x), self.branch3(x)), 1)


class S3D(nn.Module):
    """Separable inception network over videos (B, 3, T, H, W)."""

    def __init__(self, num_classes: int = 400, dropout: float = 0.2, norm_layer: Layer | None = None):
        super().__init__()
        norm = norm_layer or partial(nn.BatchNorm3d, eps=0.001, momentum=0.001)

        def halved() -> nn.Module:
            return nn.MaxPool3d(kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))

        block = partial(SepInceptionBlock3D, norm_layer=norm)
        self.features = nn.Sequential(
            TemporalSeparableConv(3, 64, 7, 2, 3, norm),
            halved(),
            Conv3dNormActivation(64, 64, kernel_size=1, stride=1, norm_layer=norm),
            TemporalSeparableConv(64, 192, 3, 1, 1, norm),
            halved(),
            block(192, 64, 96, 128, 16, 32, 32),
            block(256, 128, 128, 192, 32, 96, 64),
            nn.MaxPool3d(kernel_size=(3, 3, 3), stride=(2, 2, 2), padding=(1, 1, 1)),
            block(480, 192, 96, 208, 16, 48, 64),
            block(512, 160, 112, 224, 24, 64, 64),
            block(512, 128, 128, 256, 24, 64, 64),
            block(512, 112, 144, 288, 32, 64, 64),
            block(528, 256, 160, 320, 32, 128, 128),
            nn.MaxPool3d(kernel_size=(2, 2, 2), stride=(2, 2, 2), padding=(0, 0, 0)),
            block(832, 256, 160, 320, 32, 128, 128),
            block(832, 384, 192, 384, 48, 128, 128),
        )
        self.avgpool = nn.AvgPool3d(kernel_size=(2, 7, 7), stride=1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), nn.Conv3d(1024, num_classes, kernel_size=1, stride=1, bias=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        return flambeau.mean(self.classifier(self.avgpool(self.features(x))), dim=(2, 3, 4))


(S3D_Weights,) = weights_enums("S3D")
s3d = builder("s3d", S3D, S3D_Weights)
