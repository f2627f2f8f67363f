"""Hooks read a trained network's inner features; the nearest class centre among them recognises digits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.demo import load_digits


class Recorder:
    """Keeps the latest output of chosen layers, while the `with` block is open."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        self.features: dict[str, torch.Tensor] = {}
        layers = dict(model.named_modules())
        self.handles = [layers[name].register_forward_hook(self.keep(name)) for name in names]

    def keep(self, name: str) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            self.features[name] = output.detach()

        return hook

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *problem: object) -> None:
        for handle in self.handles:
            handle.remove()


def nearest_centre_accuracy(
    train: torch.Tensor, train_labels: torch.Tensor, test: torch.Tensor, test_labels: torch.Tensor
) -> float:
    centres = torch.stack([train[train_labels == digit].mean(0) for digit in range(10)])
    return float((torch.cdist(test, centres).argmin(1) == test_labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 4 if options.quick else options.epochs

    torch.manual_seed(0)
    images, labels = load_digits()
    images = images.flatten(1)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for chosen in torch.randperm(1500).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()

    with torch.no_grad(), Recorder(model, ["1", "3"]) as recorder:
        model(images)
    score = nearest_centre_accuracy(images[:1500], labels[:1500], images[1500:], labels[1500:])
    scores = [score]
    print(f"pixels   {tuple(images.shape)}  accuracy {score:.4f}")
    for name, values in recorder.features.items():
        scores.append(nearest_centre_accuracy(values[:1500], labels[:1500], values[1500:], labels[1500:]))
        print(f"layer {name}  {tuple(values.shape)}  accuracy {scores[-1]:.4f}")
    print(f"accuracy {scores[0]:.4f} -> {scores[-1]:.4f}")


if __name__ == "__main__":
    main()
