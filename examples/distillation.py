"""A small network learns from a large one: it is shown how the large one's doubts are spread over all digits."""

import argparse

import flambeau as torch
from flambeau import Tensor, nn
from flambeau.demo import load_digits
from flambeau.nn import functional as F

TEMPERATURE, SHARE = 4.0, 0.7  # how soft the teacher's answers are, and how much they count


def network(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def distillation_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """The student is to be right, and to spread its probabilities as the teacher does at this temperature."""
    ours, theirs = (F.log_softmax(scores / TEMPERATURE, 1) for scores in (student, teacher))
    soft = F.kl_div(ours, theirs, reduction="batchmean", log_target=True)
    return SHARE * TEMPERATURE**2 * soft + (1 - SHARE) * F.cross_entropy(student, labels)


def train(
    model: nn.Module, images: Tensor, labels: Tensor, epochs: int, teacher: nn.Module | None = None
) -> list[float]:
    """The mean loss of each epoch; with a teacher, it is the distillation loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    history: list[float] = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(32):
            logits = model(images[chosen])
            if teacher is None:
                loss = F.cross_entropy(logits, labels[chosen])
            else:
                with torch.no_grad():
                    wanted = teacher(images[chosen])
                loss = distillation_loss(logits, wanted, labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        history.append(total / len(images))
    return history


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run")
    epochs = 8 if parser.parse_args().quick else 30
    images, labels = load_digits()
    images, test_images, test_labels = images.flatten(1)[:1500], images.flatten(1)[1500:], labels[1500:]
    labels = labels[:1500]

    torch.manual_seed(0)
    teacher = network(256)
    history = train(teacher, images, labels, epochs)
    print(f"teacher: loss {history[0]:.4f} -> {history[-1]:.4f}")
    print(f"teacher, {sum(p.numel() for p in teacher.parameters())} parameters: test accuracy "
          f"{accuracy(teacher, test_images, test_labels):.4f}")  # fmt: skip
    for name, source in (("alone", None), ("taught", teacher)):
        torch.manual_seed(1)
        student = network(12)
        history = train(student, images, labels, epochs, source)
        print(f"student {name}: loss {history[0]:.4f} -> {history[-1]:.4f}")
        print(f"student {name}, {sum(p.numel() for p in student.parameters())} parameters: test accuracy "
              f"{accuracy(student, test_images, test_labels):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
