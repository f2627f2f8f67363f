"""Compiled functions whose caller differentiates them, with checkpoints, hooks of saved tensors and seeds inside: gradients, also those that a
backward pass sets by itself, and random numbers are eager's, on the CPU and on an emulated GPU."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.autograd.graph import save_on_cpu, saved_tensors_hooks
from flambeau.utils.checkpoint import checkpoint
from tests.kernels.cuda_on_cpu import COMPILER

CALLS = 9


class Table:
    """State that hooks read."""

    factor = 2.0


class Parts(nn.Module):
    """A network of which a part is checkpointed."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(dropout), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.inner, self.first(x), use_reentrant=False))


def reentrant(model, x):
    return checkpoint(model, x.requires_grad_(), use_reentrant=True)


def whole(model, x):
    return checkpoint(model, x, use_reentrant=False)


def partly(model, x):
    return model(x)


def on_host(model, x):
    with save_on_cpu():
        return model(x)


def as_arrays(model, x):
    with saved_tensors_hooks(lambda t: t.numpy().copy(), torch.from_numpy):
        return model(x)


def scaled(model, x):
    with saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2 * Table.factor):
        return model(x)


def outcomes(function, model, between=lambda call: None):
    """What is left after each of some calls: the gradients of the parameters and of the argument, and the next random number."""
    torch.manual_seed(1)
    found = []
    for call in range(CALLS):
        between(call)
        model.zero_grad()
        x = torch.randn(4, 3)
        result = function(model, x)
        torch.rand(call % 3)  # others draw between the passes
        result.square().sum().backward()
        grads = [t.grad for t in (*model.parameters(), x)]
        found.append([result.detach(), torch.rand(1), *grads])
    return found


def same(a, b) -> bool:
    return len(a) == len(b) and all(
        (x is None) == (y is None) and (x is None or torch.allclose(x, y, atol=1e-6)) for x, y in zip(a, b)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.02], ids="dropout {}".format)
@pytest.mark.parametrize("function", [reentrant, whole, partly, on_host, as_arrays, scaled], ids=lambda f: f.__name__)
def test_gradients_and_random_numbers_are_those_of_eager_calls(function, dropout):
    torch.manual_seed(0)
    model = Parts(dropout)
    twin = copy.deepcopy(model)

    def change(call):
        Table.factor = 3.0 if call > 5 else 2.0

    expected = outcomes(function, model, change)
    compiled = torch.compile(function)
    found = outcomes(compiled, twin, change)
    wrong = [call for call, (a, b) in enumerate(zip(expected, found, strict=True)) if not same(a, b)]
    assert not wrong, compiled.explain()


@pytest.mark.parametrize("function", [whole, partly, on_host], ids=lambda f: f.__name__)
def test_checkpointed_functions_and_their_derivatives_run_natively(function):
    compiled = torch.compile(function)
    outcomes(compiled, Parts())
    (recording,) = compiled._compiled.recordings()
    assert recording.derivative.checked and not recording.derivative.problem


def test_a_seed_that_no_result_shows_is_set_in_every_call():
    def seeds(x):
        y = x * 2
        torch.manual_seed(3)
        return y

    with pytest.warns(UserWarning, match="the state of a random generator is set"):
        compiled = torch.compile(seeds)
        after = []
        for call in range(6):
            torch.manual_seed(call)
            compiled(torch.ones(2))
            after.append(torch.rand(1).item())
    torch.manual_seed(3)
    assert after == [torch.rand(1).item()] * 6


_ON_GPU = """
import pathlib, sys, warnings
from tests.backends.nvidia import fake_driver
fake = fake_driver.install(pathlib.Path(sys.argv[1]))
import flambeau as fl
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")

class Rows(nn.Linear):
    "A linear layer without a library call, which the emulated GPU does not have."
    def forward(self, x):
        return (x.unsqueeze(-1) * self.weight.T).sum(-2) + self.bias

class Table:
    factor, passes = 2.0, 0

class Scale(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        Table.passes += 1
        return g * Table.factor

def network(dropout):
    fl.manual_seed(1)
    return nn.Sequential(Rows(3, 4), nn.GELU(), nn.Dropout(dropout), Rows(4, 2)).cuda()

def reentrant(model, x):
    return checkpoint(model, x.requires_grad_(), use_reentrant=True)

def without_state(model, x):
    return checkpoint(model, x.requires_grad_(), use_reentrant=True, preserve_rng_state=False)

def whole(model, x):
    return checkpoint(model, x, use_reentrant=False)

def users(model, x):
    return Scale.apply(model(x))

def step(model, x):
    model.zero_grad()
    loss = whole(model, x).square().sum()
    loss.backward()
    return loss

def outcomes(function, model):
    fl.cuda.manual_seed(1)
    Table.passes, found, launches = 0, [], 0
    for call in range(9):
        Table.factor = 3.0 if call > 5 else 2.0
        if function is not step:
            model.zero_grad()
        x = fl.arange(3.0, device="cuda").view(1, 3) + call
        before = fake.calls["cuGraphLaunch"]
        result = function(model, x)
        if result.requires_grad and not any(p.grad is not None for p in model.parameters()):
            fl.rand(2, device="cuda")
            result.square().sum().backward()
        launches = fake.calls["cuGraphLaunch"] - before
        found.append([result.detach(), fl.rand(1, device="cuda"), x.grad, *(p.grad for p in model.parameters())])
    return found, Table.passes, launches

def same(a, b):
    return all((x is None) == (y is None) and (x is None or fl.allclose(x, y, atol=1e-5)) for x, y in zip(a, b))

for function in (reentrant, without_state, whole, users, step):
    for dropout in (0.0, 0.05):
        expected, passes, _ = outcomes(function, network(dropout))
        found, again, launches = outcomes(fl.compile(function), network(dropout))
        wrong = [call for call, (a, b) in enumerate(zip(expected, found)) if not same(a, b)]
        assert not wrong and passes == again, (function.__name__, dropout, wrong, passes, again)
        if dropout == 0 and function in (whole, step):
            assert launches == (2 if function is whole else 1), (function.__name__, launches)
print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
def test_backward_passes_on_an_emulated_gpu(tmp_path):
    done = subprocess.run([sys.executable, "-c", _ON_GPU, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "done", done.stdout + done.stderr
