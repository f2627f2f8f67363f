"""A network trained on digits 0 to 4 is taught 5 to 9: first layer frozen, the rest slow, a new head fast."""

import argparse

import flambeau as torch
from flambeau import nn
from flambeau.demo import load_digits


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: torch.Tensor,
    labels: torch.Tensor,
    epochs: int,
    batch_size: int,
) -> list[float]:
    """The mean loss of each epoch."""
    history: list[float] = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / len(images))
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 6 if options.quick else options.epochs

    torch.manual_seed(0)
    images, labels = load_digits()
    images = images.flatten(1)
    first = labels < 5
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    history = train(model, optimizer, images[first], labels[first], epochs, options.batch_size)
    print(f"digits 0-4: loss {history[0]:.4f} -> {history[-1]:.4f}")

    model[0].requires_grad_(False)  # no gradients are computed or stored for this layer
    frozen = model[0].weight.clone()
    model[4] = nn.Linear(48, 5)
    optimizer = torch.optim.Adam(
        [{"params": model[2].parameters(), "lr": 1e-3}, {"params": model[4].parameters(), "lr": 1e-2}]
    )
    new_images, new_labels = images[~first], labels[~first] - 5
    history = train(model, optimizer, new_images[:700], new_labels[:700], epochs, options.batch_size)
    with torch.no_grad():
        right = (model(new_images[700:]).argmax(1) == new_labels[700:]).float().mean().item()
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trained {trainable} of {sum(p.numel() for p in model.parameters())} parameters")
    print(f"first layer unchanged: {torch.equal(frozen, model[0].weight)}")
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
