"""The pictures of two pages, made again: docs/pictures/gallery-* by the code on gallery.md, docs/pictures/examples-* by examples/.

python docs/_tools/pictures.py [gallery] [examples]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

import mixup  # noqa: E402

import flambeau as torch  # noqa: E402
from flambeau.demo import load_digits  # noqa: E402
from tests.docs.blocks import run  # noqa: E402

# The examples that say how far they are, with what they print beside a step or an epoch.
CURVES = {
    "mlp": "loss", "cnn": "loss", "custom_layer": "loss", "mixup": "loss", "vae": "loss", "gan": "generator",
    "lstm_language_model": "loss", "transformer": "loss",
}  # fmt: skip


def gallery() -> None:
    """Run the page gallery.md, whose blocks write their pictures into the current folder."""
    for title in run(ROOT / "docs" / "gallery.md"):
        print("left out:", title)


def curves() -> None:
    """What each example prints while it trains, as one picture."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    for axes, (name, word) in zip(figure.subplots(2, 4).flat, CURVES.items()):
        command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        found = re.findall(rf"^(epoch|step) +(\d+) .*?{word} (-?\d+\.\d+)", printed, re.MULTILINE)
        axes.plot([int(at) for _, at, _ in found], [float(value) for _, _, value in found], color="#285abe")
        axes.set_title(f"{name}: {word}", fontsize=10)
        axes.set_xlabel(found[0][0], fontsize=9)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig("examples-curves.svg", metadata={"Date": None})


def blends() -> None:
    """Digits, and what mixup makes of them."""
    torch.manual_seed(0)
    mixup.random.seed(0)
    images, labels = load_digits()
    mixed, targets = mixup.mix(images[:12], labels[:12], alpha=2.0)
    figure = Figure(figsize=(12, 2.4), layout="constrained")
    for column, axes in enumerate(figure.subplots(2, 12).T):
        for cell, image in zip(axes, (images[column], mixed[column])):
            cell.imshow(image.numpy(), cmap="gray_r")
            cell.axis("off")
        shares = [f"{share:.0%} {digit}" for digit, share in enumerate(targets[column].tolist()) if share > 0.005]
        axes[0].set_title(str(labels[column].item()), fontsize=9)
        axes[1].set_title(" + ".join(shares), fontsize=8)
    figure.savefig("examples-mixup.png", dpi=100)


def examples() -> None:
    curves()
    blends()
    command = [sys.executable, str(ROOT / "examples" / "quantize_digits.py"), "--picture", "examples-quantize.png"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in sys.argv[1:] or ["gallery", "examples"]:
            {"gallery": gallery, "examples": examples}[name]()
        for picture in [*Path(folder).glob("gallery-*"), *Path(folder).glob("examples-*")]:
            shutil.copy(picture, ROOT / "docs" / "pictures")
        os.chdir(ROOT)
