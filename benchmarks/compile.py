"""Compiled functions: PyTorch eager, torch.compile, JAX (where they are installed), Flambeau eager and compiled, in one interleaved run.

    python benchmarks/compile.py                       # needs torch==2.13.0 beside flambeau
    python benchmarks/compile.py --only chain --torch-compile
    python benchmarks/compile.py --seconds 10
    python benchmarks/compile.py --busy                # on a machine with other work: one thread, and its CPU time
    python benchmarks/compile.py --device cuda         # on a GPU: several calls in a row, until their work is done

Figures are ratios, PyTorch's eager time over the contender's: above 1, the contender is faster. Short calls are timed several in a row, as they are made in
training and in serving: whoever goes first would else find the caches full of the others' parameters. Between contenders there is a
pause, until the threads of the last one sleep. The first call of a compiled function, with what it compiles, is given beside them.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import models  # noqa: E402
import train  # noqa: E402

DOCS = Path(__file__).parent.parent / "docs" / "internals" / "compile.md"
Case = Callable[[Any], Callable[[], Any]]


def chain(n: int) -> Case:
    """Twenty operators on one vector."""

    def make(lib: Any) -> Callable[[], Any]:
        x = lib.as_tensor(np.random.default_rng(0).standard_normal(n).astype(np.float32))

        def function(x: Any) -> Any:
            for k in range(5):
                x = ((x * 1.01 + 0.1 * k).tanh() - 0.3).abs()
            return x

        return _with(function, x)

    return make


def small_mlp(lib: Any) -> Callable[[], Any]:
    """Forward and backward of 16-32-32-4, batch 8."""
    nn = lib.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    x, y = lib.ones(8, 16), lib.zeros(8, 4)

    def function(x: Any, y: Any) -> Any:
        for p in model.parameters():
            p.grad = None
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    return _with(function, x, y)


def gpt_inference(lib: Any) -> Callable[[], Any]:
    """One forward pass of the small GPT, batch 1, 32 tokens."""
    model = models.gpt(lib).eval()
    tokens = lib.zeros(1, 32, dtype=lib.int64)

    def function(tokens: Any) -> Any:
        with lib.no_grad():
            return model(tokens)

    return _with(function, tokens)


def vae_step(lib: Any) -> Callable[[], Any]:
    """A training step of the variational autoencoder, batch 64."""
    model = models.vae(lib)
    optimizer = models.adam(lib, model.parameters())
    x = lib.as_tensor(np.random.default_rng(0).random((64, 784), dtype=np.float32))

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        return loss

    return _with(function, x)


class _with:  # noqa: N801 - reads as a word
    """A call with its arguments, so that the function alone can be compiled."""

    def __init__(self, function: Callable, *args: Any):
        self.function, self.args = function, args

    def __call__(self) -> Any:
        return self.function(*self.args)

    def compiled(self, compile: Callable) -> _with:
        return _with(compile(self.function), *self.args)


CASES: dict[str, Case] = {
    "chain of 20, 1e3 elements": chain(1000),
    "chain of 20, 1e6 elements": chain(1000000),
    "small MLP, forward and backward": small_mlp,
    "GPT inference, batch 1": gpt_inference,
    "VAE, batch 64, Adam": vae_step,
    **train.CASES,
}


def compiled(step: Any, compile: Callable) -> Callable[[], Any]:
    return step.compiled(compile) if isinstance(step, _with) else compile(step)


def jax_case(name: str) -> Callable[[], Any] | None:
    """The same case in JAX, if it is installed."""
    try:
        import jax_models
    except ImportError:
        return None
    return next((make() for start, make in jax_models.CASES.items() if name.startswith(start)), None)


def contenders(name: str, torch_compile: bool, device: str) -> dict[str, Callable[[], Any]]:
    """What is timed, PyTorch eager first."""
    import torch

    import flambeau

    def make(lib: Any) -> Any:
        with lib.device(device):  # where the model and its data are
            return CASES[name](lib)

    found: dict[str, Callable[[], Any]] = {"PyTorch": make(torch)}
    if torch_compile:
        found["torch.compile"] = compiled(make(torch), torch.compile)
    theirs = jax_case(name) if device == "cpu" else None
    if theirs is not None:
        found["JAX"] = theirs
    found["Flambeau"] = make(flambeau)
    found["compiled"] = compiled(make(flambeau), flambeau.compile)
    return found


def measure(
    name: str, seconds: float, torch_compile: bool, clock: Callable[[], float], device: str = "cpu"
) -> tuple[dict[str, float], float]:
    """Median seconds per call, and how long the first three calls of the compiled function took."""
    steps = contenders(name, torch_compile, device)
    start = time.perf_counter()
    for _ in range(3):
        steps["compiled"]()
    if device != "cpu":
        _waiting(device, "compiled")()
    first = time.perf_counter() - start
    rows = {which: _Row(step, _waiting(device, which)) for which, step in steps.items()}
    count = _ROW if device != "cpu" else rows["PyTorch"].fitting(clock)
    samples: dict[str, list[float]] = {which: [] for which in rows}
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(samples["PyTorch"]) < 5:
        for which, row in rows.items():
            time.sleep(_REST)
            row(1)
            start = clock()
            row(count)
            samples[which].append(clock() - start)
    return {which: statistics.median(times) / count for which, times in samples.items()}, first


_ROW = 10  # calls between two looks at the clock, at most
_LONG = 0.02  # seconds that a row of calls takes at least, if it need not be longer than that
_REST = 0.02  # seconds before each row: PyTorch's threads go on waiting actively for 3 to 5 ms after a call, on a core that others need


class _Row:
    """Several calls, and a wait until their work is done."""

    def __init__(self, step: Callable[[], Any], wait: Callable[[], Any]):
        self.step, self.wait = step, wait

    def __call__(self, times: int) -> None:
        for _ in range(times):
            self.step()
        self.wait()

    def fitting(self, clock: Callable[[], float]) -> int:
        """How many calls a row should have."""
        self(3)
        start = clock()
        self(3)
        return max(1, min(_ROW, round(3 * _LONG / max(clock() - start, 1e-9))))


def _waiting(device: str, which: str) -> Callable[[], Any]:
    """What waits for the work of a contender."""
    import torch

    import flambeau

    if device == "cpu":
        return lambda: None
    return torch.cuda.synchronize if which in ("PyTorch", "torch.compile") else flambeau.cuda.synchronize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each case")
    parser.add_argument(
        "--torch-compile", action="store_true", help="also torch.compile, which takes a while to compile"
    )
    parser.add_argument("--busy", action="store_true", help="one thread, CPU time")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the table into docs/internals/compile.md: that of the CPU or that of a GPU",
    )
    given = parser.parse_args()
    count, clock = (1, time.process_time) if given.busy else (2, time.perf_counter)
    if given.busy:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import torch

    import flambeau

    torch.set_num_threads(count)
    flambeau.set_num_threads(count)
    torch.backends.cudnn.allow_tf32 = flambeau.backends.cudnn.allow_tf32 = False
    lines = ["| | PyTorch | eager | compiled | first three calls |", "|---|--:|--:|--:|--:|"]
    for name in CASES:
        if given.only not in name:
            continue
        times, first = measure(name, given.seconds, given.torch_compile, clock, given.device)
        base = times["PyTorch"]
        ratios = "  ".join(f"{which} {base / t:.2f}" for which, t in times.items() if which != "PyTorch")
        print(f"{name:<50} {base * 1e6:10.1f} us  {ratios}  (first three calls {first:.2f} s)", flush=True)
        lines.append(
            f"| {name} | {base * 1e3:.2f} ms | {base / times['Flambeau']:.2f} | {base / times['compiled']:.1f} | {first:.2f} s |"
        )
    if given.write:
        which = "cpu" if given.device == "cpu" else "gpu"
        marked = re.compile(rf"(<!-- {which} -->\n).*?(<!-- end -->)", re.S)
        table = "\n".join(lines)
        DOCS.write_text(marked.sub(lambda m: f"{m[1]}{table}\n{m[2]}", DOCS.read_text()))


if __name__ == "__main__":
    main()
