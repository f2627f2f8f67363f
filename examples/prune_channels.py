"""Half of a network's channels are removed, not just set to zero: smaller layers, fewer products; then it is trained on."""

import argparse

import flambeau as torch
from flambeau import nn
from flambeau.demo import load_digits
from flambeau.nn import functional as F


def build() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 4, 10),
    )  # fmt: skip


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int, lr: float) -> list[float]:
    """The mean loss of each epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    history: list[float] = []
    model.train()
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(64):
            loss = F.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / len(images))
    return history


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


@torch.no_grad()
def remove_channels(model: nn.Sequential, conv: int, following: int, share: float, size: int = 1) -> None:
    """Removes the channels of model[conv] that matter least (by their batch norm's scale), in all layers that know them."""
    norm = model[conv + 1]
    kept = norm.weight.abs().topk(int(norm.num_features * (1 - share))).indices.sort().values
    old = model[conv]
    model[conv] = nn.Conv2d(old.in_channels, len(kept), old.kernel_size, padding=old.padding)
    model[conv + 1] = nn.BatchNorm2d(len(kept))
    for made, source in ((model[conv], old), (model[conv + 1], norm)):
        made.load_state_dict({k: v[kept] if v.dim() else v for k, v in source.state_dict().items()})
    inputs = (kept[:, None] * size + torch.arange(size)).flatten()  # what the next layer still gets
    model[following].weight = nn.Parameter(model[following].weight[:, inputs])
    setattr(model[following], "in_features" if size > 1 else "in_channels", len(inputs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run")
    epochs = 4 if parser.parse_args().quick else 12
    torch.manual_seed(0)
    images, labels = load_digits()
    images, (train_images, train_labels) = images.unsqueeze(1), (images[:1500, None], labels[:1500])
    model = build()
    history = train(model, train_images, train_labels, epochs, 0.05)
    before, count = accuracy(model, images[1500:], labels[1500:]), sum(p.numel() for p in model.parameters())
    remove_channels(model, 0, following=4, share=0.5)
    remove_channels(model, 4, following=9, share=0.5, size=4)
    cut = accuracy(model, images[1500:], labels[1500:])
    history += train(model, train_images, train_labels, epochs // 2, 0.01)
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"all {count} parameters: test accuracy {before:.4f}")
    left, after = sum(p.numel() for p in model.parameters()), accuracy(model, images[1500:], labels[1500:])
    print(f"{left} parameters are left: {cut:.4f} at once, test accuracy {after:.4f}")


if __name__ == "__main__":
    main()
