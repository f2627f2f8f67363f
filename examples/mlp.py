"""A multilayer perceptron learns to read handwritten digits."""

import argparse

import flambeau as torch
from flambeau import nn
from flambeau.demo import load_digits


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 3 if options.quick else options.epochs

    torch.manual_seed(0)
    images, labels = load_digits()  # (1797, 8, 8), (1797,)
    train_images, test_images = images[:1500], images[1500:]
    train_labels, test_labels = labels[:1500], labels[1500:]

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    loss_of = nn.CrossEntropyLoss()

    history: list[float] = []
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for chosen in torch.randperm(1500).split(options.batch_size):
            optimizer.zero_grad()
            loss = loss_of(model(train_images[chosen]), train_labels[chosen])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / 1500)
        model.eval()
        print(f"epoch {epoch + 1:2d}  loss {history[-1]:.4f}  test {accuracy(model, test_images, test_labels):.1%}")

    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"test accuracy {accuracy(model, test_images, test_labels):.4f}")


if __name__ == "__main__":
    main()
