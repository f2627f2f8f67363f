"""Small cases of autograd in which one word of the library decides: what a program sees is what it sees with PyTorch."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from answers import judge, told

import flambeau


def identity_of_a_dual(L: Any) -> Any:
    class Same(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t

    with L.autograd.forward_ad.dual_level():
        x = L.autograd.forward_ad.make_dual(L.ones(2), L.arange(2.0))
        y = Same.apply(x)
        return y is x, y._base is not None, L.autograd.forward_ad.unpack_dual(y).tangent.tolist()


def retained_of_two(L: Any, second: bool) -> Any:
    x = L.arange(6.0).reshape(2, 3).requires_grad_()
    a, b = x.mul(2).unbind(0)
    a.retain_grad()
    b.retain_grad()
    (b if second else a).pow(2).sum().backward()
    return [None if t.grad is None else t.grad.tolist() for t in (a, b, x)]


def hooks_of_two(L: Any, materialize: bool) -> Any:
    seen = []

    class Two(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            seen.append((g is None, h is None))
            return (g if g is not None else 0) + (h if h is not None else 0)

    x = L.ones(2, requires_grad=True)
    a, b = Two.apply(x)
    b.register_hook(lambda g: seen.append(None if g is None else g.tolist()))
    b.retain_grad()
    a.sum().backward()
    return seen, None if b.grad is None else b.grad.tolist(), x.grad.tolist()


def retained_twice(L: Any) -> Any:
    x = L.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    return y.grad.tolist(), x.grad.tolist()


def sparse_gradient_of_other_dims(L: Any) -> Any:
    class Wrong(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.to_dense()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.to_sparse(1)

    x = L.eye(3, dtype=L.float64).to_sparse().requires_grad_()
    return L.autograd.gradcheck(Wrong.apply, (x,), masked=True)


def inference_within_threads(L: Any) -> Any:
    with L.inference_mode():
        with L.inference_mode(False):
            inner = L.is_inference_mode_enabled(), L.ones(1).is_inference()
        return inner, L.is_inference_mode_enabled(), L.ones(1).is_inference()


CASES = [
    identity_of_a_dual, lambda L: retained_of_two(L, True), lambda L: retained_of_two(L, False), retained_twice,
    sparse_gradient_of_other_dims, inference_within_threads,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[getattr(c, "__name__", "") + str(i) for i, c in enumerate(CASES)])
def test_case(case, same_outcome) -> None:
    same_outcome(case)


@pytest.mark.parametrize("materialize", [True, False])
def test_hooks_of_a_result_that_gets_no_gradient(materialize: bool) -> None:
    torch = judge("torch")
    assert hooks_of_two(flambeau, materialize) == told(
        f"hooks, {materialize}", lambda: hooks_of_two(torch, materialize)
    )


LOSSES = [(name, how) for name in ("cross_entropy", "nll_loss", "huber_loss") for how in ("none", "mean", "sum")]
OTHERS = "softmax log_softmax layer_norm sigmoid tanh exp relu group_norm max_pool1d logsumexp norm sqrt cumprod prod std elu softplus"


@pytest.mark.parametrize(("name", "reduction"), [*LOSSES, *((name, "") for name in OTHERS.split())])
def test_a_result_that_its_own_node_keeps_goes_without_a_collection(name: str, reduction: str) -> None:
    """A node that saved its result may not hold the tensor that holds the node: such a ring waits for the garbage collector."""
    F = flambeau.nn.functional
    x = flambeau.rand(2, 4, 6).requires_grad_()
    calls = {
        "cross_entropy": lambda: F.cross_entropy(x[0], flambeau.tensor([0, 1, 2, 0]), reduction=reduction),
        "nll_loss": lambda: F.nll_loss(x[0], flambeau.tensor([0, 1, 2, 0]), reduction=reduction),
        "huber_loss": lambda: F.huber_loss(x, x.detach() * 2, reduction=reduction),
        "softmax": lambda: x.softmax(-1), "log_softmax": lambda: x.log_softmax(-1), "layer_norm": lambda: F.layer_norm(x, (6,)),
        "group_norm": lambda: F.group_norm(x, 2), "max_pool1d": lambda: F.max_pool1d(x, 2), "logsumexp": lambda: x.logsumexp(1),
        "norm": lambda: x.norm(), "cumprod": lambda: x.cumprod(0), "prod": lambda: x.prod(1), "std": lambda: x.std(1),
        "elu": lambda: F.elu(x), "softplus": lambda: F.softplus(x),
    }  # fmt: skip
    call = calls.get(name) or (lambda: getattr(x, name)())
    call()
    gc.collect()
    gc.disable()
    try:
        y = call()
        alive, node = weakref.ref(y), weakref.ref(y.grad_fn)
        del y
        assert alive() is None and node() is None
    finally:
        gc.enable()
