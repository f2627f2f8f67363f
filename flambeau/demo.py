"""`flambeau demo`: a small convolutional network learns to read digits, as a PyTorch user would write it.

Data set, loader, schedule, checkpoints, and at the end one image: curves and predictions. An interrupted run is continued with `--resume`
and ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

import flambeau as torch

from . import nn, optim
from .nn import functional as F
from .optim import lr_scheduler
from .utils import data, picture, progress

DIGITS = Path(__file__).parent / "data" / "digits.npz"
TEST_COUNT = 297  # the last images, by other writers, are kept for testing
GREEN, RED, BLUE, ORANGE = (20, 140, 60), (200, 30, 30), (40, 90, 190), (220, 120, 20)


def load_digits() -> tuple[Any, Any]:
    """Return the UCI handwritten digits: 1797 images of 8x8 pixels from 0 to 1, and their labels."""
    with np.load(DIGITS) as file:
        images, labels = file["images"], file["labels"]
    return torch.from_numpy(images.astype(np.float32) / 16), torch.from_numpy(labels.astype(np.int64))


class Digits(data.Dataset):
    """The digits for training or for testing. Training images are moved by up to a pixel each time they are read."""

    def __init__(self, train: bool = True):
        images, labels = load_digits()
        part = slice(None, -TEST_COUNT) if train else slice(-TEST_COUNT, None)
        self.images, self.labels = images[part].unsqueeze(1), labels[part]
        self.train = train

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index]
        if self.train:
            down, right = torch.randint(0, 3, (2,)).tolist()
            image = F.pad(image, (1, 1, 1, 1))[:, down : down + 8, right : right + 8]
        return image, int(self.labels[index])


class ConvNet(nn.Module):
    """Two blocks of convolution, batch norm, ReLU and pooling, then one linear layer."""

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.layer1 = self.block(1, 16)
        self.layer2 = self.block(16, 32)
        self.fc = nn.Linear(2 * 2 * 32, num_classes)

    @staticmethod
    def block(channels_in: int, channels_out: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(channels_in, channels_out, kernel_size=5, stride=1, padding=2),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2),
        )

    def forward(self, x: Any) -> Any:
        out = self.layer2(self.layer1(x))
        return self.fc(out.reshape(out.size(0), -1))


@dataclass
class History:
    """Losses and test accuracies of a training run, one number per epoch, for the drawing at the end."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    @property
    def best(self) -> int:
        """The epoch, counted from 1, after which the most test digits were read correctly; the first of equals."""
        return 1 + max(range(len(self.accuracies)), key=self.accuracies.__getitem__)


class Training:
    """Contents of a checkpoint: network, optimizer, schedule, history and the random generator."""

    def __init__(self, epochs: int, batch: int = 32, workers: int = 0, seed: int = 0):
        torch.manual_seed(seed)
        self.epochs = epochs
        self.model = ConvNet()
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
        warm_up = lr_scheduler.LinearLR(self.optimizer, start_factor=0.2, total_iters=2)
        cool_down = lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=max(1, epochs - 2))
        self.schedule = lr_scheduler.SequentialLR(self.optimizer, [warm_up, cool_down], milestones=[2])
        self.train_loader = data.DataLoader(Digits(train=True), batch, shuffle=True, num_workers=workers)
        self.test_loader = data.DataLoader(Digits(train=False), 99)
        self.history = History()

    @property
    def epoch(self) -> int:
        """Epochs done so far."""
        return len(self.history.losses)

    def run(self, until: int | None = None, checkpoint: str | Path | None = None) -> None:
        """Train up to epoch `until` (default: all), saving a checkpoint after each epoch."""
        bar = progress.Progress(range(self.epoch, self.epochs if until is None else until), "training")
        for _ in bar:
            loss = self.train_epoch()
            self.history.losses.append(loss)
            self.history.accuracies.append(self.test_accuracy())
            self.schedule.step()
            text = f"loss {loss:.4f}, test accuracy {self.history.accuracies[-1]:.1%}"
            bar.show(text)
            if not bar.visible:
                print(f"epoch {self.epoch:3d}  {text}", flush=True)
            if checkpoint is not None:
                self.save(checkpoint)

    def train_epoch(self) -> float:
        self.model.train()
        total = 0.0
        for images, labels in self.train_loader:
            loss = F.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(labels)
        return total / len(self.train_loader.dataset)

    def test_accuracy(self) -> float:
        right = sum((self.predict(images) == labels).sum().item() for images, labels in self.test_loader)
        return right / len(self.test_loader.dataset)

    @torch.no_grad()
    def predict(self, images: Any) -> Any:
        self.model.eval()
        return self.model(images).argmax(1)

    def save(self, path: str | Path) -> None:
        state = {
            "epochs": self.epochs,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "history": vars(self.history),
            "random": torch.get_rng_state(),
        }
        torch.save(state, path)

    def load(self, path: str | Path) -> None:
        state = torch.load(path)
        if state["epochs"] != self.epochs:
            raise ValueError(f"{path} is of a run of {state['epochs']} epochs, not {self.epochs}: its schedule differs")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.history = History(**state["history"])
        torch.set_rng_state(state["random"])


