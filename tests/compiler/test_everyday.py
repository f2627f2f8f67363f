"""Ways in which people write training steps and models: each ends up as native calls, with eager's results."""

from __future__ import annotations

import typing

import pytest

import flambeau
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint

CALLS = 9


def _behind(compiled):
    found = compiled.__dict__["_compiled"]
    while not hasattr(found, "found"):
        found = found._compiled
    return found


def _native(behind) -> int:
    """Native calls of a function, or of the part of it that has most."""
    return max(sum(r.calls for r in behind.recordings()), *map(_native, behind.parts()), 0)


def _model(dropout: float = 0.0):
    flambeau.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(dropout), nn.Linear(8, 3))


def _alike(build, calls: int = CALLS, native: int = 3):
    """A step compiled and as it is, on models of their own: the same losses and parameters."""
    (plain, one), (step, other) = build(), build()
    compiled = flambeau.compile(step)
    for k in range(calls):
        x, y = flambeau.randn(5, 6), flambeau.randint(0, 3, (5,))
        results = []
        for f in (plain, compiled):
            flambeau.manual_seed(k)
            results.append(f(x, y))
        flambeau.testing.assert_close(*results)
    for p, q in zip(one.parameters(), other.parameters()):
        flambeau.testing.assert_close(p, q)
    behind = _behind(compiled)
    assert _native(behind) >= native, compiled.explain()
    return behind


def test_a_function_with_a_derivative_of_its_own():
    class Square(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    def build():
        model = _model()
        optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(Square.apply(model(x)), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, model

    assert not _alike(build).parts()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_schedule_inside_the_step():
    """It changes the betas of Adam as well; the rest of the step goes on natively."""

    def build():
        model = _model()
        optimizer = flambeau.optim.AdamW(model.parameters())
        schedule = flambeau.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=40)

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            return loss.detach()

        return step, model

    behind = _alike(build, 14)
    assert len(behind.parts()[0].recordings()) == 1


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_activation_checkpoints(reentrant, dropout):
    """Where random numbers are drawn in both runs, the step runs as it is."""

    def build():
        model = _model(dropout)
        optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            h = checkpoint(model[:3], x.detach().requires_grad_(), use_reentrant=reentrant)
            loss = F.cross_entropy(model[3](h), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, model

    _alike(build, native=0 if dropout else 3)


def test_the_closure_of_lbfgs():
    """It clears gradients: what the optimizer counts does not concern it."""
    model = _model()
    x, y = flambeau.randn(5, 6), flambeau.randint(0, 3, (5,))
    optimizer = flambeau.optim.LBFGS(model.parameters(), max_iter=3)

    @flambeau.compile
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    first = float(closure())
    for _ in range(4):
        optimizer.step(closure)
    assert float(closure()) < first and _native(_behind(closure)) > 3


class Pair(typing.NamedTuple):
    """What a function returns."""

    first: flambeau.Tensor
    second: flambeau.Tensor


def test_named_tuples():
    compiled = flambeau.compile(lambda x: Pair(x * 2, x + 1))
    for _ in range(5):
        got = compiled(flambeau.ones(2))
        assert type(got) is Pair and got.first.tolist() == [2, 2] and got.second.tolist() == [2, 2]
    assert _native(_behind(compiled)) > 0


def test_compiled_functions_inside_compiled_functions():
    model = _model()
    inner, network = flambeau.compile(lambda t: F.gelu(t) * 2), flambeau.compile(model)
    outer = flambeau.compile(lambda t: inner(network(t)).sum())
    x = flambeau.randn(5, 6)
    for _ in range(6):
        model.zero_grad()
        outer(x).backward()
        got = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        (F.gelu(model(x)) * 2).sum().backward()
        for g, p in zip(got, model.parameters()):
            flambeau.testing.assert_close(g, p.grad)
    assert _native(_behind(outer)) > 0 and not _behind(outer).reasons


def test_results_that_are_not_differentiated():
    """A model that is only evaluated becomes native without no_grad, too, and can still be differentiated."""
    model = _model(0.2)
    compiled = flambeau.compile(model)
    x = flambeau.randn(5, 6)
    before = flambeau.get_rng_state()
    for k in range(10):
        results = []
        for f in (model, compiled):
            flambeau.manual_seed(k)
            results.append(f(x))
        flambeau.testing.assert_close(*results)
        assert results[1].requires_grad and all(p.grad is None for p in model.parameters())
    flambeau.set_rng_state(before)
    assert _native(_behind(compiled)) > 2
    grads = []
    for f in (model, compiled):
        flambeau.manual_seed(3)
        f(x).square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
        model.zero_grad()
    flambeau.testing.assert_close(*grads)


def test_a_backward_pass_of_the_users_is_not_run_for_nothing():
    calls = []

    class Watched(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            calls.append(1)
            return g * 2

    model = nn.Linear(3, 3)
    compiled = flambeau.compile(lambda x: Watched.apply(model(x)))
    for _ in range(8):
        compiled(flambeau.ones(2, 3))
    assert not calls


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_decorated_function_with_a_number():
    """What is under no_grad() is split as it would be without."""
    model = _model()

    @flambeau.compile
    @flambeau.no_grad()
    def sample(x, i):
        shift = i / 10
        e = model(x)
        return e * shift

    x = flambeau.randn(5, 6)
    for i in range(14):
        flambeau.testing.assert_close(sample(x, i), (model(x) * (i / 10)).detach())
    assert _native(_behind(sample)) > 2
