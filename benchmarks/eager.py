"""Flambeau against PyTorch, operation by operation, in one interleaved run.

    python benchmarks/eager.py                  # needs torch==2.13.0 beside flambeau
    python benchmarks/eager.py --busy           # how much slower each gets beside one busy loop per core
    python benchmarks/eager.py --write          # also update the table in docs/performance.md (with --busy: the other one)

Each row is the ratio of medians, PyTorch's time over Flambeau's: larger is better for Flambeau. Rounds of both libraries
alternate, so a noisy machine disturbs both alike. With --busy each library has a process of its own, because the waiting
threads of one would be busy loops to the other; there the busy loops run and stop in turns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(s, dtype=np.float32) for s in shapes]


def tensors(lib: Any, values: list[np.ndarray], grad: bool = False) -> list[Any]:
    made = [lib.from_numpy(v.copy()) for v in values]
    return [t.requires_grad_() for t in made] if grad else made


def chain(lib: Any, n: int) -> Callable[[], Any]:
    a, b = tensors(lib, arrays((n,), (n,)))
    return lambda: lib.sigmoid(lib.tanh(a * b + a) * 0.5 - b)


def chain_training(lib: Any, n: int) -> Callable[[], Any]:
    a, b = tensors(lib, arrays((n,), (n,)), grad=True)

    def step() -> None:
        a.grad = b.grad = None
        (lib.tanh(a * b + a) * b).sum().backward()

    return step


def forward(name: str, shape: tuple[int, ...]) -> Callable[[Any], Callable[[], Any]]:
    def make(lib: Any) -> Callable[[], Any]:
        (x,) = tensors(lib, arrays(shape))
        return row_function(lib, name, x)

    return make


def row_function(lib: Any, name: str, x: Any) -> Callable[[], Any]:
    if name == "sum":
        return lambda: x.sum()
    if name == "sum rows":
        return lambda: x.sum(1)
    if name == "sum columns":
        return lambda: x.sum(0)
    if name == "softmax":
        return lambda: lib.softmax(x, 1)
    weight, bias = tensors(lib, arrays((x.shape[-1],), (x.shape[-1],)), grad=x.requires_grad)
    return lambda: lib.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)


def backward(name: str, shape: tuple[int, ...]) -> Callable[[Any], Callable[[], Any]]:
    def make(lib: Any) -> Callable[[], Any]:
        (x,) = tensors(lib, arrays(shape), grad=True)
        run = row_function(lib, name, x)
        seed = lib.from_numpy(np.random.default_rng(1).standard_normal(tuple(run().shape), dtype=np.float32))

        def step() -> None:
            x.grad = None
            run().backward(seed)

        return step

    return make


def product(n: int) -> Callable[[Any], Callable[[], Any]]:
    def make(lib: Any) -> Callable[[], Any]:
        a, b = tensors(lib, arrays((n, n), (n, n)))
        return lambda: a @ b

    return make


def convolution(lib: Any) -> Callable[[], Any]:
    x, w, b = tensors(lib, arrays((32, 64, 32, 32), (64, 64, 3, 3), (64,)), grad=True)
    seed = lib.from_numpy(arrays((32, 64, 32, 32))[0])

    def step() -> None:
        x.grad = w.grad = b.grad = None
        lib.nn.functional.conv2d(x, w, b, padding=1).backward(seed)

    return step


Case = Callable[[Any], Callable[[], Any]]  # from a library to what is timed

CASES: dict[str, tuple[Case, float | None]] = {
    "pointwise chain, 1e6 elements": (lambda lib: chain(lib, 1_000_000), 1.5),
    "pointwise chain, 64 elements": (lambda lib: chain(lib, 64), 0.5),
    "pointwise chain, 64 elements, with backward": (lambda lib: chain_training(lib, 64), None),
    "pointwise chain, 1e6 elements, with backward": (lambda lib: chain_training(lib, 1_000_000), None),
    "sum, 4096x1024": (forward("sum", (4096, 1024)), 1.0),
    "sum of rows, 4096x1024": (forward("sum rows", (4096, 1024)), 1.0),
    "sum of columns, 4096x1024": (forward("sum columns", (4096, 1024)), 1.0),
    "sum, forward and backward": (backward("sum", (4096, 1024)), 1.0),
    "softmax, 4096x1024": (forward("softmax", (4096, 1024)), 1.0),
    "softmax, forward and backward": (backward("softmax", (4096, 1024)), 1.0),
    "layer_norm, 4096x1024": (forward("layer_norm", (4096, 1024)), 1.0),
    "layer_norm, forward and backward": (backward("layer_norm", (4096, 1024)), 1.0),
    "matmul 1024": (product(1024), 1.0),
    "matmul 64": (product(64), None),
    "conv2d 3x3 64->64 on 32x64x32x32, forward and backward": (convolution, 0.95),
}


Times = tuple[float, float]  # of one case: alone and beside busy loops
PAIRS = 11  # turns of quiet and busy; neighbours on the same machine come and go within seconds
SETTLE = 0.3  # seconds at the start of a turn that do not count: threads move, caches fill


def measure(libraries: list[Any], cases: dict[str, Case], seconds: float) -> dict[str, list[float]]:
    """Median seconds per call for each case, one entry per library, rounds alternating."""
    results = {}
    for name, make in cases.items():
        runs = [make(lib) for lib in libraries]
        repeats = [repeats_of(run) for run in runs]
        samples: list[list[float]] = [[] for _ in runs]
        stop = time.perf_counter() + seconds
        while time.perf_counter() < stop or len(samples[0]) < 5:
            for run, count, collected in zip(runs, repeats, samples, strict=True):
                collected.append(timed(run, count))
        results[name] = [statistics.median(collected) for collected in samples]
    return results


def measure_beside_loops(library: Any, cases: list[str], seconds: float) -> dict[str, list[Times]]:
    """Pairs of seconds per call, on the quiet machine and right after it beside one busy loop per core."""
    loops = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for loop in loops:
        loop.start()
    try:
        return {name: quiet_and_busy(CASES[name][0](library), loops, seconds) for name in cases}
    finally:
        for loop in loops:
            loop.kill()


def quiet_and_busy(run: Callable[[], Any], loops: list[multiprocessing.Process], seconds: float) -> list[Times]:
    turns = []
    for turn in range(2 * PAIRS):
        signal_all(loops, signal.SIGCONT if turn % 2 else signal.SIGSTOP)
        mean_of_calls(run, SETTLE)
        turns.append(mean_of_calls(run, seconds / 4))
    return list(zip(turns[::2], turns[1::2], strict=True))


def mean_of_calls(run: Callable[[], Any], seconds: float) -> float:
    """Seconds per call when calling for so long."""
    calls, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds or not calls:
        run()
        calls += 1
    return passed / calls


def timed(run: Callable[[], Any], count: int) -> float:
    """Seconds per call, over `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def signal_all(processes: list[multiprocessing.Process], number: signal.Signals) -> None:
    for process in processes:
        os.kill(process.pid or 0, number)


def repeats_of(run: Callable[[], Any]) -> int:
    """How often to call between two looks at the clock: for about 20 ms."""
    for _ in range(3):
        run()
    start = time.perf_counter()
    run()
    return max(1, min(2000, int(0.02 / max(time.perf_counter() - start, 1e-7))))


def measure_alone(library: str, options: argparse.Namespace) -> dict[str, list[Times]]:
    """Pairs of quiet and busy times from a process that has only this library."""
    command = [sys.executable, __file__, "--alone", library, "--only", options.only]
    command += ["--seconds", str(options.seconds), "--threads", str(options.threads)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {name: [tuple(pair) for pair in pairs] for name, pairs in found.items()}


def import_seconds(module: str) -> float:
    """Median seconds of a fresh interpreter that imports `module`, byte code cached."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for _ in range(6):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=environment)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def spin() -> None:
    while True:
        pass


def format_table(results: dict[str, tuple[float, float]]) -> str:
    lines = ["| operation | PyTorch | Flambeau | ratio | goal |", "| --- | --: | --: | --: | --: |"]
    for name, (theirs, ours) in results.items():
        goal = CASES[name][1] if name in CASES else 5.0
        lines.append(
            f"| {name} | {duration(theirs)} | {duration(ours)} | {theirs / ours:.2f} | {'' if goal is None else goal} |"
        )
    return "\n".join(lines)


def measure_busy(options: argparse.Namespace) -> str:
    """The table of both libraries alone and beside busy loops."""
    found = [measure_alone(name, options) for name in ("flambeau", "torch")]
    head = "| operation | Flambeau | slower by | quartiles | PyTorch | slower by | quartiles |"
    lines = [head, "| --- |" + " --: |" * 6]
    for case in found[0]:
        cells = [case]
        for pairs in (times[case] for times in found):
            low, middle, high = statistics.quantiles([busy / quiet for quiet, busy in pairs], method="inclusive")
            quiet = statistics.median(quiet for quiet, _ in pairs)
            cells += [duration(quiet), f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


BUSY_TEXT = """
How both slow down beside one busy loop per core, each library in a process of its own: the median and the quartiles of 11 pairs of
turns, quiet and busy. Half of the cores' time is lost, so 2 is what can be had; the goal is at most 3
(`python benchmarks/eager.py --busy`):
"""


def write_table(table: str, section: str) -> None:
    text = PAGE.read_text()
    if section == "busy" and "<!-- busy benchmark -->" not in text:
        eager = re.compile(r"<!-- eager benchmark -->\n.*?<!-- end -->\n", re.S)
        text = eager.sub(lambda m: m[0] + BUSY_TEXT + "\n<!-- busy benchmark -->\n<!-- end -->\n", text)
    marked = re.compile(rf"(<!-- {section} benchmark -->\n).*?(<!-- end -->)", re.S)
    if not marked.search(text):
        raise SystemExit(f"docs/performance.md has no {section} benchmark section")
    PAGE.write_text(marked.sub(lambda m: m[1] + table + "\n" + m[2], text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression over case names")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per case")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", action="store_true", help="one busy loop per core beside the measurement")
    parser.add_argument(
        "--alone", choices=("flambeau", "torch"), help="print one library's quiet and busy times as JSON"
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    if options.busy:
        table = measure_busy(options)
    else:
        names = [options.alone] if options.alone else ["torch", "flambeau"]
        libraries = [importlib.import_module(name) for name in names]
        for lib in libraries:
            lib.set_num_threads(options.threads)
        cases = [n for n in CASES if re.search(options.only, n)]
        if options.alone:
            print(json.dumps(measure_beside_loops(libraries[0], cases, options.seconds)))
            return
        times = measure(libraries, {name: CASES[name][0] for name in cases}, options.seconds)
        imports = {} if options.only else {"import": (import_seconds("torch"), import_seconds("flambeau"))}
        table = format_table(imports | {name: (theirs, ours) for name, (theirs, ours) in times.items()})
    print(table)
    if options.write:
        write_table(table, "busy" if options.busy else "eager")


if __name__ == "__main__":
    main()
