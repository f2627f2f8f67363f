"""Runs a program as `python program.py arguments...` would, and writes down every loss that it calls backward on. After STOP backward
passes the program is ended (0: it ends by itself).

    python driver.py LOSSES SEED STOP program.py arguments...              with PyTorch
    python -m flambeau driver.py LOSSES SEED STOP program.py arguments...  with Flambeau

With FLAMBEAU_PROGRAMS_COMPILED=1 in the environment Flambeau compiles every model that the program calls."""

import os
import random
import runpy
import sys

import numpy
import torch


def record_losses(path: str, stop: int) -> None:
    original = torch.Tensor.backward
    count = 0

    def backward(self, *args, **kwargs):
        nonlocal count
        if stop and count == stop:
            sys.exit(0)
        count += 1
        with open(path, "a") as file:
            file.write(f"{float(self.detach().double().sum()):.17g}\n")
        return original(self, *args, **kwargs)

    torch.Tensor.backward = backward


def compile_models() -> None:
    """Every model that is called by the program, not by another model, is compiled."""
    call, inside = torch.nn.Module.__call__, [False]

    def compiled(self, *args, **kwargs):
        if inside[0]:
            return call(self, *args, **kwargs)
        if self._compiled_call_impl is None and not isinstance(self, torch._dynamo.OptimizedModule):
            self.compile()
        inside[0] = True
        try:
            return call(self, *args, **kwargs)
        finally:
            inside[0] = False

    torch.nn.Module.__call__ = compiled


if __name__ == "__main__":
    losses, seed, stop = sys.argv[1:4]
    record_losses(losses, int(stop))
    if os.environ.get("FLAMBEAU_PROGRAMS_COMPILED") and "flambeau" in sys.modules:
        compile_models()
    random.seed(int(seed))
    numpy.random.seed(int(seed))
    torch.manual_seed(int(seed))
    sys.argv = sys.argv[4:]
    program = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")
