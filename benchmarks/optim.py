"""Optimizer steps beside PyTorch's three implementations, in one interleaved run.

    python benchmarks/optim.py [--threads 2] [--rounds 15]      # needs torch==2.13.0 beside flambeau

Times are the best of all rounds, in microseconds per step; the last column is flambeau's over PyTorch's best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import flambeau

Shapes = list[tuple[int, ...]]


def mlp() -> Shapes:
    return [(256, 784), (256,), (128, 256), (128,), (10, 128), (10,)]


def resnet18() -> Shapes:
    shapes: Shapes = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            shapes += [(width, before, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            if block == 0 and width != before:
                shapes += [(width, before, 1, 1), (width,), (width,)]
            before = width
    return [*shapes, (1000, 512), (1000,)]


def biases() -> Shapes:
    """As many tensors, but small: what is left is the cost of getting to the kernels."""
    return [(64,)] * len(resnet18())


def step_of(lib: Any, name: str, shapes: Shapes, options: dict[str, Any]) -> Callable[[], Any]:
    params = [lib.nn.Parameter(lib.randn(s)) for s in shapes]
    for p in params:
        p.grad = lib.randn(tuple(p.shape))
    return getattr(lib.optim, name)(params, **options).step


def measure(steps: dict[str, Callable[[], Any]], rounds: int, repeat: int) -> dict[str, float]:
    best = dict.fromkeys(steps, float("inf"))
    for step in steps.values():
        step()
    for _ in range(rounds):
        for label, step in steps.items():
            start = time.perf_counter()
            for _ in range(repeat):
                step()
            best[label] = min(best[label], (time.perf_counter() - start) / repeat * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    flambeau.set_num_threads(chosen.threads)
    ways: dict[str, dict[str, Any]] = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    for model, repeat in ((mlp, 50), (resnet18, 1), (biases, 20)):
        for name, options in (("SGD", {"lr": 0.01, "momentum": 0.9}), ("Adam", {})):
            shapes = model()
            steps = {way: step_of(torch, name, shapes, {**options, **extra}) for way, extra in ways.items()}
            steps["flambeau"] = step_of(flambeau, name, shapes, options)
            best = measure(steps, chosen.rounds, repeat)
            ratio = best["flambeau"] / min(best[way] for way in ways)
            times = "  ".join(f"{label} {value:9.1f}" for label, value in best.items())
            print(f"{model.__name__:9} {len(shapes):3} tensors  {name:5} {times}  {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
