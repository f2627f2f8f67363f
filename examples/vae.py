"""A variational autoencoder learns to draw digits (Kingma and Welling, 2013)."""

import argparse

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.demo import load_digits


class Autoencoder(nn.Module):
    def __init__(self, hidden: int = 96, code: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, 64))
        self.code = code

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()  # the noise stays outside the gradient
        return self.decoder(z), mean, log_variance


def loss_of(logits: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """Bits lost in the picture, and the distance of the codes from a standard normal distribution."""
    picture = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (picture + distance) / len(x)


def draw(image: torch.Tensor) -> str:
    return "\n".join("".join(" .:-=+*#%@"[min(9, int(v * 10))] * 2 for v in row) for row in image.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 3 if options.quick else options.epochs

    torch.manual_seed(0)
    images = load_digits()[0].flatten(1)  # (1797, 64)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    history: list[float] = []
    for epoch in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(options.batch_size):
            x = images[chosen]
            logits, mean, log_variance = model(x)
            loss = loss_of(logits, x, mean, log_variance)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / len(images))
        print(f"epoch {epoch + 1:2d}  loss {history[-1]:.4f}")

    with torch.no_grad():
        print(draw(model.decoder(torch.randn(1, model.code)).sigmoid().reshape(8, 8)))
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")


if __name__ == "__main__":
    main()
