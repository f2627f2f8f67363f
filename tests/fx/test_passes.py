"""Passes over graphs."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.experimental.const_fold import split_const_subgraphs
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.passes.dialect.common.cse_pass import CSEPass, get_CSE_banned_ops
from flambeau.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from flambeau.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper, this_before_that_pass_constraint
from flambeau.fx.passes.operator_support import OperatorSupport
from flambeau.fx.passes.shape_prop import ShapeProp
from flambeau.fx.passes.split_module import split_module
from flambeau.fx.passes.split_utils import split_by_tags
from flambeau.fx.passes.tools_common import legalize_graph
from flambeau.fx.subgraph_rewriter import replace_pattern_with_filters


def _network() -> Any:
    return fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Sigmoid()))


def test_shapes_are_noted() -> None:
    traced = _network()
    ShapeProp(traced).propagate(torch.ones(5, 3))
    shapes = {n.name: tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes}
    assert shapes["_0"] == (5, 4)
    assert shapes["output"] == (5, 2)


def test_patterns_are_replaced() -> None:
    traced = fx.symbolic_trace(lambda x, y: torch.relu(x + y) + torch.relu(y + x) * 2)
    found = fx.replace_pattern(traced, lambda a, b: torch.relu(a + b), lambda a, b: torch.sigmoid(a * b))
    assert len(found) == 2
    x, y = torch.rand(3), torch.rand(3)
    assert torch.allclose(traced(x, y), torch.sigmoid(x * y) * 3)
    traced.graph.lint()


def test_patterns_with_filters_and_overlap() -> None:
    traced = fx.symbolic_trace(lambda x: torch.neg(torch.neg(torch.neg(x))))
    found = fx.replace_pattern(traced, lambda a: torch.neg(torch.neg(a)), lambda a: a)
    assert len(found) == 1
    assert torch.equal(traced(torch.ones(1)), -torch.ones(1))
    traced = fx.symbolic_trace(lambda x: x + 1 + 2)
    only_two = [lambda match, graph, pattern: match.anchors[0] is not None and 2 in match.returning_nodes[0].args]
    found = replace_pattern_with_filters(
        traced, lambda a: a + 0, lambda a: a * 5, match_filters=only_two, ignore_literals=True
    )
    assert len(found) == 1
    assert torch.equal(traced(torch.ones(1)), torch.full((1,), 10.0))


def test_modules_are_split() -> None:
    traced = _network()
    x = torch.randn(2, 3)
    paths: dict[str, str] = {}
    split = split_module(traced, traced, lambda n: int(n.name.strip("_")) // 2, paths)
    assert [name for name, _ in split.named_children()] == ["submod_0", "submod_1"]
    assert paths == {"submod_0.0": "0", "submod_0.1": "1", "submod_1.2": "2", "submod_1.3": "3"}
    assert torch.allclose(split(x), traced(x))
    for node in traced.graph.nodes:
        if node.op == "call_module":
            node.tag = "a" if node.name in ("_0", "_1") else "b"
    tagged = split_by_tags(traced, ["a", "b"])
    assert torch.allclose(tagged(x), traced(x))
    with pytest.raises(RuntimeError, match="cycle"):
        split_module(traced, traced, lambda n: {"_0": 0, "_1": 1, "_2": 0, "_3": 1}[n.name])


def test_supported_nodes_are_fused() -> None:
    traced = fx.symbolic_trace(lambda x: torch.relu(torch.sigmoid(x) + 1) * torch.tanh(x))
    support = OperatorSupport({"_operator.add": None, "torch.relu": None, "torch.sigmoid": None})
    fused = CapabilityBasedPartitioner(traced, support).partition_and_fuse()
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == ["fused_0"]
    x = torch.randn(3)
    assert torch.allclose(fused(x), torch.relu(torch.sigmoid(x) + 1) * torch.tanh(x))


def test_constants_are_folded() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(3))

        def forward(self, x: Any) -> Any:
            return x + self.a * self.b

    net = Net()
    folded = split_const_subgraphs(net)
    assert torch.allclose(folded(torch.ones(3)), net(torch.ones(3)))
    assert [n.op for n in folded.graph.nodes] == ["placeholder", "get_attr", "call_function", "output"]


def test_equal_calls_are_joined() -> None:
    traced = make_fx(lambda x: x.sin() + x.sin() * 2 + x.sin())(torch.ones(2))
    joined = CSEPass()(traced)
    assert joined is not None
    assert joined.modified
    assert joined.graph_module.code.count("sin.default") == 1
    assert torch.allclose(joined.graph_module(torch.ones(2)), traced(torch.ones(2)))


@pytest.mark.parametrize("name", ["rand_like", "bernoulli", "relu_", "exponential_", "clamp_"])
def test_calls_with_effects_are_not_joined(name: str) -> None:
    given = (0,) if name == "clamp_" else ()
    graph = fx.Graph()
    x = graph.placeholder("x")
    packet = getattr(torch.ops.aten, name)
    graph.output([graph.call_function(packet.default, (x, *given)) for _ in range(2)])
    banned = get_CSE_banned_ops()
    assert not CSEPass(banned)(fx.GraphModule(nn.Module(), graph)).modified
    assert torch.ops.aten.sin not in banned


def test_passes_are_ordered() -> None:
    order = []

    def first(module: Any) -> None:
        order.append("first")

    def second(module: Any) -> None:
        order.append("second")

    passes = [pass_result_wrapper(second), pass_result_wrapper(first)]
    manager = PassManager(passes, [this_before_that_pass_constraint(passes[1], passes[0])])
    manager(_network())
    assert order == ["first", "second"]


def test_graphs_are_brought_in_order() -> None:
    traced = _network()
    node = next(n for n in traced.graph.nodes if n.name == "_1")
    traced.graph.output_node().append(node)
    legalize_graph(traced).graph.lint()


def test_drawing_needs_pydot_or_draws() -> None:
    from flambeau.fx.passes.graph_drawer import FxGraphDrawer

    try:
        import pydot  # noqa: F401
    except ImportError:
        with pytest.raises(RuntimeError, match="pydot"):
            FxGraphDrawer(_network(), "net")
    else:
        text = FxGraphDrawer(_network(), "net").get_dot_graph().to_string()
        assert "op_code=call_module" in text
