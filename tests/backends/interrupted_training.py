"""Training that is interrupted again and again, and keeps a checkpoint each time.

    python -m tests.backends.interrupted_training folder times

Prints how many interruptions ended in a checkpoint that holds the model's state.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import flambeau as torch
from flambeau import nn


class Rows(nn.Module):
    """A layer whose weight stands on the right as it is, which oneDNN's general product multiplies by."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(512, 512) / 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def interrupt_soon(caught: threading.Event) -> None:
    """Interrupt once; again after a while, because Python loses an interrupt that it raises in a finalizer."""
    time.sleep(random.uniform(0.002, 0.04))
    os.kill(os.getpid(), signal.SIGINT)
    while not caught.wait(20):
        os.kill(os.getpid(), signal.SIGINT)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int | None = None) -> None:
    """Train for a number of steps, or without end."""
    x, y = torch.randn(256, 512), torch.randn(256, 512)
    for _ in itertools.count() if steps is None else range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def main(folder: Path, times: int) -> None:
    model = nn.Sequential(*[Rows() for _ in range(3)])
    optimizer = torch.optim.AdamW(model.parameters())
    train(
        model, optimizer, steps=1
    )  # imports what compiles kernels: Python 3.10 itself may fail where an import is interrupted
    kept = 0
    # Jobs that a shell starts in the background ignore interrupts, and so do the processes they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: None)  # as a profiler does
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    for number in range(times):
        caught = threading.Event()
        interrupter = threading.Thread(target=interrupt_soon, args=(caught,))
        try:
            interrupter.start()
            train(model, optimizer)
        except KeyboardInterrupt:
            caught.set()
            torch.save(model.state_dict(), folder / f"{number}.pt")
        interrupter.join()
        gc.collect()
        loaded = torch.load(folder / f"{number}.pt")
        kept += all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
