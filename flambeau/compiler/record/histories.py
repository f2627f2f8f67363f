"""Arguments that have a history, and results that get one: where the graph of a compiled function begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import naming
from ...core.graph import GradientEdge, grad_mode, gradient_edge
from ...core.tensor import Tensor, tensors_in
from ..state.arguments import Arguments
from .results import replaced, saved_storages

if TYPE_CHECKING:
    from .differentiable import Derivative

differentiable = naming.late("compiler.record.differentiable")


def cut(given: Arguments, told: list[str]) -> dict[int, Tensor]:
    """Replace arguments with a history by tensors at which the function's graphs end. A gradient that reaches one adds to `told` a
    reason not to record."""
    if not grad_mode.enabled:
        return {}
    table = {id(t): differentiable.Boundary(t, told).leaf for t in given.tensors if not t.is_leaf}
    for t in given.tensors:
        if id(t) in table and t.__dict__:
            table[id(t)].__dict__.update(t.__dict__)
    return table


def take_histories(given: Arguments, table: dict[int, Tensor], told: list[str], result: Any = None) -> None:
    """Give arguments that a function changed in place the history and the attributes of their stand-ins, and make views of stand-ins among
    its results views of the arguments: a change of one is part of the other's history."""
    of = {id(table[id(t)]): t if t._base is None else t._base for t in given.tensors if id(t) in table}
    for view in tensors_in(result) if of else ():
        view._base = of.get(id(view._base), view._base)
    for t in given.tensors:
        inside = table.get(id(t))
        if inside is not None and {n: id(v) for n, v in inside.__dict__.items()} != {
            n: id(v) for n, v in t.__dict__.items()
        }:
            t.__dict__.clear()
            t.__dict__.update(inside.__dict__)
        if inside is None or isinstance(inside.grad_fn, differentiable.Boundary):
            continue
        told.append("it changes an argument that has a history")
        if t._base is not None:
            raise RuntimeError(
                "compile: a function changes in place an argument that is a view with a history; this works only without compile"
            )
        meta = t._ensure_autograd()
        meta.grad_fn, meta.output_nr = inside.grad_fn, inside.output_nr


def attached(
    derivative: Derivative, given: Arguments, table: dict[int, Tensor], result: Any, live: list[Tensor]
) -> Any:
    """Return the result of a function that ran eagerly, with one node in front of its graph."""
    tensors = given.tensors
    node = differentiable.FunctionNode(derivative, tensors, saved_storages(live), live)
    inside = [table.get(id(t), t) for t in tensors]
    node.inner = [inside[leaf] if type(leaf) is int else leaf for leaf in derivative.leaves]
    node.ends = [GradientEdge(*(gradient_edge(leaf) or ())) for leaf in node.inner]
    wrapped = {id(t): node.wrap(t, k) for k, t in enumerate(live)}
    wrapped.update({id(alias): t for alias, t in zip(inside, tensors) if alias is not t})
    return replaced(result, wrapped)
