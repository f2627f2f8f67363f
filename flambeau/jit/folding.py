"""Folding in frozen graphs: scales and shifts of channels after a convolution or linear layer are merged into its parameters."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ..core.tensor import Tensor
from ..library.aten.formulas import Steps
from ..library.aten.resolver import record_of
from .ir import Block, Node, Value
from .ir_values import constant_of
from .types import TENSOR

_CONVOLUTIONS = {"aten::conv1d": 1, "aten::conv2d": 2, "aten::conv3d": 3}
_QUESTIONS = {"aten::dim", "aten::size", "aten::len"}  # these do not look at the numbers
_ARITHMETIC = {"aten::add", "aten::sub", "aten::mul", "aten::div"}


def fold(block: Block) -> None:
    """Fold norms with constants into convolutions and linear layers, then additions and multiplications by constants into convolutions."""
    for node in list(block.nodes_):
        for inner in node.blocks_:
            fold(inner)
        if node.owner is None or not node.inputs_:
            continue
        before = node.inputs_[0].node
        others = [user for user, _ in node.inputs_[0].uses if user is not node and user.kind_ not in _QUESTIONS]
        if others or before.owner is not block:
            continue
        if node.kind_ in _ARITHMETIC and before.kind_ in _CONVOLUTIONS:
            _fold_arithmetic(before, node)
        elif before.kind_ in _CONVOLUTIONS or before.kind_ == "aten::linear":
            _fold_norm(before, node)


def _tensors(*values: Value) -> list[Any] | None:
    """Return the constant tensors (or None constants) of values; None if one is not constant."""
    found = [constant_of(v) for v in values]
    if not all(known and (held is None or isinstance(held, Tensor)) for known, held in found):
        return None
    return [held for _, held in found]


def _fold_norm(layer: Node, norm: Node) -> None:
    """Fold a call whose record declares it as a scale and a shift per channel (`Op.affine`)."""
    record = record_of(norm.kind_.removeprefix("aten::"))
    parameters, given = _tensors(*layer.inputs_[1:3]), [constant_of(v) for v in norm.inputs_[1:]]
    if record is None or record.affine is None or parameters is None or not all(known for known, _ in given):
        return
    weight, bias = parameters
    if weight is None or not weight.is_floating_point():
        return
    # Of the input, only its dtype is asked for.
    found = record.affine(**record.bind((weight, *(value for _, value in given)), {}))
    if found is None:
        return
    operands, *formulas, _ = found
    scale, addend = map(Steps(operands).value, formulas)
    offset = addend if bias is None else bias * scale + addend
    _replace(layer, weight * scale.reshape(-1, *[1] * (weight.dim() - 1)), offset, "_fused_bn")
    norm.outputs_[0].replace_by(layer.outputs_[0])
    norm.destroy()


def _fold_arithmetic(layer: Node, node: Node) -> None:
    constants = _tensors(*layer.inputs_[1:3])
    known, operand = constant_of(node.inputs_[1])
    extra = [constant_of(v) for v in node.inputs_[2:]]  # alpha of a sum; a division's rounding mode
    if constants is None or not known or extra not in ([], [(True, 1)]):
        return
    weight, bias = constants
    if weight is None or not weight.is_floating_point():
        return
    operand = _by_channel(operand, weight, _CONVOLUTIONS[layer.kind_])
    if operand is None:
        return
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    word = node.kind_.rpartition(":")[2]
    if word in ("mul", "div"):
        change = getattr(torch, word)
        column = operand.reshape(-1, *[1] * (weight.dim() - 1))
        _replace(layer, change(weight, column), change(bias, operand), f"_fused_{word}")
    else:
        _replace(layer, weight, getattr(torch, word)(bias, operand).clone(), f"_fused_{word}")
    node.outputs_[0].replace_by(layer.outputs_[0])
    node.destroy()


def _by_channel(operand: Any, weight: Tensor, dims: int) -> Tensor | None:
    """Return an operand (a number, or a constant with one entry or one per channel) as a vector over the channels; else None."""
    channels = weight.shape[0]
    if isinstance(operand, (int, float)) and not isinstance(operand, bool):
        return torch.full((channels,), float(operand), dtype=weight.dtype)
    if not isinstance(operand, Tensor) or operand.dtype is not weight.dtype or operand.dim() > dims + 2:
        return None
    shape = (*[1] * (dims + 2 - operand.dim()), *operand.shape)
    if any(n != 1 for n in (shape[0], *shape[2:])) or shape[1] not in (1, channels):
        return None
    return operand.reshape(-1).expand(channels)


def _replace(layer: Node, weight: Tensor, bias: Tensor, suffix: str) -> None:
    """Replace a layer's parameters, under the old names with a suffix."""
    names = [v.name if v.has_name() else "" for v in layer.inputs_[1:3]]
    with layer.graph.at(layer):
        for index, tensor in enumerate((weight, bias)):
            made = layer.graph.constant(tensor.detach(), TENSOR, layer.range)
            if names[index] and not names[index].isdigit():
                made.set_name(names[index] + suffix)
            layer.replace_input(index + 1, made)
