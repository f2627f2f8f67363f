"""`torch.cond` while a graph is recorded: each branch becomes a separate graph, and tensors it captures become its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau

from ...autograd import Function, grad
from ...core.tensor import Tensor
from ...utils import _pytree as pytree


class _BranchRecording:
    """Recording of one branch of a conditional."""

    def __init__(self, outer: Any, function: Callable, leaves: list[Any], shape: Any) -> None:
        recorder = self.recorder = outer.inner()
        self.lifted: list[Tensor] = []
        recorder.lifted = self.lifted
        own = [leaf.detach().requires_grad_(leaf.requires_grad) for leaf in leaves]
        self.operands = [recorder.know(tensor) for tensor in own]
        versions = [leaf._version for leaf in own]
        with flambeau.no_grad(), recorder:
            result = function(*pytree.tree_unflatten(own, shape))
        if [leaf._version for leaf in own] != versions:
            raise RuntimeError("torch.cond: a branch changes one of its operands in place, which branches must not do")
        self.outputs, self.out_shape = pytree.tree_flatten(result)
        if not all(isinstance(value, Tensor) for value in self.outputs):
            kinds = [type(value).__name__ for value in self.outputs]
            raise RuntimeError(f"torch.cond: branches of a graph must return tensors, got {kinds}")
        recorder.structure(self.outputs)
        given = {t.untyped_storage().data_ptr() for t in (*own, *self.lifted)}
        if any(t.numel() and t.untyped_storage().data_ptr() in given for t in self.outputs):
            raise RuntimeError(
                "torch.cond: a branch of a graph returns one of its operands (or a view of it): return a clone"
            )


@dataclass
class Choice:
    """A recorded conditional: the recordings of both branches, the tensors they capture, and the names of their operands."""

    yes: _BranchRecording
    no: _BranchRecording
    lifted: list[Tensor]
    names: list[str] | None


def record(recorder: Any, op: Any, pred: Tensor, true_fn: Callable, false_fn: Callable, operands: tuple) -> Any:
    """Record a conditional while the recorder is off; return the result of the branch taken."""
    leaves, shape = pytree.tree_flatten(operands)
    yes, no = (_BranchRecording(recorder, function, leaves, shape) for function in (true_fn, false_fn))
    for first, second in [
        (len(yes.outputs), len(no.outputs)),
        *((a.shape, b.shape) for a, b in zip(yes.outputs, no.outputs)),
    ]:
        if first != second:
            raise RuntimeError(
                f"torch.cond: the branches must return as many tensors, of the same shapes: {first} and {second}"
            )
    lifted = list({id(t): t for t in (*yes.lifted, *no.lifted)}.values())
    sources = [*leaves, *lifted]
    given = recorder.structure(sources)
    choice = Choice(yes, no, lifted, recorder.branch_names(len(given)))
    chosen = yes if pred else no
    results = tuple(chosen.outputs)
    if flambeau.is_grad_enabled() and any(t.requires_grad for t in sources):
        call = (op, pred, true_fn, false_fn, shape, len(leaves))
        results = _ConditionalFunction.apply(call, results, *sources)
    recorder.write(op, choice, ((recorder.held(pred), *given), {}), results)
    return pytree.tree_unflatten(list(results), chosen.out_shape)


class _ConditionalFunction(Function):
    """Autograd function of a recorded conditional; its backward is a conditional between the derivatives of the branches."""

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
