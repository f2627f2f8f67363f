"""The networks that the training benchmark and the training tests share, written once for any library with PyTorch's
interface: every function takes the library (`flambeau` or `torch`) as its first argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def mlp(lib: Any) -> Any:
    """784-256-128-10"""
    nn = lib.nn
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn(lib: Any, dropout: float = 0.25) -> Any:
    """Two convolutions with batch norm on MNIST-sized images."""
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


def resnet18(lib: Any, classes: int = 10) -> Any:
    """ResNet-18 as it is used on CIFAR: a 3x3 stem without pooling."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            out = nn.functional.relu(self.bn1(self.conv1(x)))
            return nn.functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))

    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def gpt(lib: Any, layers: int = 4, width: int = 128, heads: int = 4, context: int = 128, vocabulary: int = 65) -> Any:
    """A small decoder-only transformer."""
    nn, F = lib.nn, lib.nn.functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (p.view(b, t, heads, c // heads).transpose(1, 2) for p in self.qkv(x).split(c, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(b, t, c))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.feed(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.place(lib.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.norm(self.blocks(x)))

    return GPT()


def language_lstm(lib: Any, vocabulary: int = 1000, width: int = 256, layers: int = 2) -> Any:
    """An LSTM language model."""
    nn = lib.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocabulary, width)
            self.rnn = nn.LSTM(width, width, layers)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.rnn(self.embed(tokens))[0])

    return Model()


def encoder(lib: Any, width: int = 32, classes: int = 10) -> Any:
    """A transformer encoder that classifies sequences, with dropout."""
    nn = lib.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, width)
            layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(width, classes)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.encoder(self.embed(tokens) * math.sqrt(width)).mean(1))

    return Model()


def vae(lib: Any) -> Any:
    """A variational autoencoder; calling it returns its loss."""
    nn, F = lib.nn, lib.nn.functional

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.mean, self.spread = nn.Linear(784, 128), nn.Linear(128, 16), nn.Linear(128, 16)
            self.outer = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784))

        def forward(self, x: Any) -> Any:
            hidden = F.relu(self.inner(x))
            mean, log_variance = self.mean(hidden), self.spread(hidden)
            sample = mean + lib.randn_like(mean) * lib.exp(0.5 * log_variance)
            rebuilt = lib.sigmoid(self.outer(sample))
            error = F.binary_cross_entropy(rebuilt, x, reduction="sum")
            return (error - 0.5 * lib.sum(1 + log_variance - mean.pow(2) - log_variance.exp())) / x.shape[0]

    return Model()


def classification(
    lib: Any, make: Callable[[Any], Any], shape: tuple[int, ...], optimizer: Callable[[Any, Any], Any], labels: int = 10
) -> Callable[[], Any]:
    """A training step on fixed random images; returns the loss tensor."""
    generator = np.random.default_rng(0)
    images = lib.as_tensor(generator.standard_normal(shape, dtype=np.float32))
    targets = lib.as_tensor(generator.integers(0, labels, shape[0]))
    model = make(lib)
    update = optimizer(lib, model.parameters())

    def step() -> Any:
        update.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(images), targets)
        loss.backward()
        update.step()
        return loss

    step.model = model  # type: ignore[attr-defined]
    return step


def sequence(
    lib: Any,
    make: Callable[[Any], Any],
    shape: tuple[int, ...],
    vocabulary: int,
    optimizer: Callable[[Any, Any], Any],
    per_token: bool = True,
) -> Callable[[], Any]:
    """A training step on fixed random token sequences."""
    generator = np.random.default_rng(0)
    tokens = lib.as_tensor(generator.integers(0, min(vocabulary, 50), shape))
    targets = lib.as_tensor(generator.integers(0, vocabulary if per_token else 10, shape if per_token else shape[0]))
    model = make(lib)
    update = optimizer(lib, model.parameters())

    def step() -> Any:
        update.zero_grad()
        out = model(tokens)
        loss = lib.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), targets.reshape(-1))
        loss.backward()
        update.step()
        return loss

    step.model = model  # type: ignore[attr-defined]
    return step


def autoencoding(lib: Any, optimizer: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    generator = np.random.default_rng(0)
    images = lib.as_tensor(generator.random((64, 784), dtype=np.float32))
    model = vae(lib)
    update = optimizer(lib, model.parameters())

    def step() -> Any:
        update.zero_grad()
        loss = model(images)
        loss.backward()
        update.step()
        return loss

    step.model = model  # type: ignore[attr-defined]
    return step


def adam(lib: Any, parameters: Any) -> Any:
    return lib.optim.Adam(parameters, lr=1e-3)


def adamw(lib: Any, parameters: Any) -> Any:
    return lib.optim.AdamW(parameters, lr=3e-4)


def sgd(lib: Any, parameters: Any) -> Any:
    return lib.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4)