def draw(training: Training, path: str | Path, columns: int = 18, rows: int = 6) -> None:
    """Draw the curves of a run above a grid of test images, each with its predicted digit (green if right, red if wrong),
    and write the image to `path`. Matplotlib draws it where it is installed, else the package's own small canvas."""
    images, labels = next(iter(data.DataLoader(Digits(train=False), rows * columns)))
    guesses = list(zip(images, labels.tolist(), training.predict(images).tolist()))
    if find_spec("matplotlib") is None:
        _draw_on_canvas(training.history, guesses, columns, rows).write(path)
    else:
        _draw_with_matplotlib(training.history, guesses, columns, rows).savefig(path, dpi=100)


def _draw_on_canvas(history: History, guesses: list[tuple[Any, int, int]], columns: int, rows: int) -> picture.Canvas:
    cell_width, cell_height = 50, 38
    canvas = picture.Canvas(columns * cell_width, 240 + rows * cell_height)
    half = canvas.width // 2
    canvas.plot((48, 20, half - 20, 200), history.losses, BLUE, "training loss per epoch", low=0.0)
    accuracies = [100 * a for a in history.accuracies]
    title = f"test accuracy % per epoch: best {accuracies[history.best - 1]:.1f} in epoch {history.best}"
    canvas.plot((half + 48, 20, canvas.width - 20, 200), accuracies, ORANGE, title, high=100.0)
    canvas.text(2, 222, "predicted digits:")
    canvas.text(146, 222, "green is right", GREEN)
    canvas.text(266, 222, "red is wrong", RED)
    for k, (image, label, guess) in enumerate(guesses):
        x, y = k % columns * cell_width + 2, 240 + k // columns * cell_height
        canvas.image(x, y, 255 - (image[0].numpy() * 255).astype(np.uint8), scale=4)
        canvas.text(x + 34, y + 6, str(guess), GREEN if guess == label else RED, scale=4)
    return canvas


def _draw_with_matplotlib(history: History, guesses: list[tuple[Any, int, int]], columns: int, rows: int) -> Any:
    figure = import_module("matplotlib.figure").Figure(figsize=(columns * 0.6, 3.6 + rows * 0.66), layout="constrained")
    curves, digits = figure.subfigures(2, 1, height_ratios=(3.6, rows * 0.66))
    epochs = range(1, len(history.losses) + 1)
    accuracies = [100 * a for a in history.accuracies]
    for axes, values, colour, title in zip(
        curves.subplots(1, 2),
        (history.losses, accuracies),
        (BLUE, ORANGE),
        ("training loss", f"test accuracy, % (best: {accuracies[history.best - 1]:.1f} in epoch {history.best})"),
    ):
        axes.plot(epochs, values, ".-", color=[c / 255 for c in colour])
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("epoch", fontsize=9)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    digits.suptitle("predictions for digits it has not seen: green is right, red is wrong", fontsize=11)
    grid = digits.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, (image, label, guess) in zip(grid.flat, guesses):
        axes.imshow(image[0].numpy(), cmap="gray_r")
        axes.set_title(str(guess), fontsize=9, pad=2, color=[c / 255 for c in (GREEN if guess == label else RED)])
    return figure


class DemoError(Exception):
    """Raised when the demo cannot start with these options; the message says what to do."""


def _check(output: str, checkpoint: str, resume: bool) -> None:
    """Raise if files cannot be written or read, before minutes of training instead of after them."""
    for option, name in (("--output", output), ("--checkpoint", checkpoint)):
        folder = Path(name).absolute().parent
        if not folder.is_dir():
            raise DemoError(f"{option} {name}: the folder {folder} does not exist; make it first: mkdir -p {folder}")
        if Path(name).is_dir():
            raise DemoError(f"{option} {name} is a folder: give the name of a file in it")
    if resume and not Path(checkpoint).exists():
        raise DemoError(
            f"--resume: there is no checkpoint {checkpoint}; start without --resume, or name the file with --checkpoint"
        )


def _load(training: Training, checkpoint: str) -> None:
    try:
        training.load(checkpoint)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, UnpicklingError) as problem:
        raise DemoError(f"--resume: {checkpoint} is no checkpoint of this run: {problem}") from problem


def main(epochs: int = 15, output: str = "digits.png", checkpoint: str = "digits.pt", resume: bool = False) -> float:
    """Train, draw `output`, and return the accuracy on the test digits."""
    _check(output, checkpoint, resume)
    training = Training(epochs)
    if resume:
        _load(training, checkpoint)
        print(f"resumed from {checkpoint} after epoch {training.epoch}")
    if training.epoch == 0:
        print("kernels are compiled when they are first used: the first run pauses once, later ones find them on disk")
    training.run(checkpoint=checkpoint)
    draw(training, output)
    history, accuracy = training.history, training.test_accuracy()
    print(
        f"loss {history.losses[0]:.3f} -> {history.losses[-1]:.4f}, test accuracy {accuracy:.1%} on {TEST_COUNT} unseen digits"
        f" (best: {history.accuracies[history.best - 1]:.1%} in epoch {history.best})"
    )
    print(
        f"curves and predictions (green is right, red is wrong) drawn in {output}; checkpoint (torch.load reads it): {checkpoint}"
    )
    return accuracy
