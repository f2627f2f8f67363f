"""A small transformer learns to sort: it sees numbers and must name them in order."""

import argparse

import flambeau as torch
from flambeau import nn


class Sorter(nn.Module):
    """Numbers attend to each other; each place then says which number belongs there."""

    def __init__(self, numbers: int = 16, length: int = 8, width: int = 48, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(numbers, width)
        self.place = nn.Parameter(torch.randn(length, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, numbers)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:  # (B, T) -> (B, T, numbers)
        return self.head(self.encoder(self.embedding(numbers) + self.place))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    steps = 40 if options.quick else options.steps

    torch.manual_seed(0)
    model = Sorter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    history: list[float] = []
    for step in range(steps):
        numbers = torch.randint(0, 16, (options.batch_size, 8))
        target = numbers.sort(dim=1).values
        loss = nn.functional.cross_entropy(model(numbers).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        history.append(loss.item())
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:4d}  loss {history[-1]:.4f}")

    model.eval()
    numbers = torch.randint(0, 16, (256, 8))
    with torch.no_grad():
        guess = model(numbers).argmax(-1)
    right = (guess == numbers.sort(dim=1).values).float().mean().item()
    print(f"{numbers[0].tolist()} sorted by the network: {guess[0].tolist()}")
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"places right {right:.4f}")


if __name__ == "__main__":
    main()
