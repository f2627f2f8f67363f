"""Data loaders of Flambeau and PyTorch side by side: the same datasets, in turns, ratios of throughput.

python benchmarks/data.py [--rounds 5] [--only NAME]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
import torch.utils.data

import flambeau
import flambeau.utils.data

LIBRARIES = {"flambeau": flambeau, "torch": torch}


class Tensors:
    """A user's dataset: views of a big tensor, with a label."""

    def __init__(self, library, n, shape):
        self.images, self.n = library.rand(n, *shape), n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.images[i], i % 10


class Arrays(Tensors):
    """A user's dataset of NumPy arrays."""

    def __init__(self, library, n, shape):
        self.images, self.n = np.random.rand(n, *shape).astype(np.float32), n


class Decoded(Tensors):
    """Samples that cost something: bytes to float, scaled."""

    def __init__(self, library, n, shape):
        self.library = library
        self.images, self.n = np.random.randint(0, 255, (n, *shape), np.uint8), n

    def __getitem__(self, i):
        return self.library.from_numpy(self.images[i]).float() / 255, i % 10


def tensor_dataset(library, n, shape):
    return library.utils.data.TensorDataset(library.rand(n, *shape), library.arange(n))


CASES = {
    "TensorDataset 784": (tensor_dataset, 20000, (784,), 64),
    "TensorDataset 8": (tensor_dataset, 20000, (8,), 32),
    "tensors 3x32x32": (Tensors, 4096, (3, 32, 32), 64),
    "arrays 3x32x32": (Arrays, 4096, (3, 32, 32), 64),
    "decoded 3x32x32": (Decoded, 4096, (3, 32, 32), 64),
    "arrays 3x224x224": (Arrays, 256, (3, 224, 224), 32),
}


def epoch(loader):
    start = time.perf_counter()
    for batch in loader:
        del batch
    return time.perf_counter() - start


def compare(name, workers, rounds):
    make, n, shape, batch_size = CASES[name]
    loaders = {
        key: library.utils.data.DataLoader(
            make(library, n, shape), batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
        )
        for key, library in LIBRARIES.items()
    }
    for loader in loaders.values():
        epoch(loader)
    seconds = {key: [] for key in loaders}
    for _ in range(rounds):
        for key, loader in loaders.items():
            seconds[key].append(epoch(loader))
    ours, theirs = (statistics.median(seconds[key]) for key in LIBRARIES)
    print(
        f"{name:20} {workers} workers   flambeau {n / ours:10.0f}/s   torch {n / theirs:10.0f}/s   {theirs / ours:5.2f}x",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name in CASES:
        for workers in (0, 2):
            if options.only in name:
                compare(name, workers, options.rounds)


if __name__ == "__main__":
    main()
