"""A layer and a loss of one's own: a gated residual block, and a loss that looks hardest at hard examples."""

import argparse

import flambeau as torch
from flambeau import nn
from flambeau.demo import load_digits


class GatedResidual(nn.Module):
    """x + gate(x) * change(x): the block decides for itself how much to change."""

    calls: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.change = nn.Linear(width, width)
        self.gate_weight = nn.Parameter(torch.zeros(width, width))
        self.gate_bias = nn.Parameter(torch.full((width,), -1.0))  # starts mostly closed
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        h = self.norm(x)
        gate = torch.sigmoid(h @ self.gate_weight + self.gate_bias)
        return x + gate * torch.tanh(self.change(h))


class FocalLoss(nn.Module):
    """Cross entropy, scaled down where the network is already right (Lin et al., 2017)."""

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        log_probability = logits.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1)
        return -((1 - log_probability.exp()) ** self.gamma * log_probability).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--gamma", type=float, default=2.0)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    epochs = 3 if options.quick else options.epochs

    torch.manual_seed(0)
    images, labels = load_digits()
    blocks = [GatedResidual(64) for _ in range(3)]
    model = nn.Sequential(nn.Flatten(), *blocks, nn.Linear(64, 10))
    loss_of = FocalLoss(options.gamma)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    history: list[float] = []
    for epoch in range(epochs):
        total = 0.0
        for chosen in torch.randperm(1500).split(64):
            optimizer.zero_grad()
            loss = loss_of(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / 1500)
        print(f"epoch {epoch + 1:2d}  loss {history[-1]:.4f}")

    with torch.no_grad():
        right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"the first block was called {blocks[0].calls.item()} times")
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
