"""Traced programs print as in PyTorch: the same programs are traced in both."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from answers import told

import flambeau

NETWORK = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.seq = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
        self.w = nn.Parameter(torch.ones(8, 1, 1))
        self.register_buffer("b", torch.zeros(8, 1, 1))
        self.constant = torch.ones(3)

    def forward(self, x: torch.Tensor, flag=None, *rest, k: int = 3, **more):
        y = self.seq(self.bn(self.conv(x))) * self.w + self.b
        a, b = torch.split(y, 4, dim=1)
        z = torch.cat([a, b], 1).flatten(1).mean(dim=-1)
        z = z.view(y.shape[0], -1)[:, None, ..., 0:2]
        return {"z": z, "k": k, "first": torch.max(y, 1)[0], "list": [2 * y, -y, 1 - y, y @ y, y.T, ~y, y << 2], "c": y + self.constant}
"""

FUNCTIONS = {
    "functional": "lambda x: F.relu(x) + F.softmax(x, 1) + F.gelu(x) - F.silu(x, inplace=True)",
    "layers": "lambda x, w: F.layer_norm(F.linear(x, w), (3,)) + F.batch_norm(x, w, w, training=True) + F.group_norm(x, 2)",
    "pools": "lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, (1, 1)) + F.interpolate(x, scale_factor=2)",
    "losses": "lambda x, y: F.cross_entropy(x, y, reduction='sum') + F.mse_loss(x, y) + F.nll_loss(x, y)",
    "torch": "lambda x: torch.einsum('ij->i', x) + torch.norm(x) + torch.sigmoid(x) + torch.stack((x, x), 1) + torch.unbind(x)[0]",
    "namespaces": "lambda x: torch.linalg.norm(x) + torch.fft.fft(x).real + torch.special.erfcx(x)",
    "methods": "lambda x: x.relu().add(1, alpha=2).to(torch.float64).sum(dim=(0, 1), keepdim=True).device",
    "attention": "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "dropout": "lambda x: F.dropout(x, 0.2) + F.pad(x, (1, 1)) + F.normalize(x) + F.log_softmax(x, dim=-1) + F.one_hot(x, 3)",
    "defaults": "lambda x, a=2, *, b='text': torch.add(x, a)",
    "values": "lambda x: x[1:2, ..., None] + float('inf') + x.to(torch.bfloat16) + torch.zeros(2, device=torch.device('cpu')) + 1e-5",
    "names": "lambda input, self_, list, max, x_1: (input + list, max, x_1, input.shape)",
    "inplace": "lambda x: x.add_(1).mul_(2)",
    "nested": "lambda x: (x, [x, {'a': x + 1}], slice(x, 2, None))",
}


def _library(name: str) -> SimpleNamespace:
    torch = importlib.import_module(name)
    fx = importlib.import_module(f"{name}.fx")
    return SimpleNamespace(torch=torch, nn=torch.nn, F=torch.nn.functional, fx=fx)


def assert_same(what: str, texts: Callable[[SimpleNamespace], Any]) -> None:
    """Compare what both libraries print."""
    assert texts(_library("flambeau")) == told(what, lambda: texts(_library("torch")))


def _texts(library: SimpleNamespace, program: Any, **options: Any) -> list[str]:
    traced = library.fx.symbolic_trace(program, **options)
    return [traced.code, str(traced.graph), str(traced), traced.print_readable(print_output=False)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_print_the_same(name: str) -> None:
    assert_same(name, lambda library: _texts(library, eval(FUNCTIONS[name], vars(library))))


def test_a_network_prints_the_same() -> None:
    def texts(library: SimpleNamespace) -> list[str]:
        space = dict(vars(library))
        exec(NETWORK, space)
        return _texts(library, space["Net"]())

    assert_same("network", texts)


@pytest.mark.parametrize(
    ("program", "given"),
    [
        ("lambda x, y: x + y", {"y": 2}),
        ("lambda x, flag: x * 2 if flag else x", {"flag": True}),
        ("lambda x, y: x if y is None else y", {"y": None}),
        ("lambda d, x: d['a'] + d['b'][0] + x", "nested"),
    ],
)
def test_concrete_arguments_print_the_same(program: str, given: Any) -> None:
    def texts(library: SimpleNamespace) -> list[str]:
        place = library.fx.PH
        concrete = {"d": {"a": place, "b": [place]}} if given == "nested" else given
        return _texts(library, eval(program, vars(library)), concrete_args=concrete)

    assert_same(program, texts)


def test_a_module_of_a_dict_and_types_prints_the_same() -> None:
    def texts(library: SimpleNamespace) -> list[str]:
        graph = library.fx.Graph()
        x = graph.placeholder("x", type_expr=list[int])
        y = graph.placeholder("y", type_expr=library.torch.Tensor, default_value=None)
        w = graph.get_attr("inner.weight")
        layer = graph.call_module("inner.0", (x,), {"k": library.torch.float32})
        method = graph.call_method("view", (layer, (1, y), w))
        graph.output((method, [x]), type_expr=tuple[library.torch.Tensor, ...])
        root = {"inner.weight": library.torch.ones(1), "inner.0": library.nn.ReLU()}
        module = library.fx.GraphModule(root, graph)
        return [module.code, str(graph), str(module)]

    assert_same("dict", texts)


ERRORS = {
    "control flow": "lambda x: x if x.sum() > 0 else -x",
    "iteration": "lambda x: [y for y in x]",
    "length": "lambda x: len(x)",
    "argument": "lambda x: x.add(object)",
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_the_same(name: str) -> None:
    def refusal(library: SimpleNamespace) -> list[str]:
        with pytest.raises(Exception) as caught:
            library.fx.symbolic_trace(eval(ERRORS[name], vars(library)))
        return [type(caught.value).__name__, str(caught.value)]

    assert_same(name, refusal)


def test_proxies_cost_nothing_after_tracing() -> None:
    """Operators look for proxies only while a program is traced."""
    from flambeau.core import modes

    before = len(modes.active)
    flambeau.fx.symbolic_trace(lambda x: flambeau.relu(x) + 1)
    assert len(modes.active) == before
