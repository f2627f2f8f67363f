"""Small data sets in the formats in which the programs expect theirs."""

from __future__ import annotations

import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

import flambeau

ROOT = Path(flambeau.__file__).parents[1]


def mnist(root: Path, train: int = 320, test: int = 128) -> None:
    """The shipped digits as MNIST's idx files: 8 x 8 pixels enlarged three times, with a border."""
    shipped = np.load(Path(flambeau.__file__).parent / "data" / "digits.npz")
    images = np.pad((shipped["images"] * 15.9).astype(np.uint8).repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2)))
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, part in (("train", slice(0, train)), ("t10k", slice(train, train + test))):
        chosen, labels = images[part], shipped["labels"][part]
        header = struct.pack(">iiii", 2051, len(chosen), 28, 28)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(header + chosen.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 2049, len(labels)) + labels.tobytes())


def prose() -> str:
    """Some text: what this project says about itself."""
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def words(place: Path) -> None:
    """A corpus of three files."""
    lines = [" ".join(line.split()) + "\n" for line in prose().splitlines()]
    corpus = place / "corpus"
    corpus.mkdir()
    for name, part in (("train", lines[20:120]), ("valid", lines[:20]), ("test", lines[:15])):
        (corpus / f"{name}.txt").write_text("".join(part), encoding="utf-8")


def characters(place: Path) -> None:
    """nanoGPT's character data, made by its own script from another text."""
    directory = place / "data" / "shakespeare_char"
    (directory / "input.txt").write_text(prose())
    (directory / "requests.py").write_text("")  # the script imports it for a download that is not needed
    subprocess.run([sys.executable, "prepare.py"], cwd=directory, check=True, stdout=subprocess.DEVNULL)


def sine_waves(place: Path) -> None:
    shift = np.random.RandomState(2).randint(-80, 80, 10).reshape(10, 1)
    flambeau.save(np.sin((np.arange(60) + shift) / 20.0), place / "traindata.pt")


def citations(place: Path, nodes: int = 1650, words: int = 24, classes: int = 4) -> None:
    """A citation graph in the files of the Cora data set; papers of one class share words and cite each other."""
    generator = np.random.RandomState(0)
    kind = generator.randint(0, classes, nodes)
    present = generator.rand(nodes, words) < np.where(np.arange(words) % classes == kind[:, None], 0.6, 0.1)
    directory = place / "cora"
    directory.mkdir()
    with (directory / "cora.content").open("w") as file:
        for i in range(nodes):
            file.write(f"{i + 1000} {' '.join(str(int(w)) for w in present[i])} Class{kind[i]}\n")
    with (directory / "cora.cites").open("w") as file:
        for i in range(nodes):
            others = np.flatnonzero(kind == kind[i])
            for j in generator.choice(others, 2, replace=False):
                file.write(f"{i + 1000} {j + 1000}\n")


def pictures(directory: Path, count: int, size: int, seed: int = 0) -> None:
    """Smooth random colours, as PNG files."""
    from PIL import Image

    directory.mkdir(parents=True)
    generator = np.random.RandomState(seed)
    for i in range(count):
        small = Image.fromarray(generator.randint(0, 256, (8, 8, 3), dtype=np.uint8))
        small.resize((size, size), Image.Resampling.BICUBIC).save(directory / f"{i}.png")


def cifar10(root: Path, per_batch: int = 8) -> None:
    """CIFAR-10's pickled batches with random pictures."""
    directory = root / "cifar-10-batches-py"
    directory.mkdir(parents=True)
    generator = random.Random(0)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        pixels = np.array([[generator.randrange(256) for _ in range(3072)] for _ in range(per_batch)], np.uint8)
        batch = {"data": pixels, "labels": [generator.randrange(10) for _ in range(per_batch)]}
        (directory / name).write_bytes(pickle.dumps(batch))
    (directory / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(i) for i in range(10)]}))
