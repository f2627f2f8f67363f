"""`make_fx` of gradients: the backward pass is written with PyTorch's operators for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from answers import told

import flambeau
from flambeau.fx.experimental.proxy_tensor import make_fx
from tests.jit.oracle import real_torch

PLACES, TARGETS = [[1, 2], [0, 3]], [1, 0]


def programs(torch: Any) -> dict[str, tuple[Callable, list]]:
    f = torch.nn.functional
    places, targets = torch.tensor(PLACES), torch.tensor(TARGETS)

    def r(*shape: int) -> Any:
        count = 1
        for n in shape:
            count *= n
        return torch.sin(torch.arange(count).reshape(shape).float()).requires_grad_()

    return {
        "conv2d": (lambda x, w, b: f.conv2d(x, w, b, 2, 1), [r(2, 3, 8, 8), r(4, 3, 3, 3), r(4)]),
        "conv_transpose2d": (lambda x, w: f.conv_transpose2d(x, w, None, 2), [r(2, 3, 4, 4), r(3, 4, 3, 3)]),
        "layer_norm": (lambda x, w, b: f.layer_norm(x, (4,), w, b), [r(2, 3, 4), r(4), r(4)]),
        "softmax": (lambda x: f.softmax(x, -1), [r(2, 3)]),
        "cross_entropy": (lambda x: f.cross_entropy(x, targets), [r(2, 3)]),
        "max_pool2d": (lambda x: f.max_pool2d(x, 2), [r(1, 2, 4, 4)]),
        "avg_pool2d": (lambda x: f.avg_pool2d(x, 2), [r(1, 2, 4, 4)]),
        "adaptive_avg_pool2d": (lambda x: f.adaptive_avg_pool2d(x, 2), [r(1, 2, 4, 4)]),
        "embedding": (lambda w: f.embedding(places, w), [r(5, 3)]),
        "attention": (f.scaled_dot_product_attention, [r(1, 2, 3, 4), r(1, 2, 3, 4), r(1, 2, 3, 4)]),
        "relu": (f.relu, [r(3)]),
        "gelu": (f.gelu, [r(3)]),
        "max": (lambda x: x.max(1)[0], [r(2, 3)]),
        "slice": (lambda x: x[:, 1:], [r(3, 2)]),
        "index": (lambda x: x[places], [r(4, 2)]),
        "interpolate": (lambda x: f.interpolate(x, scale_factor=2), [r(1, 2, 3, 3)]),
        "unfold": (lambda x: f.unfold(x, 2), [r(1, 2, 4, 4)]),
        "bmm": (torch.bmm, [r(2, 3, 4), r(2, 4, 5)]),
    }


def graph_of_gradients(torch: Any, make_fx: Any, name: str) -> tuple[Any, list, tuple]:
    program, args = programs(torch)[name]

    def gradients(*given: Any) -> tuple:
        return torch.autograd.grad(program(*given).sum(), given)

    return make_fx(gradients)(*args), args, gradients(*args)


@pytest.mark.parametrize("name", list(programs(flambeau)))
def test_operators_are_pytorchs(name: str) -> None:
    def called(graph: Any) -> list[str]:
        words = [str(n.target) for n in graph.nodes if n.op == "call_function"]
        return [w for w in words if "getitem" not in w and w != "aten.detach.default"]

    from flambeau.fx.experimental.proxy_tensor import make_fx

    def theirs() -> list:
        torch = real_torch()
        from torch.fx.experimental.proxy_tensor import make_fx

        graph, _, values = graph_of_gradients(torch, make_fx, name)
        return [called(graph.graph), [value.detach().double().numpy() for value in values]]

    mine, args, values = graph_of_gradients(flambeau, make_fx, name)
    operators, expected = told(f"gradients of {name}", theirs)
    assert called(mine.graph) == operators
    for found, again, wanted in zip(mine(*args), values, expected):
        assert flambeau.allclose(found, again, atol=1e-6)
        assert abs(found.detach().double().numpy() - wanted).max() < 1e-4


def test_a_training_step_of_a_network() -> None:
    from flambeau.fx.experimental.proxy_tensor import make_fx

    nn = flambeau.nn
    flambeau.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )
    names, weights = zip(*net.named_parameters())
    x, y = flambeau.randn(2, 1, 8, 8), flambeau.tensor([0, 2])

    def step(x: Any, *weights: Any) -> tuple:
        out = flambeau.func.functional_call(net, dict(zip(names, weights)), (x,))
        loss = nn.functional.cross_entropy(out, y)
        return tuple(w - 0.1 * g for w, g in zip(weights, flambeau.autograd.grad(loss, weights)))

    traced = make_fx(step)(x, *weights)
    for found, wanted in zip(traced(x, *weights), step(x, *weights)):
        assert flambeau.allclose(found, wanted, atol=1e-5)
    assert "aten.convolution_backward" in str(traced.graph)


def test_second_derivatives_say_so() -> None:
    from flambeau.fx.experimental.proxy_tensor import make_fx

    def second(function: Callable) -> Callable:
        def step(x: Any) -> Any:
            (g,) = flambeau.autograd.grad(function(x).pow(2).sum(), x, create_graph=True)
            return flambeau.autograd.grad(g.sum(), x)[0]

        return step

    x = flambeau.tensor([1.0, 2.0, 4.0], requires_grad=True)
    with pytest.raises(NotImplementedError, match="no counterpart among PyTorch's"):
        make_fx(second(lambda x: flambeau.nn.functional.layer_norm(x, (3,))))(x)
    softmax = second(lambda x: flambeau.softmax(x, 0))  # its derivative is an operator here, too, with a derivative
    assert flambeau.allclose(make_fx(softmax)(x)(x), softmax(x))


STEPS = {
    "unsqueeze": lambda x: x.unsqueeze(0) * 2,
    "squeeze": lambda x: x[:1].squeeze(0) * x,
    "flip": lambda x: x.flip(1) * x,
    "roll": lambda x: x.roll(1, 0) * x,
    "repeat": lambda x: x.repeat(2, 2),
    "outer": lambda x: flambeau.outer(x[0], x[1]),
    "cov": lambda x: flambeau.corrcoef(x),
    "topk": lambda x: x.topk(2)[0] * 3,
    "pool with places": lambda x: flambeau.nn.functional.adaptive_max_pool2d(x.view(1, 4, 4), 2),
    "windows": lambda x: x.unfold(0, 2, 1) ** 2,
    "padded convolution": lambda x: flambeau.nn.functional.conv2d(
        x.view(1, 1, 4, 4), flambeau.ones(1, 1, 3, 3), padding="same"
    ),
    "selu": flambeau.selu,
    "kl_div": lambda x: flambeau.nn.functional.kl_div(x, x.detach(), reduction="none", log_target=True),
    "two views": lambda x: x[:, 1:3] * x[:, :2],
}


@pytest.mark.parametrize("name", STEPS)
def test_graphs_of_gradients_compute_gradients(name: str) -> None:
    """A composite is followed into its parts, whose derivatives have operators of PyTorch's; views of one tensor stay apart."""

    def step(x):
        return flambeau.autograd.grad((STEPS[name](x) ** 2).sum(), x)[0]

    flambeau.manual_seed(0)
    recorded = make_fx(step)(flambeau.randn(4, 4, requires_grad=True))
    other = flambeau.randn(6, 4)[1:5]  # somewhere else in its memory than the example
    assert flambeau.allclose(recorded(other), step(other.clone().requires_grad_()), atol=1e-5)
