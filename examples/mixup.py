"""Mixup: the network trains on blends of two images and their labels (Zhang et al., 2017)."""

import argparse
import random

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.demo import load_digits


def mix(images: torch.Tensor, labels: torch.Tensor, alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Every image blended with another one of the batch, and the labels in the same proportion."""
    share = random.betavariate(alpha, alpha)
    partner = torch.randperm(len(images))
    targets = F.one_hot(labels, 10).float()
    return torch.lerp(images[partner], images, share), torch.lerp(targets[partner], targets, share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 4 if options.quick else options.epochs

    torch.manual_seed(0)
    random.seed(0)
    images, labels = load_digits()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    history: list[float] = []
    for epoch in range(epochs):
        total = 0.0
        for chosen in torch.randperm(1500).split(32):
            x, targets = mix(images[chosen], labels[chosen], options.alpha)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), targets)  # labels may be probabilities
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / 1500)
        print(f"epoch {epoch + 1:2d}  loss {history[-1]:.4f}")

    with torch.no_grad():
        right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
