"""Graphs of programs under autocast: the casts are calls in them, so that they compute the same wherever they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from answers import judge

import flambeau
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils._pytree import tree_leaves
from tests.jit.oracle import quiet


def programs(torch: Any) -> dict[str, tuple[Callable, list]]:
    f, targets = torch.nn.functional, torch.tensor([1, 2])

    def r(*shape: int) -> Any:
        return torch.sin(torch.arange(torch.zeros(shape).numel()).reshape(shape).float())

    def nested(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return (x.float() @ w).exp()

    return {
        "linear": (f.linear, [r(2, 3), r(4, 3), r(4)]),
        "conv1d": (f.conv1d, [r(1, 3, 8), r(4, 3, 3)]),
        "cross_entropy": (lambda x, w: f.cross_entropy(x @ w, targets), [r(2, 3), r(3, 4)]),
        "mse_loss": (lambda x, w: f.mse_loss(x @ w, x), [r(2, 3), r(3, 3)]),
        "widest": (lambda x, w: torch.cat([x, x @ w]), [r(2, 3), r(3, 3)]),
        "twice": (lambda x, w: (x @ w @ w).softmax(-1), [r(2, 3), r(3, 3)]),
        "nested": (nested, [r(2, 3), r(3, 3)]),
    }


def under_autocast(torch: Any, name: str) -> tuple[Callable, list]:
    program, args = programs(torch)[name]

    def run(*given: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return program(*given)

    return run, args


def with_gradients(torch: Any, name: str) -> tuple[Callable, list]:
    program, args = under_autocast(torch, name)
    args = [a.requires_grad_() for a in args]
    return lambda *given: torch.autograd.grad(program(*given).float().sum(), given), args


def called(module: Any) -> Counter:
    """Count the operators of a graph; in which order arguments are cast is not PyTorch's, and it detaches what it keeps."""
    words = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    return Counter(w for w in words if "getitem" not in w and w != "aten.detach.default")


@pytest.mark.parametrize("make", [under_autocast, with_gradients])
@pytest.mark.parametrize("name", list(programs(flambeau)))
def test_make_fx_writes_the_casts(name: str, make: Callable) -> None:
    torch, theirs = judge("torch"), judge("torch.fx.experimental.proxy_tensor").make_fx

    function, args = make(flambeau, name)
    graph = make_fx(function)(*args)
    expected, given = make(torch, name)
    assert called(graph) == called(theirs(expected)(*given))
    for found, wanted in zip(tree_leaves(graph(*args)), tree_leaves(function(*args))):
        flambeau.testing.assert_close(found, wanted, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("name", [n for n in programs(flambeau) if n != "conv1d"])  # which PyTorch traces by its parts
def test_a_trace_has_the_casts(name: str) -> None:
    torch = judge("torch")
    traced = []
    for library in (flambeau, torch):
        function, args = under_autocast(library, name)
        made = quiet(library.jit.trace, function, tuple(args), check_trace=False)
        traced.append(Counter(node.kind() for node in made.graph.nodes() if node.kind().startswith("aten::")))
        if library is flambeau:
            flambeau.testing.assert_close(made(*args), function(*args), rtol=0, atol=0)
    assert traced[0] == traced[1]


class Layers(flambeau.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = flambeau.nn.Conv1d(2, 2, 1), flambeau.nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
            return self.out(self.conv(x)).exp()


def test_an_exported_program_computes_what_the_module_does() -> None:
    model, x = Layers(), flambeau.randn(1, 2, 3)
    found = flambeau.export.export(model, (x,)).module()(x)
    assert found.dtype is flambeau.bfloat16 and flambeau.equal(found, model(x))


def test_copies_from_before_are_no_constants() -> None:
    model, x = flambeau.nn.Linear(3, 4), flambeau.randn(2, 3)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        model(x)  # autocast keeps a copy of the weight
        traced = quiet(flambeau.jit.trace, model, (x,), check_trace=False)
        program = flambeau.export.export(model, (x,))
    assert [node.kind() for node in traced.graph.nodes() if "aten" in node.kind()].count("aten::to") == 3
    assert not program.constants and set(program.state_dict) == {"weight", "bias"}
