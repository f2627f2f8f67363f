"""`make_fx(f, tracing_mode="symbolic")`: the graph for several sizes of the arguments, with sizes computed in it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..core.tensor import Tensor
from ..fx.graph_module import GraphModule
from ..fx.node import Node
from ..utils import _pytree as pytree
from ._trace import with_sizes
from .dynamic_shapes import Sizes
from .merging import EXAMPLES, Merger, other_sizes
from .symbols import Expression, Symbol


class _Merger(Merger):
    """Compares graphs whose inputs are all the user's."""

    def _merge_outputs(self, nodes: list[Node]) -> None:
        nodes[0].args = self._compute(self._merge_values([n.args for n in nodes], nodes[0]), nodes[0])

    def _user_nodes(self) -> list[Node]:
        return [n for n in self.graph.nodes if n.op == "placeholder"]


def _symbols(names: list[str], leaves: list[Any]) -> Sizes:
    """Make a symbol for each size; equal sizes share one, and 0 and 1 stay numbers."""
    sizes = Sizes()
    known: dict[int, Symbol] = {}
    for number, (name, leaf) in enumerate(zip(names, leaves)):
        if not isinstance(leaf, Tensor):
            continue
        for dim, size in enumerate(leaf.shape):
            if size > 1:
                if size not in known:
                    known[size] = sizes._new(f"{name}.size()[{dim}]", size, 2, None)
                sizes.of_leaf.setdefault(number, {})[dim] = Expression.of(known[size])
    return sizes


def symbolic(f: Callable, make: Callable[[], Callable[..., GraphModule]], *args: Any) -> GraphModule:
    """Return the graph of `f`; `make()` returns the function that records it for given arguments."""
    leaves, shape = pytree.tree_flatten(args)
    sizes = _symbols([f"arg{i}" for i in range(len(leaves))], leaves)
    first = make()(*args)
    if not sizes.symbols:
        return first

    def run(values: dict[Symbol, int]) -> GraphModule:
        changed = with_sizes(leaves, sizes, values)
        for place in sizes.of_leaf:
            if leaves[place].requires_grad:
                changed[place].requires_grad_()
        return make()(*pytree.tree_unflatten(changed, shape))

    runs = [{s: s.hint for s in sizes.symbols}, *(other_sizes(sizes, number) for number in range(1, EXAMPLES))]
    traces = [_traced(first), *(_traced(run(values)) for values in runs[1:])]
    _Merger(traces, runs, sizes, lambda values: _traced(run(values))).merge()
    first.recompile()
    return first


def _traced(module: GraphModule) -> SimpleNamespace:
    branches = {n: c for n, c in module.named_children() if isinstance(c, GraphModule)}
    return SimpleNamespace(graph=module.graph, pieces=branches)
