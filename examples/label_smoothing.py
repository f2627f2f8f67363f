"""Label smoothing: a network trained on softened labels is less sure of itself, and its confidence fits better."""

import argparse

import flambeau as torch
from flambeau import nn
from flambeau.demo import load_digits


def train(smoothing: float, images: torch.Tensor, labels: torch.Tensor, epochs: int) -> tuple[nn.Module, float, float]:
    """A network, and the mean loss of its first and last epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = nn.CrossEntropyLoss(label_smoothing=smoothing)
    history: list[float] = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = loss_of(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / len(images))
    return model, history[0], history[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 3 if options.quick else options.epochs

    images, labels = load_digits()
    for smoothing in (0.0, options.smoothing):
        model, first, last = train(smoothing, images[:1500], labels[:1500], epochs)
        with torch.no_grad():
            confidence, guess = model(images[1500:]).softmax(1).max(1)
        right = (guess == labels[1500:]).float().mean().item()
        print(f"smoothing {smoothing}: loss {first:.4f} -> {last:.4f}")
        print(f"  test accuracy {right:.4f}, mean confidence {confidence.mean().item():.4f}")


if __name__ == "__main__":
    main()
