"""`flambeau demo`: a small network, written with tensors and autograd, learns to read digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import flambeau as torch

from .utils.picture import glyph, write_png
from .utils.progress import Progress

DIGITS = Path(__file__).parent / "data" / "digits.npz"
TEST_SHARE = 297  # the last images are kept for testing


def load_digits() -> tuple[Any, Any]:
    """1797 images of 8x8 pixels in 0..1, and their labels (the UCI handwritten digits)."""
    with np.load(DIGITS) as file:
        images, labels = file["images"], file["labels"]
    return torch.from_numpy(images.astype(np.float32) / 16), torch.from_numpy(labels.astype(np.int64))


class Network:
    """Two hidden layers, written out: parameters are tensors that require grad."""

    def __init__(self, sizes: tuple[int, ...] = (64, 128, 64, 10)):
        self.layers = []
        for fan_in, fan_out in zip(sizes, sizes[1:]):
            weight = torch.randn(fan_in, fan_out) * (2 / fan_in) ** 0.5
            self.layers.append((weight.requires_grad_(), torch.zeros(fan_out, requires_grad=True)))

    def parameters(self) -> list:
        return [p for layer in self.layers for p in layer]

    def __call__(self, x: Any) -> Any:
        for weight, bias in self.layers[:-1]:
            x = torch.relu(x @ weight + bias)
        weight, bias = self.layers[-1]
        return x @ weight + bias


def cross_entropy(logits: Any, labels: Any) -> Any:
    log_probabilities = logits.log_softmax(1)
    return -log_probabilities.gather(1, labels.unsqueeze(1)).mean()


def accuracy(network: Network, images: Any, labels: Any) -> float:
    with torch.no_grad():
        return (network(images).argmax(1) == labels).float().mean().item()


def train(epochs: int, batch: int, rate: float, seed: int) -> tuple[Network, list[float], Any, Any]:
    """Stochastic gradient descent with momentum; returns the network, the loss per epoch and the test set."""
    torch.manual_seed(seed)
    images, labels = load_digits()
    images = images.reshape(len(images), -1)
    count = len(images) - TEST_SHARE
    test_images, test_labels = images[count:], labels[count:]
    network = Network()
    velocity = [torch.zeros_like(p) for p in network.parameters()]
    losses: list[float] = []
    bar = Progress(range(epochs), "training")
    for epoch in bar:
        order = torch.randperm(count)
        total = 0.0
        for start in range(0, count, batch):
            chosen = order[start : start + batch]
            loss = cross_entropy(network(images[chosen]), labels[chosen])
            loss.backward()
            with torch.no_grad():
                for p, v in zip(network.parameters(), velocity):
                    v.mul_(0.9).add_(p.grad)
                    p -= rate * v
                    p.grad = None
            total += loss.item() * len(chosen)
        losses.append(total / count)
        bar.show(f"loss {losses[-1]:.4f}")
        if not bar.visible and (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1:3d}  loss {losses[-1]:.4f}", flush=True)
    return network, losses, test_images, test_labels


def draw_predictions(network: Network, images: Any, labels: Any, path: str, columns: int = 16, rows: int = 8) -> None:
    """A grid of test images, each with the predicted digit: green where right, red where wrong."""
    with torch.no_grad():
        predicted = network(images).argmax(1).tolist()
    cell_height, cell_width, scale = 8 * 4 + 4, 8 * 4 + 18, 4
    canvas = np.full((rows * cell_height, columns * cell_width, 3), 255, np.uint8)
    for k in range(min(rows * columns, len(predicted))):
        y, x = k // columns * cell_height + 2, k % columns * cell_width + 2
        image = 255 - (images[k].reshape(8, 8).numpy() * 255).astype(np.uint8)
        canvas[y : y + 32, x : x + 32] = np.kron(image, np.ones((scale, scale), np.uint8))[:, :, None]
        mark = np.kron(glyph(predicted[k]), np.ones((scale, scale), np.uint8)).astype(bool)[:20, :12]
        colour = (20, 140, 60) if predicted[k] == labels[k].item() else (200, 30, 30)
        canvas[y + 6 : y + 26, x + 34 : x + 46][mark] = colour
    write_png(path, canvas)


def main(epochs: int = 40, output: str = "digits.png") -> float:
    network, losses, images, labels = train(epochs, batch=32, rate=0.02, seed=0)
    score = accuracy(network, images, labels)
    draw_predictions(network, images, labels, output)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}, test accuracy {score:.1%} on {len(images)} unseen digits")
    print(f"predictions drawn in {output}")
    return score
