"""A storm of signals over every kind of native kernel: results are those of a calm run, and no signal finds the stack pointer astray.

    python -m tests.backends.signal_storm [seconds per kernel]

Signals come every 60 microseconds, to the main thread by a timer, to other threads one by one. Prints a line of JSON for each kernel.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

from . import stray_signals

EVERY = 60e-6  # seconds
Kernel = Callable[[], Any]


def products() -> dict[str, Kernel]:
    a, b, c = torch.randn(48, 160), torch.randn(160, 64), torch.randn(64, 160)
    large, square = torch.randn(256, 512), torch.randn(512, 512)
    batch = torch.randn(4, 96, 96)
    half = square.to(torch.bfloat16)
    return {
        "mm nn": lambda: torch.mm(a, b),
        "mm nt": lambda: torch.mm(a, c.t()),
        "mm tn": lambda: torch.mm(b.t(), b),
        "mm tt": lambda: torch.mm(b.t(), a.t()),
        "mm in threads": lambda: torch.mm(large, square),
        "mm tn in threads": lambda: torch.mm(large.t(), large),
        "addmm": lambda: torch.addmm(large, large, square, alpha=0.5, beta=2.0),
        "bmm": lambda: torch.bmm(batch, batch),
        "bmm tn": lambda: torch.bmm(batch.transpose(1, 2), batch),
        "mv": lambda: square.mv(square[0]),
        "bfloat16": lambda: torch.mm(half, half),
        "solve": lambda: torch.linalg.solve(batch + 50 * torch.eye(96), batch),
        "fft": lambda: torch.fft.rfft(square),
    }


def gradients(model: nn.Module, *inputs: Any) -> Any:
    """The result's sum and all gradients."""
    model.zero_grad()
    result = model(*inputs)
    total = (result[0] if isinstance(result, tuple) else result).sum()
    total.backward()
    return [total, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def layers() -> dict[str, Kernel]:
    pictures, wide = torch.randn(4, 16, 20, 20), torch.randn(2, 3, 40, 40)
    words, query = torch.randn(6, 4, 96), torch.randn(2, 4, 48, 96)
    modules = {
        "linear": (nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 130)), torch.randn(64, 512)),
        "convolution": (nn.Conv2d(16, 24, 3, padding=1), pictures),
        "strided convolution": (nn.Conv2d(3, 16, 7, 2, 3), wide),
        "pointwise convolution": (nn.Conv2d(16, 32, 1), pictures),
        "depthwise convolution": (nn.Conv2d(16, 16, 3, groups=16), pictures),
        "transposed convolution": (nn.ConvTranspose2d(16, 8, 3, 2), pictures),
        "LSTM": (nn.LSTM(96, 128), words),
        "normalisation": (nn.Sequential(nn.BatchNorm2d(16, track_running_stats=False), nn.MaxPool2d(2)), pictures),
    }
    kernels = {name: lambda m=module, x=x: gradients(m, x) for name, (module, x) in modules.items()}
    return kernels | {"attention": lambda: F.scaled_dot_product_attention(query, query, query, is_causal=True)}


def drawn() -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randn(20_000) + torch.rand(20_000) + torch.randperm(20_000)


def training_step() -> Kernel:
    """A compiled step from the same start each time."""
    model = nn.Sequential(nn.Linear(160, 96), nn.Tanh(), nn.Linear(96, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = [p.detach().clone() for p in model.parameters()]
    x, y = torch.randn(32, 160), torch.arange(32) % 10

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def run() -> Any:
        with torch.no_grad():
            for p, value in zip(model.parameters(), start, strict=True):
                p.copy_(value)
        return [step(x, y).detach().clone(), step(x, y).detach().clone()]

    run()
    return run


def others() -> dict[str, Kernel]:
    x = torch.randn(400, 500)
    index = torch.randint(0, 400, (300,))
    return {
        "formula": lambda: (x * 2 + x).sin() / (x.exp() + 1),
        "sum": lambda: [x.sum(0), x.sum(1), x.sum(), x.softmax(1), x.cumsum(0)],
        "sort": lambda: [*x.sort(1), *x.topk(5, 1), x.unique()],
        "index": lambda: [x[index], x.index_add(0, index, x[:300]), F.embedding(index, x)],
        "random": drawn,
        "compiled step": training_step(),
    }


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return all(map(_same, left, right))
    return torch.equal(left, right)


def rounds(kernel: Kernel, expected: Any, seconds: float) -> dict[str, int]:
    """How often the kernel ran, how often its result was another one, and how many threads of pools would take a signal."""
    ran = wrong = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ran += 1
        wrong += not _same(kernel(), expected)
    pythons = {thread.native_id for thread in threading.enumerate()}
    return {"ran": ran, "wrong": wrong, "exposed": len(stray_signals.open_threads(signal.SIGALRM, pythons))}


def _protected(kernel: Kernel, expected: Any, seconds: float) -> dict[str, int]:
    stray_signals.use_alternate_stack()
    return rounds(kernel, expected, seconds)


def in_main_thread(kernel: Kernel, expected: Any, seconds: float) -> dict[str, int]:
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    try:
        return rounds(kernel, expected, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def in_other_thread(kernel: Kernel, expected: Any, seconds: float) -> dict[str, int]:
    """The same in a thread of a pool, which gets every signal itself."""
    with ThreadPoolExecutor(1) as pool:
        ident = pool.submit(threading.get_ident).result()
        future = pool.submit(_protected, kernel, expected, seconds)
        while not future.done():
            signal.pthread_kill(ident, signal.SIGALRM)
            time.sleep(EVERY)
        return future.result()


def main(seconds: float) -> None:
    torch.manual_seed(0)
    stray_signals.use_alternate_stack()
    stray_signals.count_strays_of(signal.SIGALRM)
    for name, kernel in (products() | layers() | others()).items():
        expected = kernel()
        for where in (in_main_thread, in_other_thread):
            stray_signals.counted()
            told = where(kernel, expected, seconds)
            signals, strays = stray_signals.counted()
            told |= {"signals": signals, "strays": strays}
            print(json.dumps({"kernel": name, "where": where.__name__} | told), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
