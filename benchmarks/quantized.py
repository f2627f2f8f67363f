"""8-bit linear layers, convolutions and whole networks: Flambeau beside PyTorch, and beside its own float32, in turns.

    python benchmarks/quantized.py                  # needs torch==2.13.0 beside flambeau
    python benchmarks/quantized.py --only conv      # some of the rows
    python benchmarks/quantized.py --threads 2      # times of the clock instead, with so many threads
    python benchmarks/quantized.py --write          # the table of docs/quantization.md (of that number of threads)

Times are the processor's, of many short runs on one thread, all four in turns (the best quarter counts). "beside PyTorch" is its time over Flambeau's for the same
int8 layer, "beside float32" Flambeau's float32 over its int8: larger is better for Flambeau.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import flambeau

DOCUMENT = Path(__file__).parents[1] / "docs" / "quantization.md"
Run = Callable[[], Any]


def quantized(lib: Any, x: Any) -> Any:
    return lib.quantize_per_tensor(x, 0.05, 64, lib.quint8)


def weights(lib: Any, *shape: int) -> Any:
    """Weights of one scale for each output."""
    w = lib.randn(*shape)
    return lib.quantize_per_channel(w, lib.full((shape[0],), 0.03), lib.zeros(shape[0], dtype=lib.int64), 0, lib.qint8)


def linear(rows: int, inputs: int, outputs: int) -> Callable[[Any], tuple[Run, Run]]:
    def make(lib: Any) -> tuple[Run, Run]:
        x, layer = lib.randn(rows, inputs), lib.nn.Linear(inputs, outputs)
        packed = lib.ops.quantized.linear_prepack(weights(lib, outputs, inputs), lib.randn(outputs))
        codes = quantized(lib, x)
        return lambda: layer(x), lambda: lib.ops.quantized.linear(codes, packed, 0.5, 100)

    return make


def dynamic(rows: int, inputs: int, outputs: int) -> Callable[[Any], tuple[Run, Run]]:
    def make(lib: Any) -> tuple[Run, Run]:
        x, layer = lib.randn(rows, inputs), lib.nn.Linear(inputs, outputs)
        packed = lib.ops.quantized.linear_prepack(weights(lib, outputs, inputs), lib.randn(outputs))
        return lambda: layer(x), lambda: lib.ops.quantized.linear_dynamic(x, packed, True)

    return make


def lstm(steps: int, rows: int, width: int) -> Callable[[Any], tuple[Run, Run]]:
    def make(lib: Any) -> tuple[Run, Run]:
        layer, x = lib.nn.LSTM(width, width), lib.randn(steps, rows, width)
        quantized = lib.ao.quantization.quantize_dynamic(lib.nn.Sequential(layer), {lib.nn.LSTM})
        return lambda: layer(x), lambda: quantized(x)

    return make


def conv(
    pictures: int, inputs: int, outputs: int, size: int, kernel: int, groups: int = 1
) -> Callable[[Any], tuple[Run, Run]]:
    def make(lib: Any) -> tuple[Run, Run]:
        pad = kernel // 2
        x = lib.randn(pictures, inputs, size, size)
        layer = lib.nn.Conv2d(inputs, outputs, kernel, padding=pad, groups=groups)
        window = ([1, 1], [pad, pad], [1, 1], groups)
        w = weights(lib, outputs, inputs // groups, kernel, kernel)
        packed = lib.ops.quantized.conv2d_prepack(w, lib.randn(outputs), *window)
        codes = quantized(lib, x).contiguous(memory_format=lib.channels_last)
        return lambda: layer(x), lambda: lib.ops.quantized.conv2d_relu(codes, packed, 0.5, 100)

    return make


ROWS: dict[str, Callable[[Any], tuple[Run, Run]]] = {
    "linear 1 x 4096 x 4096": linear(1, 4096, 4096),
    "linear 64 x 1024 x 1024": linear(64, 1024, 1024),
    "linear 1024 x 1024 x 1024": linear(1024, 1024, 1024),
    "linear, dynamic 1 x 4096 x 4096": dynamic(1, 4096, 4096),
    "linear, dynamic 64 x 1024 x 1024": dynamic(64, 1024, 1024),
    "LSTM, dynamic 20 steps of 1 x 512": lstm(20, 1, 512),
    "LSTM, dynamic 20 steps of 16 x 1024": lstm(20, 16, 1024),
    "conv 3 x 3, 8 x 64 x 56 x 56": conv(8, 64, 64, 56, 3),
    "conv 3 x 3, 8 x 256 x 14 x 14": conv(8, 256, 256, 14, 3),
    "conv 1 x 1, 8 x 256 x 28 x 28": conv(8, 256, 256, 28, 1),
    "conv depthwise, 8 x 128 x 28 x 28": conv(8, 128, 128, 28, 3, 128),
}


Clock = Callable[[], float]


def seconds(run: Run, clock: Clock = time.process_time, least: float = 0.02) -> float:
    """The time of one run, from a few."""
    count, start = 0, clock()
    while clock() - start < least or not count:
        run()
        count += 1
    return (clock() - start) / count


def measure(make: Callable[[Any], tuple[Run, Run]], turns: int, clock: Clock) -> list[float]:
    """Milliseconds of PyTorch in float32 and int8, Flambeau in float32 and int8."""
    runs = [*make(torch), *make(flambeau)]
    times: list[list[float]] = [[] for _ in runs]
    with torch.inference_mode(), flambeau.inference_mode():
        for run in runs:
            run()
            run()
        for _ in range(turns):
            for kept, run in zip(times, runs):
                kept.append(seconds(run, clock))
    return [1e3 * statistics.quantiles(kept, n=4)[0] for kept in times]


def table(chosen: dict[str, Callable], turns: int, clock: Clock) -> str:
    lines = [
        "| layer | PyTorch float32 | PyTorch int8 | float32 | int8 | beside PyTorch | beside float32 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, make in chosen.items():
        theirs, theirs8, ours, ours8 = measure(make, turns, clock)
        numbers = " | ".join(f"{t:.3f}" for t in (theirs, theirs8, ours, ours8))
        lines.append(f"| {name} | {numbers} | {theirs8 / ours8:.2f} | {ours / ours8:.1f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="into docs/quantization.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    flambeau.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    found = table({n: m for n, m in ROWS.items() if options.only in n}, options.turns, clock)
    if options.write:
        text, mark = DOCUMENT.read_text(), "speed" if options.threads == 1 else f"speed of {options.threads} threads"
        shown = re.sub(rf"(?s)(<!-- {mark} -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{found}\n{m[2]}", text)
        DOCUMENT.write_text(shown)


if __name__ == "__main__":
    main()
