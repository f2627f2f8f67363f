"""Compiled functions and autocast around them: copies of parameters that it keeps, and backward passes under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau
from flambeau import nn
from tests.compiler.helpers import same

BF16 = flambeau.bfloat16


def programs(function: Callable) -> tuple[Any, Any]:
    """The results of a program, given what makes functions of functions: eager, or compiled."""
    flambeau.manual_seed(0)
    eager = function(lambda f: f)
    flambeau.manual_seed(0)
    return eager, function(flambeau.compile)


def changed_between_calls(make: Callable) -> list[Any]:
    layer, seen = nn.Linear(8, 4), []
    f = make(lambda x: layer(x).relu())
    for _ in range(8):
        with flambeau.no_grad(), flambeau.autocast("cpu", BF16):
            seen.append(f(flambeau.ones(2, 8)))
            layer.weight.mul_(1.1)
            seen += [f(flambeau.ones(2, 8)), layer(flambeau.ones(2, 8))]
    return seen


def changed_through_data(make: Callable) -> list[Any]:
    layer, seen = nn.Linear(8, 4), []
    f = make(lambda x: layer(x).relu().detach())
    for _ in range(8):
        with flambeau.autocast("cpu", BF16):
            seen.append(f(flambeau.ones(2, 8)))
            layer.weight.data.mul_(1.1)
            seen.append(f(flambeau.ones(2, 8)))
    return seen


def changed_before_the_call(make: Callable) -> list[Any]:
    layer, seen = nn.Linear(8, 4), []
    f = make(lambda x: layer(x).relu().detach())
    for _ in range(8):
        with flambeau.autocast("cpu", BF16):
            layer(flambeau.ones(2, 8))
            with flambeau.no_grad():
                layer.weight.mul_(1.1)
            seen.append(f(flambeau.ones(2, 8)))
    return seen


def changed_by_the_call(make: Callable) -> list[Any]:
    layer, seen = nn.Linear(8, 4), []
    optimizer = flambeau.optim.SGD(layer.parameters(), 0.5)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    f = make(step)
    for _ in range(5):
        with flambeau.autocast("cpu", BF16):
            seen += [f(flambeau.ones(2, 8)), f(flambeau.ones(2, 8)), layer.weight.detach().clone()]
    return seen


def an_argument(make: Callable) -> list[Any]:
    weight, seen = flambeau.randn(8, 4, requires_grad=True), []
    f = make(lambda x, w: (x @ w).detach())
    for _ in range(8):
        with flambeau.autocast("cpu", BF16):
            seen.append(f(flambeau.ones(2, 8), weight))
            with flambeau.no_grad():
                weight.mul_(1.1)
            seen.append(f(flambeau.ones(2, 8), weight))
    return seen


def context_inside_another(make: Callable) -> list[Any]:
    layer, seen = nn.Linear(8, 4), []

    def inner(x: Any) -> Any:
        with flambeau.autocast("cpu", BF16):
            return layer(x).detach()

    f = make(inner)
    for _ in range(8):
        with flambeau.autocast("cpu", enabled=False):
            seen.append(f(flambeau.ones(2, 8)))
            with flambeau.no_grad():
                layer.weight.mul_(1.1)
            seen.append(f(flambeau.ones(2, 8)))
    return seen


@pytest.mark.parametrize("program", [
    changed_between_calls, changed_through_data, changed_before_the_call, changed_by_the_call, an_argument, context_inside_another,
])  # fmt: skip
def test_copies_of_parameters_that_were_changed_are_read_on(program: Callable) -> None:
    """As PyTorch does: until the outermost context ends, the copy that was made first counts."""
    same(*programs(program))


def test_copies_that_are_up_to_date_cost_no_recording() -> None:
    layer = nn.Linear(8, 4)
    f = flambeau.compile(lambda x: layer(x).relu())
    for _ in range(6):
        with flambeau.no_grad(), flambeau.autocast("cpu", BF16):
            for _ in range(3):
                f(flambeau.ones(3, 8))
        with flambeau.no_grad():
            layer.weight.mul_(1.1)
    assert sum(r.calls for r in f._compiled.recordings()) == 15


@pytest.mark.parametrize("usual", [False, True])
def test_backward_under_another_autocast(usual: bool) -> None:
    """It would compute in another precision: that is refused once, and then the function runs uncompiled."""
    flambeau.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    f, x = flambeau.compile(lambda x: net(x)), flambeau.randn(5, 8)

    def gradient(function: Callable, on: bool) -> Any:
        net.zero_grad()
        result = function(x)
        with flambeau.autocast("cpu", BF16, enabled=on):
            result.square().mean().backward()
        return net[0].weight.grad

    for _ in range(6):
        same(gradient(f, usual), gradient(net, usual))
    assert f._compiled.recordings()[0].calls
    with pytest.raises(RuntimeError, match="another autocast"):
        gradient(f, not usual)
    for on in (not usual, usual):
        same(gradient(f, on), gradient(net, on))


def test_backward_inside_or_outside_of_the_autocast_of_the_call() -> None:
    """Where all operators compute in the lower precision anyway, both give the same: neither is refused."""
    flambeau.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    f, x = flambeau.compile(lambda x: net(x)), flambeau.randn(5, 8)
    for number in range(10):
        found = []
        for function in (f, net):
            net.zero_grad()
            with flambeau.autocast("cpu", BF16):
                result = function(x)
                if number % 2:
                    result.float().square().mean().backward()
            if not number % 2:
                result.float().square().mean().backward()
            found.append([p.grad for p in net.parameters()])
        same(*found)
    assert f._compiled.recordings()[0].calls


def test_calls_that_wait_for_a_backward_pass_say_so() -> None:
    """Nobody knows whether autocast will be on in the backward pass: it is not tried out before there is one."""
    compiled = flambeau.compile(nn.Linear(4, 4))
    with flambeau.autocast("cpu", flambeau.bfloat16):
        for _ in range(20):
            compiled(flambeau.ones(2, 4))
    assert "that needs a backward pass; until then calls run as they are" in compiled.explain()
