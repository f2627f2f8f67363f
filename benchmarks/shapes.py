"""Training steps whose shapes keep changing: Flambeau against PyTorch, shape by shape in turns.

    python benchmarks/shapes.py                 # needs torch==2.13.0 beside flambeau
    python benchmarks/shapes.py --only conv     # some of the rows

Each program meets every one of its shapes once ("first") and then again ("again"); "fixed" is one shape in the middle, over and
over. The ratio is PyTorch's processor time over Flambeau's: larger is better for Flambeau. The last column is how many MB the
process grew by meanwhile, with both libraries in it.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Step = Callable[..., None]


def attention(lib: Any, weights: bool = False) -> Step:
    """Self-attention over 4 sentences of n words, a loss for every word, Adam."""
    nn, embed = lib.nn, lib.nn.Embedding(100, 64)
    attend, head = nn.MultiheadAttention(64, 4, batch_first=True), nn.Linear(64, 100)
    parameters = [*embed.parameters(), *attend.parameters(), *head.parameters()]
    optimizer = lib.optim.Adam(parameters)

    def step(n: int) -> None:
        words = lib.randint(100, (4, n))
        x = embed(words)
        x = x + attend(x, x, x, need_weights=weights)[0]
        loss = nn.functional.cross_entropy(head(x).flatten(0, 1), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def attention_weights(lib: Any) -> Step:
    """The same with the attention's weights as a result: batched matrix products instead of one kernel."""
    return attention(lib, weights=True)


def convolution(lib: Any) -> Step:
    """Two small convolutions over pictures of any size, SGD."""
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip
    optimizer = lib.optim.SGD(model.parameters(), 0.01)

    def step(height: int, width: int) -> None:
        loss = model(lib.randn(2, 3, height, width)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def layers(lib: Any) -> Step:
    """A multilayer perceptron whose batches have any number of rows."""
    nn = lib.nn
    model = nn.Sequential(
        nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10)
    )
    optimizer = lib.optim.SGD(model.parameters(), 0.01)

    def step(rows: int) -> None:
        loss = model(lib.randn(rows, 64)).log_softmax(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def pointwise(lib: Any) -> Step:
    """Elementwise operators and reductions of matrices of any size, with gradients."""

    def step(rows: int) -> None:
        x = lib.randn(rows, 50).requires_grad_()
        y = (x * x.mean(0) - x.sigmoid()).exp().clamp(max=10)
        (y / (y.sum(1, keepdim=True) + 1)).sum().backward()

    return step


LENGTHS = [(n,) for n in range(100, 400)]
PROGRAMS: dict[str, tuple[Callable[[Any], Step], list[tuple[int, ...]]]] = {
    "attention": (attention, LENGTHS),
    "attention with weights": (attention_weights, LENGTHS),
    "convolution": (convolution, [(40 + i, 50 + j) for j, i in itertools.product(range(10), range(20))]),
    "layers": (layers, LENGTHS),
    "pointwise": (pointwise, LENGTHS),
}


def resident() -> float:
    """Megabytes of memory this process uses now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def in_turns(steps: list[Step], shapes: list[tuple[int, ...]]) -> list[float]:
    """Milliseconds of each library per shape."""
    seconds = [0.0] * len(steps)
    for shape in shapes:
        for i, step in enumerate(steps):
            started = time.process_time()
            step(*shape)
            seconds[i] += time.process_time() - started
    return [1e3 * total / len(shapes) for total in seconds]


def measure(libraries: list[Any], name: str, most: int | None = None) -> None:
    """Print one program's rows."""
    make, shapes = PROGRAMS[name]
    shapes = shapes[:most]
    for lib in libraries:
        lib.manual_seed(0)
    steps = [make(lib) for lib in libraries]
    for step in steps:
        for size in (20, 21, 450, 20):  # what is made once for any shape: kernels, optimizer state
            step(*[size] * len(shapes[0]))
    before = resident()
    middle = shapes[len(shapes) // 2]
    for title, chosen in (
        ("first", shapes),
        ("again", shapes),
        ("and again", shapes),
        ("fixed", [middle] * len(shapes)),
    ):
        theirs, ours = in_turns(steps, chosen)
        grown = resident() - before
        print(
            f"{name:24s} {title:10s} {theirs:8.2f} ms {ours:8.2f} ms   {theirs / ours:5.2f}   {grown:+6.0f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression over program names")
    parser.add_argument("--most", type=int, help="no more than this many shapes of each program")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    libraries = [importlib.import_module(name) for name in ("torch", "flambeau")]
    for lib in libraries:
        lib.set_num_threads(options.threads)
    print(f"{'program':24s} {'shapes':10s} {'PyTorch':>11s} {'Flambeau':>11s}   ratio     grown")
    for name in PROGRAMS:
        if re.search(options.only, name):
            measure(libraries, name, options.most)


if __name__ == "__main__":
    main()
