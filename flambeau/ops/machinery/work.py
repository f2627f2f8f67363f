"""Counts of floating point operations of a call, for `flops=` of a declaration.

Each function gets the arguments of a call and its result, of which it reads shapes only, and returns PyTorch's name for the operator that
does this work, and a count. A multiplication with an addition counts as two. Work that PyTorch's own counter ignores has no name."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.graph import grad_mode

Work = tuple[str, int]


def mm(input: Any, mat2: Any, out: Any) -> Work:
    return "mm", 2 * prod(input.shape) * mat2.shape[-1]


def bmm(input: Any, mat2: Any, out: Any) -> Work:
    return "bmm", 2 * prod(input.shape) * mat2.shape[-1]


def addmm(input: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any, out: Any) -> Work:
    return "addmm", 2 * prod(mat1.shape) * mat2.shape[-1]


def baddbmm(input: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any, out: Any) -> Work:
    return "baddbmm", 2 * prod(batch1.shape) * batch2.shape[-1]


def linear(input: Any, weight: Any, bias: Any, out: Any) -> Work:
    """Count the operations of a linear layer. PyTorch adds the bias separately if it cannot view the input as one matrix."""
    whole = len(input.shape) == 2 or getattr(input, "_contig", True)
    return "addmm" if bias is not None and whole else "mm", 2 * prod(input.shape) * weight.shape[0]


def recurrent(
    kind: Any, data: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, steps: Any, out: Any
) -> Work:
    """Count the operations of a recurrent layer: every row of data, and the state before it, is multiplied by the weights of the gates."""
    return "addmm", 2 * data.shape[0] * (prod(w_ih.shape) + prod(w_hh.shape))


def recurrent_gradients(
    dout: Any, dhn: Any, dcn: Any, kind: Any, w_hh: Any, h_before: Any, gates: Any, c: Any, cells: Any, steps: Any, batch: Any,
    out: Any,
) -> Work:  # fmt: skip
    """Count the operations of a recurrent layer's backward: from each step but the first, back to the state before it."""
    return "mm", 2 * (h_before.shape[0] - batch) * prod(w_hh.shape)


def _convolved(positions: Any, batch: int, weight: Any) -> int:
    """Count a convolution's operations: at each position the whole weight is applied to the input."""
    return 2 * prod(positions) * batch * prod(weight.shape)


def convolution(input: Any, weight: Any, bias: Any, window: Any, out: Any) -> Work:
    inside = getattr(grad_mode.evaluating, "label", "")  # the gradient of a transposed convolution is one
    name = "convolution_backward" if inside == "ConvolutionBackward0" else "convolution"
    return name, _convolved(out.shape[2:], input.shape[0], weight)


def transposed_convolution(input: Any, weight: Any, bias: Any, shape: Any, window: Any, out: Any) -> Work:
    return "convolution", _convolved(input.shape[2:], input.shape[0], weight)


def _weight_gradient(dy: Any, input: Any, kernel: Any) -> int:
    """Count the operations of a weight's gradient. PyTorch counts every pair of channels, whatever the groups."""
    return 2 * prod(kernel) * prod(dy.shape) * input.shape[1]


def convolution_gradients(dy: Any, input: Any, weight: Any, window: Any, wants: Any, out: Any) -> Work:
    count = _convolved(dy.shape[2:], dy.shape[0], weight) if wants[0] else 0
    return "convolution_backward", count + (_weight_gradient(dy, input, weight.shape[2:]) if wants[1] else 0)


def convolution_input_gradient(dy: Any, weight: Any, shape: Any, window: Any, out: Any) -> Work:
    return "convolution_backward", _convolved(dy.shape[2:], dy.shape[0], weight)


def convolution_weight_gradient(input: Any, dy: Any, shape: Any, window: Any, out: Any) -> Work:
    return "convolution_backward", _weight_gradient(dy, input, shape[2:])


def each_element(*args: Any) -> Work:
    """Count one operation for each element of the first argument."""
    return "", prod(args[0].shape)
