"""`torch.cond` while a graph is recorded: each branch becomes a graph of its own, and tensors that it has from outside its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

from ...autograd import Function, grad
from ...core.tensor import Tensor
from ...utils import _pytree as pytree
from ..graph_module import GraphModule


class _Piece:
    """Recording of one branch of a conditional."""

    def __init__(self, outer: Any, function: Callable, leaves: list[Any], shape: Any) -> None:
        recorder = self.recorder = outer.inner()
        recorder.lifted = []
        own = [leaf.detach().requires_grad_(leaf.requires_grad) for leaf in leaves]
        self.operands = [recorder.graph.placeholder(f"operand_{i}") for i in range(len(own))]
        for tensor, node in zip(own, self.operands):
            recorder.track(tensor, node)
        versions = [leaf._version for leaf in own]
        with flambeau.no_grad(), recorder:
            result = function(*pytree.tree_unflatten(own, shape))
        if [leaf._version for leaf in own] != versions:
            raise RuntimeError("torch.cond: a branch changes one of its operands in place, which branches must not do")
        self.outputs, self.out_shape = pytree.tree_flatten(result)
        if not all(isinstance(value, Tensor) for value in self.outputs):
            kinds = [type(value).__name__ for value in self.outputs]
            raise RuntimeError(f"torch.cond: branches of a graph must return tensors, got {kinds}")
        self.lifted: list[Tensor] = recorder.lifted
        given = {t.untyped_storage().data_ptr() for t in (*own, *self.lifted)}
        if any(t.numel() and t.untyped_storage().data_ptr() in given for t in self.outputs):
            raise RuntimeError(
                "torch.cond: a branch of a graph returns one of its operands (or a view of it): return a clone"
            )

    def finish(self, outer: Any, lifted: list[Tensor], names: list[str]) -> GraphModule:
        """The branch as a module of all operands, those that only the other one needs too."""
        recorder, graph = self.recorder, self.recorder.graph
        nodes = list(self.operands)
        for tensor in lifted:
            known = recorder.known.get(id(tensor))
            if known is None:
                with graph.inserting_before(next(iter(graph.nodes))):
                    node = graph.placeholder("lifted")
                recorder.track(tensor, node)
            else:
                node = known[1]
            (nodes[-1].append if nodes else graph._root.append)(node)
            nodes.append(node)
        for node, name in zip(nodes, names):
            node.target = name
            if node.name != name:
                node.name = graph._graph_namespace.create_name(name, None)
        graph.output(tuple(recorder.argument(value) for value in self.outputs))
        module = GraphModule(recorder.root, graph, "<lambda>")
        for name, child in recorder.pieces.items():
            module.add_module(name, child)
        return module


def record(recorder: Any, op: Any, pred: Tensor, true_fn: Callable, false_fn: Callable, operands: tuple) -> Any:
    """Record a choice, while the recorder is off; returns what the branch taken returns."""
    leaves, shape = pytree.tree_flatten(operands)
    yes, no = (_Piece(recorder, function, leaves, shape) for function in (true_fn, false_fn))
    for first, second in [
        (len(yes.outputs), len(no.outputs)),
        *((a.shape, b.shape) for a, b in zip(yes.outputs, no.outputs)),
    ]:
        if first != second:
            raise RuntimeError(
                f"torch.cond: the branches must return as many tensors, of the same shapes: {first} and {second}"
            )
    lifted = list({id(t): t for t in (*yes.lifted, *no.lifted)}.values())
    given = [recorder.node_of(t) for t in (*leaves, *lifted)]
    number = sum(name.startswith("true_graph_") for name in recorder.pieces)
    branches = []
    for word, piece in (("true", yes), ("false", no)):
        name = f"{word}_graph_{number}"
        recorder.pieces[name] = piece.finish(recorder, lifted, recorder.branch_names(given))
        branches.append(recorder.graph.create_node("get_attr", name, (), {}, name))
        recorder.describe(branches[-1])
    node = recorder.graph.create_node(
        "call_function", op, (recorder.node_of(pred), *branches, tuple(given)), {}, "cond"
    )
    recorder.describe(node)
    chosen = yes if pred else no
    results = tuple(chosen.outputs)
    sources = [*leaves, *lifted]
    if flambeau.is_grad_enabled() and any(t.requires_grad for t in sources):
        call = (op, pred, true_fn, false_fn, shape, len(leaves))
        results = _Choice.apply(call, results, *sources)
    recorder._keep(node, results)
    return pytree.tree_unflatten(list(results), chosen.out_shape)


class _Choice(Function):
    """The derivative of a recorded choice is another one: between the derivatives of the branches."""

    @staticmethod
    def forward(ctx: Any, call: tuple, results: tuple, *sources: Tensor) -> tuple:
        ctx.call, ctx.sources = call, sources
        return tuple(t.detach() for t in results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        op, pred, true_fn, false_fn, shape, count = ctx.call
        needed = [i for i, t in enumerate(ctx.sources) if t.requires_grad]
        operands, lifted = ctx.sources[:count], ctx.sources[count:]

        def derivative(function: Callable) -> Callable:
            def run(*values: Tensor) -> list[Tensor]:
                own, upstream = values[:count], values[count:]
                with flambeau.enable_grad():
                    results = pytree.tree_leaves(function(*pytree.tree_unflatten(list(own), shape)))
                wanted = [(*own, *lifted)[i] for i in needed]
                used = [(r, g) for r, g in zip(results, upstream) if r.requires_grad]
                found: Any = [None] * len(wanted)
                if used:
                    found = grad([r for r, _ in used], wanted, [g for _, g in used], allow_unused=True)
                return [flambeau.zeros_like(w) if g is None else g for w, g in zip(wanted, found)]

            return run

        found = op(pred, derivative(true_fn), derivative(false_fn), (*operands, *gradients))
        by_place = dict(zip(needed, found))
        return (None, None, *(by_place.get(i) for i in range(len(ctx.sources))))


__all__ = ["record"]
