"""Conversion of TorchScript programs with data-dependent branches to a single path: both sides are computed, and one is selected."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..jit.cleanup import has_effects, remove_dead
from ..jit.functions import Function
from ..jit.inlining import inlined
from ..jit.ir import Block, Graph, Node
from ..jit.types import TensorType
from ..library.registration import Library


def reads_training(model: Any) -> bool:
    """Return whether a compiled module computes something else in training mode."""
    return any(n.attributes.get("name") == "training" for n in inlined(model.graph).findAllNodes("prim::GetAttr"))


def on_one_path(model: Any) -> Callable:
    """Return a compiled module's forward with every data-dependent branch replaced by a selection between the results of both sides.

    That is done if neither side has side effects and both return tensors (of one shape and dtype: anything else is an error at run time).
    Other branches stay."""
    graph = inlined(model.graph)
    if not _choose(graph, graph):
        return model
    _operator()
    remove_dead(graph)
    schema = model.schema
    return functools.partial(Function(f"{model.original_name}.forward").define(graph, schema), model)


def _choose(graph: Graph, block: Block) -> bool:
    changed = False
    for node in list(block.nodes_):
        for inner in node.blocks_:
            changed |= _choose(graph, inner)
        if node.kind_ == "prim::If" and _can_choose(node):
            _replace(graph, node)
            changed = True
    return changed


def _can_choose(node: Node) -> bool:
    decided = node.inputs_[0].node
    by_tensor = decided.kind_ == "aten::Bool" and isinstance(decided.inputs_[0].type, TensorType)
    tensors = all(isinstance(v.type, TensorType) for v in node.outputs_)
    return by_tensor and tensors and not has_effects(node)


def _replace(graph: Graph, node: Node) -> None:
    condition = node.inputs_[0].node.inputs_[0]
    for block in node.blocks_:
        for inner in list(block.nodes_):
            inner.move_before(node)
    yes, no = ([*block.outputs_] for block in node.blocks_)
    with graph.at(node):
        for out, a, b in zip(node.outputs_, yes, no):
            out.replace_by(graph.op("flambeau::chosen", [condition, a, b]))
    node.destroy()


@functools.cache
def _operator() -> Library:
    """Register the operator that selects, on first use."""
    library = Library("flambeau", "FRAGMENT")
    library.define("chosen(Tensor condition, Tensor yes, Tensor no) -> Tensor")
    library.impl("chosen", _select, "CompositeImplicitAutograd")
    return library


def _select(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    if condition.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    if yes.shape != no.shape or yes.dtype != no.dtype:
        raise RuntimeError(
            f"a branch gives {yes.dtype}{list(yes.shape)} or {no.dtype}{list(no.shape)}, depending on values: a native program has one size"
        )
    return flambeau.where(condition.reshape(()) != 0, yes, no)
