"""Activation checkpointing: the same gradients with less kept."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
from answers import judge

import flambeau as torch
from flambeau import nn
from flambeau.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_early_stop


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def gradients(run):
    model = network()
    x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
    torch.manual_seed(1)
    run(model, x).sum().backward()
    return [x.grad, *(p.grad for p in model.parameters())], torch.rand(1)


RUNS = {
    "reentrant": lambda model, x: checkpoint(model, x, use_reentrant=True),
    "not reentrant": lambda model, x: checkpoint(model, x, use_reentrant=False),
    "nested": lambda model, x: checkpoint(
        lambda y: checkpoint(model[3:], checkpoint(model[:3], y, use_reentrant=False), use_reentrant=False),
        x,
        use_reentrant=False,
    ),
    "sequential": lambda model, x: checkpoint_sequential(model, 3, x, use_reentrant=False),
    "sequential, reentrant": lambda model, x: checkpoint_sequential(model, 2, x, use_reentrant=True),
}


@pytest.mark.parametrize("name", RUNS)
def test_gradients_and_random_numbers_are_those_of_a_plain_run(name):
    plain, random_after = gradients(lambda model, x: model(x))
    found, random_after_too = gradients(RUNS[name])
    for a, b in zip(plain, found):
        assert torch.equal(a, b)
    assert torch.equal(random_after, random_after_too)


def test_nothing_is_kept_but_the_inputs():
    kept = []
    x = torch.ones(4, requires_grad=True)
    runs = []

    def function(y):
        runs.append(1)
        return y.exp().exp().exp()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = checkpoint(function, x, use_reentrant=False)
    assert not kept and len(runs) == 1
    y.sum().backward(retain_graph=True)
    assert len(runs) == 2
    first = x.grad.clone()
    y.sum().backward()
    assert torch.allclose(x.grad, 2 * first)


def test_a_second_run_that_differs_is_an_error():
    runs = []

    def function(y):
        runs.append(1)
        return y.sin() if len(runs) > 1 else y.sin().exp().sin()

    y = checkpoint(function, torch.ones(2, requires_grad=True), use_reentrant=False)
    with pytest.raises(CheckpointError, match="different number of tensors"):
        y.sum().backward()


def test_warnings_and_wrong_arguments():
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(torch.sin, x)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(torch.sin, x.detach(), use_reentrant=True)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: foo"):
        checkpoint(torch.sin, x, use_reentrant=True, foo=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint(torch.sin, x, use_reentrant=False)


def test_against_pytorch():
    real = judge("torch")
    theirs = judge("torch.utils.checkpoint")

    results = []
    for lib, module in ((torch, None), (real, theirs)):
        run = checkpoint if module is None else module.checkpoint
        lib.manual_seed(3)
        x = lib.linspace(-1, 1, 10).requires_grad_()
        lib.nn.functional.dropout(
            run(lambda y, lib=lib: lib.nn.functional.dropout(y.sin(), 0.5), x, use_reentrant=False), 0.5
        ).sum().backward()
        results.append(x.grad.numpy())
    assert (abs(results[0] - results[1]) < 1e-6).all()


def _gradient(function):
    def gradient(x):
        with torch.enable_grad():
            return torch.autograd.grad(function(x), x, create_graph=True)[0]

    return gradient


def _checkpointed(function):
    return lambda x: checkpoint(function, x, use_reentrant=False)


@pytest.mark.parametrize("stops", [True, False])
def test_higher_derivatives_of_checkpointed_parts(stops):
    def function(x):
        return x.sin().exp().sin()

    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    second, third = _gradient(_gradient(function))(x), _gradient(_gradient(_gradient(function)))(x)
    c, d = _checkpointed, _gradient
    with set_checkpoint_early_stop(stops):
        for same in (d(c(d(function))), c(d(d(c(function)))), d(c(d(c(function)))), d(d(c(c(function))))):
            assert torch.allclose(same(x), second)
        assert torch.allclose(d(c(d(d(c(function)))))(x), third)


def test_the_second_run_stops_early_unless_told_not_to():
    runs = []

    def function(x):
        y = x.sin().cos()
        runs.append(1)  # after everything is saved
        return y.clone()

    for options, expected in (({}, 1), ({"early_stop": False}, 2)):
        runs.clear()
        checkpoint(function, torch.ones((), requires_grad=True), use_reentrant=False, **options).backward()
        assert len(runs) == expected


def test_a_function_that_is_stopped_early_leaves_nothing_behind():
    made = []

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clone()
            ctx.save_for_backward(y)
            made.append(weakref.ref(y))
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    gc.disable()
    try:
        checkpoint(Copy.apply, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
        assert len(made) == 2 and all(reference() is None for reference in made)
    finally:
        gc.enable()
