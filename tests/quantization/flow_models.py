"""Models for quantization tests, made of whatever library they are given, with the same parameters in each."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau


def layers(library: Any) -> Any:
    """Convolutions with batch norm and relu, a sum, pooling, linear layers."""
    nn, F = library.nn, library.nn.functional

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
            self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
            self.pool, self.fc, self.fc2 = nn.MaxPool2d(2), nn.Linear(8 * 16, 5), nn.Linear(5, 5)
            self.plus = library.ao.nn.quantized.FloatFunctional()

        def forward(self, x: Any) -> Any:
            x = self.relu(self.bn(self.conv(x)))
            x = self.pool(F.relu(x + self.conv2(x)))
            x = F.relu(self.fc(library.flatten(x, 1)))
            return library.sigmoid(self.plus.add(x, self.fc2(x))).reshape(-1, 5)

    return Layers()


def functions(library: Any) -> Any:
    """Functions with weights of their own, normalisation, joins, sizes, and two results."""
    nn, F = library.nn, library.nn.functional

    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(library.randn(6, 4)), nn.Parameter(library.randn(6))
            self.ln, self.hs, self.m = nn.LayerNorm(6), nn.Hardswish(), nn.Parameter(library.randn(6, 6))

        def forward(self, x: Any) -> Any:
            x = F.relu(F.linear(x.flatten(1)[:, :4], self.w, self.b))
            x = F.leaky_relu(self.hs(self.ln(F.linear(x, self.m))), 0.1)
            x = library.cat([x, x * 2.0, x + 1], 1)
            x = x.view(x.size(0), -1)
            return F.hardtanh(x).mean(1), library.tanh(x)

    return Functions()


def stubbed(library: Any) -> Any:
    """Convolution, batch norm, relu and a linear layer between stubs, for the eager flow."""
    nn, quantization = library.nn, library.ao.quantization

    class Stubbed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
            self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
            self.pool, self.fc = nn.AdaptiveAvgPool2d(2), nn.Linear(32, 5)
            self.plus = library.ao.nn.quantized.FloatFunctional()

        def forward(self, x: Any) -> Any:
            x = self.relu(self.bn(self.conv(self.quant(x))))
            x = self.fc(self.pool(self.plus.add(x, x)).flatten(1))
            return self.dequant(x)

    return Stubbed()


def recurrent(library: Any) -> Any:
    """An LSTM and a linear layer."""
    nn = library.nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.fc = nn.LSTM(6, 8, num_layers=2, bidirectional=True), nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(self.lstm(x)[0][-1])

    return Recurrent()


def warmed(build: Any, library: Any, batches: Any) -> Any:
    """A model with the parameters of the library's random numbers, which are the same in both, and running averages of some batches."""
    model = build(library)
    for x in batches:
        model(library.tensor(x))
    return model


def twins(build: Any, torch: Any, warm: Any = None) -> tuple[Any, Any]:
    """The model in PyTorch and in Flambeau, with PyTorch's parameters; `warm` is data for the running averages."""
    torch.manual_seed(0)
    theirs, ours = build(torch), build(flambeau)
    if warm is not None:
        for x in warm:
            theirs(torch.tensor(x))
    ours.load_state_dict({k: flambeau.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return theirs, ours


def data(shape: tuple[int, ...], count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]


def difference(a: Any, b: Any) -> float:
    """The largest difference between results of the two libraries."""
    if isinstance(a, (tuple, list)):
        return max(difference(x, y) for x, y in zip(a, b, strict=True))
    return float(np.abs(a.detach().numpy() - b.detach().numpy()).max())
