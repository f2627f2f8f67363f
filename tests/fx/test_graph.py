"""Graphs can be read, changed, checked, copied, pickled and run."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
from typing import Any

import pytest
from answers import judge

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils import _pytree as pytree


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


def _same(a: Any, b: Any) -> None:
    assert torch.allclose(a, b)


def test_nodes_know_their_users() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    doubled = graph.call_function(operator.add, (x, x))
    graph.output((doubled, x))
    assert list(x.users) == [doubled, graph.output_node()]
    assert doubled.all_input_nodes == [x]
    y = graph.placeholder("y")
    doubled.args = (x, y)
    assert doubled in y.users
    doubled.replace_all_uses_with(y)
    assert not doubled.users
    with pytest.raises(TypeError, match="does not support mutation"):
        fx.immutable_collections.immutable_list([1]).append(2)


def test_order_and_insertion() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    last = graph.call_function(torch.relu, (x,))
    with graph.inserting_before(last):
        middle = graph.call_function(torch.neg, (x,))
    last.args = (middle,)
    graph.output(last)
    assert [n.name for n in graph.nodes] == ["x", "neg", "relu", "output"]
    assert x < middle < last
    assert graph.find_nodes(op="call_function", target=torch.neg) == [middle]
    graph.lint()
    last.append(middle)
    with pytest.raises(RuntimeError, match="was used before it has been defined"):
        graph.lint()


def test_dead_code_goes_and_effects_stay() -> None:
    def program(x: Any) -> Any:
        x + 1
        torch._assert(x is not None, "x")
        torch.rand(2)
        torch.sin(x)
        return torch.cos(x)

    traced = fx.symbolic_trace(program)
    assert traced.graph.eliminate_dead_code()
    assert [n.name for n in traced.graph.nodes] == ["x", "cos", "output"]


def test_ranges_of_profiles_are_no_dead_code() -> None:
    """Nobody reads what ends a range, and still it is there for a reason."""
    graph = fx.Graph()
    handle = graph.call_function(torch.ops.profiler._record_function_enter_new, ("a range",))
    graph.call_function(torch.ops.profiler._record_function_exit, (handle,))
    graph.output(None)
    assert not graph.eliminate_dead_code() and len(graph.nodes) == 3


def test_collectives_are_no_dead_code() -> None:
    """Other ranks take part in them, whether or not this one reads the result."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    begun = graph.call_function(torch.ops._c10d_functional.all_reduce.default, (x, "sum", "0"))
    graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (begun,))
    graph.output(x)
    assert not graph.eliminate_dead_code() and len(graph.nodes) == 4


def test_modules_are_run_copied_and_pickled() -> None:
    net = Net()
    traced = fx.symbolic_trace(net)
    x = torch.randn(5, 3)
    _same(traced(x), net(x))
    assert [name for name, _ in traced.named_parameters()] == [name for name, _ in net.named_parameters()]
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced)), fx.symbolic_trace(traced)):
        assert other.code == traced.code
        _same(other(x), net(x))
    traced(x).sum().backward()
    assert net.first.weight.grad is not None


def test_interpreter_and_transformer() -> None:
    traced = fx.symbolic_trace(Net())
    x = torch.randn(2, 3)
    seen = []

    class Watching(fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            seen.append(n.op)
            return super().run_node(n)

    _same(Watching(traced).run(x), traced(x))
    assert seen == ["placeholder", "call_module", "call_function", "call_module", "output"]

    class Smooth(fx.Transformer):
        def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
            return super().call_function(torch.sigmoid if target is torch.relu else target, args, kwargs)

    changed = Smooth(traced).transform()
    assert "torch.sigmoid" in changed.code
    _same(changed(x), traced.second(torch.sigmoid(traced.first(x))))


@fx.wrap
def opaque(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x


def test_wrapped_functions_stay_calls() -> None:
    traced = fx.symbolic_trace(lambda x: opaque(x) + 1)
    assert any(n.target is opaque for n in traced.graph.nodes)
    assert torch.equal(traced(torch.ones(2)), torch.full((2,), 3.0))
    assert opaque.__name__ == "opaque"
    assert not hasattr(opaque, "__wrapped__")


def test_errors_in_generated_code_show_it(capsys: Any) -> None:
    traced = fx.symbolic_trace(lambda x, y: torch.relu(x).view(y))
    with pytest.raises(Exception):  # noqa: B017
        traced(torch.ones(3), (7,))
    assert "of the traced Module's generated forward function" in capsys.readouterr().err


def test_operator_overloads_can_be_targets() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.ops.aten.add.Tensor, (x, 1)))
    module = fx.GraphModule(nn.Module(), graph)
    assert "torch.ops.aten.add.Tensor(x, 1)" in module.code
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(pickle.loads(pickle.dumps(module))(torch.ones(2)), torch.full((2,), 2.0))


def test_results_with_names_are_plain_tuples_in_graphs():
    x = torch.tensor([[1.0, 5.0], [4.0, 2.0]])
    for program in (lambda x: x.max(0), lambda x: {"both": torch.frexp(x)}, lambda x: [x.sort(1), x]):
        graph = make_fx(program)(x)
        assert "return_types" not in graph.code
        found, wanted = pytree.tree_leaves(graph(x)), pytree.tree_leaves(program(x))
        assert len(found) == len(wanted) and all(map(torch.equal, found, wanted))


def test_sources_are_not_those_of_pytorch_in_the_same_process():
    class Other(judge("torch").nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sin()

    theirs = [judge("torch.fx").symbolic_trace(Other()) for _ in range(60)]
    ours = [fx.symbolic_trace(Net()) for _ in range(60)]
    assert not {m.forward.__code__.co_filename for m in theirs} & {m.forward.__code__.co_filename for m in ours}
    assert all("relu" in inspect.getsource(type(m).forward) for m in ours)
