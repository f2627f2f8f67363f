"""Exceptions in the middle of compiled calls: what is left behind, and what handles them, is what it is uncompiled."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Callable
from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.compiler.state.frames import from_signal_handler
from flambeau.nn import functional as F
from tests.compiler.helpers import same, visible

CALLS = 10
BAD = (5, 6, 8)  # calls with an index that does not exist


def outcome(build: Callable[[], tuple[Callable, Any]], compiled: bool) -> tuple[list[Any], int]:
    """Results or errors of each call and the state behind it, and how many calls were native."""
    flambeau.manual_seed(0)
    f, state = build()
    f = flambeau.compile(f) if compiled else f
    found: list[Any] = []
    for number in range(CALLS):
        flambeau.manual_seed(number)
        x, index = flambeau.randn(4, 3), flambeau.tensor([0, 2, 9 if number in BAD else 1])
        try:
            result = f(x, index)
        except Exception as problem:
            result = f"{type(problem).__name__}: {problem}"
        found.append([result, x, x._version, visible(state), flambeau.get_rng_state()])
    return found, sum(r.calls for r in f._compiled.recordings()) if compiled else 0


def train_with_dropout() -> tuple[Callable, Any]:
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
    table, optimizer = nn.Embedding(4, 4), flambeau.optim.Adam(model.parameters(), 0.1)

    def step(x: Any, index: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x)[:3] * table(index)).mean()  # the table is read behind what changes the state
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [model, optimizer, table]


def train_two_models() -> tuple[Callable, Any]:
    first, second = nn.Linear(3, 3), nn.Embedding(4, 3)
    optimizers = [flambeau.optim.Adam(m.parameters(), 0.1) for m in (first, second)]

    def step(x: Any, index: Any) -> Any:
        for m, o in zip((first, second), optimizers):
            o.zero_grad()
            (first(x)[:3] if m is first else first(x)[:3].detach() * second(index)).mean().backward()
            o.step()

    return step, [first, second, *optimizers]


def change_an_argument() -> tuple[Callable, Any]:
    total = flambeau.zeros(3)

    def f(x: Any, index: Any) -> Any:
        x.add_(1)
        total.add_(x[0])
        y = x[index] * 2
        x.mul_(total)
        return y

    return f, [total]


def catch_it() -> tuple[Callable, Any]:
    total = flambeau.zeros(3)

    def f(x: Any, index: Any) -> Any:
        total.add_(x[0])
        with contextlib.suppress(IndexError):
            return x[index] * 2
        return x * total

    return f, [total]


def large_state() -> tuple[Callable, Any]:
    """Too large to be copied in each call: what is changed first is."""
    caches = [flambeau.zeros(1001, 300) for _ in range(6)]

    def f(x: Any, index: Any) -> Any:
        for cache in caches:
            cache.index_add_(0, index * 500, x[:3, :1].expand(3, 300))
        return caches[-1].sum()

    return f, [c[::500, 0] for c in caches]


@pytest.mark.parametrize("build", [train_with_dropout, train_two_models, change_an_argument, catch_it, large_state])
def test_errors_leave_behind_what_they_do_uncompiled(build: Callable) -> None:
    eager, _ = outcome(build, False)
    compiled, native = outcome(build, True)
    assert native
    same(eager, compiled)


def test_an_error_behind_a_large_change_is_raised() -> None:
    """What was changed cannot be restored then: the error says what has failed."""
    large = flambeau.zeros(3000, 3000)

    @flambeau.compile
    def f(x: Any, index: Any) -> Any:
        large.add_(1)
        return F.embedding(index, x)

    for _ in range(4):
        f(flambeau.ones(3, 1), flambeau.tensor([0]))
    with pytest.raises(IndexError, match="an index is out of range"):
        f(flambeau.ones(3, 1), flambeau.tensor([9]))
    assert f(flambeau.ones(3, 1), flambeau.tensor([0])).item() == 1


class _Alarm:
    rung = 0

    def ring(self, *args: Any) -> None:
        self.rung += 1
        raise TimeoutError("late")

    __call__ = ring


@pytest.mark.parametrize(
    "handler", [lambda a: lambda *args: a.ring(), lambda a: a.ring, lambda a: a, lambda a: functools.partial(a.ring, 1)]
)
def test_the_exception_of_a_signals_handler_is_no_operators(handler: Any) -> None:
    """It is told from an operator's, whatever kind of callable the handler is, and passed on: the call is made once."""
    alarm, armed = _Alarm(), [False]

    @flambeau.library.custom_op("test_errors::slow", mutates_args=())
    def slow(x: flambeau.Tensor) -> flambeau.Tensor:
        if armed[0]:
            signal.raise_signal(signal.SIGUSR1)
        return x.clone()

    before = signal.signal(signal.SIGUSR1, handler(alarm))
    f = flambeau.compile(lambda x: slow(x) * 2)
    try:
        for _ in range(4):
            f(flambeau.ones(2))
        armed[0] = True
        with pytest.raises(TimeoutError) as caught:
            f(flambeau.ones(2))
        assert from_signal_handler(caught.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert alarm.rung == 1
    assert not from_signal_handler(caught.value)  # nobody handles signals any more


def test_an_index_that_is_tested_after_it_failed() -> None:
    """The place where kernels report errors is empty again."""
    table = nn.Embedding(4, 300)
    f = flambeau.compile(lambda i: F.embedding(i, table.weight.detach()))
    for _ in range(4):
        f(flambeau.tensor([1]))
    with pytest.raises(IndexError):
        f(flambeau.tensor([7]))
    assert flambeau.equal(F.embedding(flambeau.tensor([2]), table.weight)[0], table.weight[2])
