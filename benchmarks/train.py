"""Whole training steps, Flambeau against PyTorch eager, in one interleaved run.

    python benchmarks/train.py              # needs torch==2.13.0 beside flambeau
    python benchmarks/train.py --write      # also update the table in docs/performance.md

The ratio is steps per second, Flambeau's over PyTorch's: larger is better for Flambeau. Peak memory is that of a separate
process running each model alone.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import models  # noqa: E402

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

CASES: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "MLP 784-256-128-10, batch 64, Adam": lambda lib: models.classification(lib, models.mlp, (64, 784), models.adam),
    "CNN, 2 conv + BN, 28x28, batch 64, SGD": lambda lib: models.classification(
        lib, models.cnn, (64, 1, 28, 28), models.sgd
    ),
    "ResNet-18, 32x32, batch 32, SGD": lambda lib: models.classification(
        lib, models.resnet18, (32, 3, 32, 32), models.sgd
    ),
    "GPT, 4 layers, d=128, T=128, batch 12, AdamW": lambda lib: models.sequence(
        lib, models.gpt, (12, 128), 65, models.adamw
    ),
    "LSTM, 2 layers, 256, T=35, batch 20, SGD": lambda lib: models.sequence(
        lib, models.language_lstm, (35, 20), 1000, models.sgd
    ),
}


def measure(name: str, seconds: float) -> tuple[float, float]:
    """Median seconds per step of (torch, flambeau)."""
    import torch

    import flambeau

    torch.set_num_threads(2)
    flambeau.set_num_threads(2)
    steps = [CASES[name](torch), CASES[name](flambeau)]
    for step in steps:
        for _ in range(3):
            step()
    samples: list[list[float]] = [[], []]
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(samples[0]) < 5:
        for which, step in enumerate(steps):
            start = time.perf_counter()
            step()
            samples[which].append(time.perf_counter() - start)
    return statistics.median(samples[0]), statistics.median(samples[1])


def peak_megabytes(library: str, name: str) -> float:
    """Peak resident memory of a fresh process that runs ten steps, less what importing the library takes."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {library} as lib, train\n"
        "(lib.ones(8) + 1).sum()\n"
        "before = train.status_megabytes('VmRSS')\n"
        f"step = train.CASES[{name!r}](lib)\n"
        "for _ in range(10): step()\n"
        "print(train.status_megabytes('VmHWM') - before)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return float(result.stdout.split()[-1])


def status_megabytes(field: str) -> float:
    """A memory figure of this process as Linux reports it. (getrusage's peak would count the parent's pages too.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"this system does not report {field}; use --no-memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression over case names")
    parser.add_argument("--seconds", type=float, default=10.0, help="time per case")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    lines = ["| training step | PyTorch | Flambeau | ratio | memory ratio |", "| --- | --: | --: | --: | --: |"]
    ratios = []
    for name in CASES:
        if not re.search(options.only, name):
            continue
        theirs, ours = measure(name, options.seconds)
        ratios.append(theirs / ours)
        memory = ""
        if not options.no_memory:
            memory = f"{peak_megabytes('flambeau', name) / peak_megabytes('torch', name):.2f}"
        lines.append(f"| {name} | {theirs * 1e3:.2f} ms | {ours * 1e3:.2f} ms | {theirs / ours:.2f} | {memory} |")
        print(lines[-1], flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines.append(f"| geometric mean | | | {mean:.2f} | |")
    table = "\n".join(lines)
    print(table)
    if options.write:
        text = PAGE.read_text()
        marked = re.compile(r"(<!-- training benchmark -->\n).*?(<!-- end -->)", re.S)
        if not marked.search(text):
            raise SystemExit("docs/performance.md has no training benchmark section")
        PAGE.write_text(marked.sub(lambda m: m[1] + table + "\n" + m[2], text))


if __name__ == "__main__":
    main()
