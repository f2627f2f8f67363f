"""Modules that several of the notes' programs use, made of the library that the programs run on."""

from __future__ import annotations


def network(nn):
    """A convolution, a normalisation and a linear layer, with an initialisation of their own."""

    class Network(nn.Module):
        def __init__(self, channels=64, side=14, classes=512):
            super().__init__()
            self.conv1 = nn.Conv2d(3, channels, kernel_size=3, stride=1, padding=1)
            self.bn1 = nn.BatchNorm2d(channels)
            self.relu = nn.ReLU()
            self.maxpool = nn.MaxPool2d(kernel_size=2, stride=2)
            self.fc = nn.Linear(channels * side * side, classes)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.xavier_normal_(m.weight)
                elif isinstance(m, (nn.BatchNorm2d, nn.BatchNorm1d)):
                    nn.init.constant_(m.weight, 1)
                    nn.init.constant_(m.bias, 0)
                elif isinstance(m, nn.Linear):
                    nn.init.xavier_normal_(m.weight)
                    nn.init.constant_(m.bias, 0)

        def forward(self, x):
            x = self.conv1(x)
            x = self.bn1(x)
            x = self.relu(x)
            x = self.maxpool(x)
            x = x.view(x.size(0), -1)
            x = self.fc(x)
            return x

    return Network


def feature_extractor(torch):
    """What chosen layers of a model make of an image."""

    class FeatureExtractor(torch.nn.Module):
        def __init__(self, pretrained_model, layers_to_extract):
            torch.nn.Module.__init__(self)
            self._model = pretrained_model
            self._model.eval()
            self._layers_to_extract = set(layers_to_extract)

        def forward(self, x):
            with torch.no_grad():
                conv_representation = []
                for name, layer in self._model.named_children():
                    x = layer(x)
                    if name in self._layers_to_extract:
                        conv_representation.append(x)
                return conv_representation

    return FeatureExtractor
