"""Forward-mode derivatives, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.autograd.forward_ad

torch = judge("torch")

X, V = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)

FUNCTIONS: dict[str, Callable] = {
    "sin": lambda t, x: x.sin(),
    "twice": lambda t, x: x * x + t.cat([x, x])[3:],
    "several": lambda t, x: (x.exp() * x.sum(0)).softmax(1) @ x.T,
    "views": lambda t, x: x.T[1:].reshape(-1)[::2],
    "reduction": lambda t, x: t.logsumexp(x, 1) + x.amax(1) + x.std(1),
    "sort": lambda t, x: x.sort(1).values,
    "floor": lambda t, x: x.floor(),
    "detach": lambda t, x: x.detach() * x,
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x, (4,)),
    "in_place": lambda t, x: x.clone().mul_(x).add_(1).exp_(),
    "buffer": lambda t, x: t.zeros(3, 4).add_(x).square(),
    "linear": lambda t, x: t.nn.functional.linear(x, t.ones(2, 4)),
    "inverse": lambda t, x: t.linalg.inv(x @ x.T + t.eye(3)),
    "cat": lambda t, x: t.cat([x, t.ones(1, 4)]),
    "where": lambda t, x: t.where(x > 0, x**2, 0.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("recording", [True, False])
def test_tangents_are_those_of_torch(name: str, recording: bool) -> None:
    results = []
    for t in (torch, flambeau):
        forward = t.autograd.forward_ad
        with forward.dual_level(), t.set_grad_enabled(recording):
            out = FUNCTIONS[name](t, forward.make_dual(t.tensor(X), t.tensor(V)))
            assert not out.requires_grad
            results.append(forward.unpack_dual(out))
    for wanted, found in zip(*results):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(force=True), rtol=1e-4, atol=1e-5)


def test_backward_through_a_tangent() -> None:
    def gradient(t: Any) -> Any:
        forward, w = t.autograd.forward_ad, t.tensor(X, requires_grad=True)
        with forward.dual_level():
            out = (forward.make_dual(t.tensor(X), t.tensor(V)) * w).sin()
            forward.unpack_dual(out).tangent.sum().backward()
        return w.grad.numpy()

    np.testing.assert_allclose(gradient(flambeau), gradient(torch), rtol=1e-4, atol=1e-5)


def test_a_tangent_ends_with_its_level() -> None:
    forward = flambeau.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(flambeau.ones(2), flambeau.ones(2))
        assert forward.unpack_dual(flambeau.ones(2)).tangent is None
        assert forward.unpack_dual(dual).tangent is not None
    assert forward.unpack_dual(dual).tangent is None
    assert forward.unpack_dual(dual * 2).tangent is None


REFUSED: dict[str, Callable] = {
    "no_level": lambda t, f: f.make_dual(t.ones(2), t.ones(2)),
    "exit": lambda t, f: f.exit_dual_level(),
    "size": lambda t, f: _inside(f, lambda: f.make_dual(t.ones(2), t.ones(3))),
    "integers": lambda t, f: _inside(f, lambda: f.make_dual(t.arange(2), t.ones(2))),
    "twice": lambda t, f: _inside(f, lambda: f.make_dual(f.make_dual(t.ones(2), t.ones(2)), t.ones(2))),
    "nested": lambda t, f: _inside(f, f.enter_dual_level),
}


def _inside(forward: Any, function: Callable) -> Any:
    with forward.dual_level():
        return function()


@pytest.mark.parametrize("name", REFUSED)
def test_same_exception_as_torch(name: str) -> None:
    problems = []
    for t in (torch, flambeau):
        with pytest.raises(Exception) as caught:  # noqa: PT011  compared below
            REFUSED[name](t, t.autograd.forward_ad)
        problems.append(caught.value)
    assert type(problems[0]) is type(problems[1])
    assert str(problems[0])[:60] == str(problems[1])[:60]


CHANGES: dict[str, Callable] = {
    "an element": lambda t, x: x.__setitem__(0, x[1] * 3),
    "through a view": lambda t, x: x[1:].mul_(x[:1]),
    "through a transposed view": lambda t, x: x.T[0].add_(x.T[1], alpha=2),
    "with a constant": lambda t, x: x[0].zero_(),
    "view made before": lambda t, x: (lambda part: (x.mul_(x * 2), part.exp_()))(x[1:, ::2]),
    "copied": lambda t, x: x[0].copy_(x[1].sin()),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("late", [True, False])
def test_changing_a_dual_tensor_through_views(name: str, late: bool) -> None:
    """`late`: the tensor gets its tangent by being written to."""
    results = []
    for t in (torch, flambeau):
        forward = t.autograd.forward_ad
        with forward.dual_level():
            dual = forward.make_dual(t.tensor(X), t.tensor(V))
            buffer = t.zeros(3, 4) if late else dual * 1
            corner = buffer[1:, 1:]
            if late:
                buffer[:, 1:].add_(dual[:, 1:])
            CHANGES[name](t, buffer)
            results.append([*forward.unpack_dual(buffer), *forward.unpack_dual(corner)])
    for wanted, found in zip(*results):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_a_tangent_is_printed() -> None:
    forward = flambeau.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(flambeau.ones(2), flambeau.zeros(2))
        assert repr(dual) == "tensor([1., 1.], tangent=tensor([0., 0.]))"
    assert repr(dual) == "tensor([1., 1.])"
