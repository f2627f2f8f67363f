"""SqueezeNet (Iandola et al., 2016)."""

from __future__ import annotations

import flambeau
from flambeau import Tensor, flatten, nn

from ._api import builder, weights_enums

__all__ = ["SqueezeNet", "SqueezeNet1_0_Weights", "SqueezeNet1_1_Weights", "squeezenet1_0", "squeezenet1_1"]

# stem (width, kernel), then Fire modules by squeezed width; None is a max-pool
_VERSIONS = {
    "1_0": ((96, 7), (None, 16, 16, 32, None, 32, 48, 48, 64, None, 64)),
    "1_1": ((64, 3), (None, 16, 16, None, 32, 32, None, 48, 48, 64, 64)),
}


class Fire(nn.Module):
    """Squeeze by 1x1, then expand by 1x1 and by 3x3 in parallel."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int):
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, kernel_size=1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, kernel_size=1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, kernel_size=3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        near, wide = self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))
        return flambeau.cat([near, wide], 1)


class SqueezeNet(nn.Module):
    """Fire modules and a last convolution instead of a linear layer."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5):
        super().__init__()
        self.num_classes = num_classes
        if version not in _VERSIONS:
            raise ValueError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")
        (width, kernel), rows = _VERSIONS[version]
        features: list[nn.Module] = [nn.Conv2d(3, width, kernel_size=kernel, stride=2), nn.ReLU(inplace=True)]
        for squeezed in rows:
            if squeezed is None:
                features.append(nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True))
            else:
                features.append(Fire(width, squeezed, 4 * squeezed, 4 * squeezed))
                width = 8 * squeezed
        self.features = nn.Sequential(*features)
        last = nn.Conv2d(512, num_classes, kernel_size=1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1))
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if module is last:
                    nn.init.normal_(module.weight, mean=0.0, std=0.01)
                else:
                    nn.init.kaiming_uniform_(module.weight)
                nn.init.constant_(module.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        return flatten(self.classifier(self.features(x)), 1)


SqueezeNet1_0_Weights, SqueezeNet1_1_Weights = weights_enums("SqueezeNet1_0", "SqueezeNet1_1")
squeezenet1_0 = builder("squeezenet1_0", SqueezeNet, SqueezeNet1_0_Weights, "1_0")
squeezenet1_1 = builder("squeezenet1_1", SqueezeNet, SqueezeNet1_1_Weights, "1_1")
