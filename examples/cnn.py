"""A convolutional network learns to read handwritten digits, with a learning rate that warms up and cools down."""

import argparse

import flambeau as torch
from flambeau import nn
from flambeau.demo import load_digits


class Network(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),  # (B, W, 4, 4)
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        )  # fmt: skip
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 2 if options.quick else options.epochs

    torch.manual_seed(0)
    images, labels = load_digits()
    images = images.unsqueeze(1)  # (B, 1, 8, 8)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=1e-4)
    steps = epochs * -(-1500 // options.batch_size)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=steps)

    history: list[float] = []
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for chosen in torch.randperm(1500).split(options.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(chosen)
        history.append(total / 1500)
        print(f"epoch {epoch + 1:2d}  loss {history[-1]:.4f}")

    model.eval()
    with torch.no_grad():
        right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
