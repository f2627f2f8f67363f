"""What a node keeps for the backward pass: `grad_fn._saved_*` and `_raw_saved_*`, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from answers import judge

import flambeau

torch = judge("torch")

CALLS: dict[str, Callable] = {
    "mul": lambda t, a, b: a * b,
    "div": lambda t, a, b: a / b,
    "pow": lambda t, a, b: a**3,
    "exp": lambda t, a, b: a.exp(),
    "clamp": lambda t, a, b: a.clamp(0, 1),
    "leaky_relu": lambda t, a, b: t.nn.functional.leaky_relu(a, 0.3),
    "mm": lambda t, a, b: a @ b.T,
    "sum": lambda t, a, b: a.sum(1),
    "softmax": lambda t, a, b: a.softmax(1),
    "amax": lambda t, a, b: a.amax(1),
    "view": lambda t, a, b: a.view(-1),
    "transpose": lambda t, a, b: a.transpose(0, 1),
    "index": lambda t, a, b: a[:, t.tensor([0, 1])],
    "layer_norm": lambda t, a, b: t.nn.functional.layer_norm(a, (3,), b[0]),
    "nll_loss": lambda t, a, b: t.nn.functional.nll_loss(a, t.tensor([0, 1]), t.ones(3)),
    "qr": lambda t, a, b: t.linalg.qr(a)[0],
    "rounding": lambda t, a, b: t.div(a, b, rounding_mode="trunc"),
}


def fields(t: Any, name: str) -> dict[str, Any]:
    a, b = (t.full((2, 3), v, requires_grad=True) for v in (0.5, 2.0))
    node = CALLS[name](t, a, b).grad_fn
    found = {field: getattr(node, field) for field in dir(node) if field.startswith("_saved_")}
    return {field: v.tolist() if isinstance(v, t.Tensor) else v for field, v in found.items()}


@pytest.mark.parametrize("name", CALLS)
def test_fields_have_the_values_of_torch(name: str) -> None:
    wanted, found = fields(torch, name), fields(flambeau, name)
    common = wanted.keys() & found.keys()
    assert common
    for field in common - {"_saved_indices", "_saved_reduction", "_saved_ignore_index"}:
        assert found[field] == (pytest.approx(wanted[field]) if isinstance(wanted[field], float) else wanted[field]), (
            field
        )


def test_a_saved_leaf_is_the_leaf() -> None:
    a = flambeau.ones(2, requires_grad=True)
    out = a * a.exp()
    assert out.grad_fn._saved_self is a
    assert out.grad_fn.next_functions[1][0]._saved_result.grad_fn is out.grad_fn.next_functions[1][0]


def test_freed_values_raise() -> None:
    for t in (torch, flambeau):
        a = t.ones(2, requires_grad=True)
        out = a * a
        out.sum().backward()
        with pytest.raises(RuntimeError, match="after they have already been freed"):
            out.grad_fn._saved_self
        with pytest.raises(AttributeError):
            out.grad_fn._saved_nothing


def test_hooks_on_one_saved_tensor() -> None:
    for t in (torch, flambeau):
        a = t.ones(2, requires_grad=True)
        out = a * a
        out.grad_fn._raw_saved_self.register_hooks(lambda x: x * 10, lambda x: x)
        assert out.grad_fn._saved_self.tolist() == [10.0, 10.0]
        with pytest.raises(RuntimeError, match="already been set"):
            out.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)
        out.sum().backward()
        assert a.grad.tolist() == [11.0, 11.0]
        with pytest.raises(RuntimeError, match="after it has been freed"):
            out.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)


def test_a_pack_hook_must_not_change_its_tensor() -> None:
    for t in (torch, flambeau):
        hooks = t.autograd.graph.saved_tensors_hooks(lambda x: x.mul_(2), lambda x: x)
        with pytest.raises(RuntimeError, match="modifying its input in place"), hooks:
            t.ones(2, requires_grad=True).clone().exp()


@pytest.mark.parametrize("join", ["cat", "stack", "block_diag"])
def test_joined_tensors_may_be_changed_afterwards(join: str) -> None:
    for t in (torch, flambeau):
        a = t.ones(2, requires_grad=True)
        parts = [a * 1, a * 2]
        out = t.block_diag(*parts) if join == "block_diag" else getattr(t, join)(parts)
        parts[0].add_(1)
        t.autograd.grad(out.sum(), parts[1])
        out.sum().backward()  # it keeps no tensors, so nothing was freed
        assert a.grad.tolist() == [3.0, 3.0]
