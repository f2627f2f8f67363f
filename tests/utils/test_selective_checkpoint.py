"""Checkpointing that keeps the results of some operators: the same gradients, and only the others are computed again."""

from __future__ import annotations

from functools import partial

import pytest
from answers import judge

import flambeau
from flambeau.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    def __init__(self):
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def run(t, policy, mutate=False, **kwargs):
    """A small attention-like network under a policy; gradients, and how often products were computed in backward."""
    t.manual_seed(0)
    layers = t.nn.Sequential(
        t.nn.Linear(6, 8), t.nn.GELU(), t.nn.Dropout(0.5), t.nn.Linear(8, 6), t.nn.LayerNorm(6)
    ).double()
    with t.no_grad():
        for k, p in enumerate(layers.parameters()):
            p.copy_(t.linspace(-1, 1, p.numel()).reshape(p.shape) * (k + 1) / 5)
    x = t.linspace(-1, 1, 24, dtype=t.float64).reshape(4, 6).requires_grad_()
    kept = []

    def network(x):
        y = layers(x)
        kept.append(y)
        return y @ y.t() @ (y * x).softmax(-1)

    contexts = partial(t.utils.checkpoint.create_selective_checkpoint_contexts, policy(t), **kwargs)
    t.manual_seed(1)
    out = t.utils.checkpoint.checkpoint(network, x, use_reentrant=False, context_fn=contexts)
    if mutate:
        with t.no_grad():
            kept[0].mul_(2)
    out.square().sum().backward()
    return [out, x.grad, *(p.grad for p in layers.parameters())]


def products(t):
    return [t.ops.aten.mm.default, t.ops.aten.addmm.default]


def every_second(t):
    count = iter(range(10_000))
    policies = t.utils.checkpoint.CheckpointPolicy
    return lambda context, op, *args, **kwargs: policies.MUST_SAVE if next(count) % 2 else policies.PREFER_RECOMPUTE


POLICIES = {
    "products": products,
    "nothing": lambda t: [],
    "everything": lambda t: lambda context, op, *args, **kwargs: True,
    "every second call": every_second,
}


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_are_those_of_a_run_without_policy(name):
    for found, wanted in zip(run(flambeau, POLICIES[name]), run(flambeau, POLICIES["nothing"])):
        assert flambeau.equal(found, wanted)


@pytest.mark.parametrize("name", ["products", "nothing"])
def test_gradients_are_pytorchs(name):
    torch = judge("torch")
    for found, wanted in zip(run(flambeau, POLICIES[name]), run(torch, POLICIES[name])):
        assert torch.allclose(torch.tensor(found.tolist(), dtype=torch.float64), wanted)


def test_kept_results_are_not_computed_again():
    counts = {}
    for name in ("products", "nothing"):
        contexts = partial(flambeau.utils.checkpoint.create_selective_checkpoint_contexts, POLICIES[name](flambeau))
        x = flambeau.ones(3, 3, requires_grad=True)
        out = flambeau.utils.checkpoint.checkpoint(
            lambda x: (x @ x).sigmoid() @ x, x, use_reentrant=False, context_fn=contexts, early_stop=False
        )
        with Calls() as calls:
            flambeau.autograd.backward(out.sum())
        counts[name] = calls.names.count("aten.sigmoid.default"), calls.names.count("aten.mm.default")
    assert counts == {"nothing": (1, 6), "products": (1, 4)}


def test_what_is_refused():
    create = flambeau.utils.checkpoint.create_selective_checkpoint_contexts
    with pytest.raises(ValueError, match="Please update the OpOverloadPacket"):
        create([flambeau.ops.aten.mm])
    with pytest.raises(TypeError, match="must be either a function or a list"):
        create(3)
    with pytest.raises(RuntimeError, match="has been mutated"):
        run(flambeau, POLICIES["everything"], mutate=True)


def test_a_second_backward_is_refused():
    contexts = partial(flambeau.utils.checkpoint.create_selective_checkpoint_contexts, products(flambeau))
    x = flambeau.ones(3, 3, requires_grad=True)
    out = flambeau.utils.checkpoint.checkpoint(
        lambda x: (x @ x).sigmoid(), x, use_reentrant=False, context_fn=contexts
    ).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward an extra time"):
        out.backward()
