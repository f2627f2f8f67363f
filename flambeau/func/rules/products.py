"""Products: of matrices and vectors, convolutions, and linear algebra on stacks of matrices."""

from __future__ import annotations

import functools
from typing import Any

from ...core.tensor import Tensor
from ...ops.linalg import addmm as sums
from ...ops.linalg import least_squares, solving
from ...ops.linalg import linear as layers
from ...ops.linalg import matmul as matmuls
from ...ops.linalg.matmul import matmul as product
from ...ops.nn import attention as attentions
from ...ops.nn import conv
from ..batching import Level, rule
from .common import in_line


@rule(least_squares.pinv, least_squares.pinverse, least_squares.pseudo_inverse)
def pseudo_inverse(level: Level, function: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(x, Tensor) for x in (*args, *kwargs.values())):  # tolerances that belong to matrices
        return level.one_by_one(function.op, function, (input, *args), kwargs)
    return level.wrap(function(level.front(input), *args, **kwargs))


@rule(solving.solve, solving.solve_ex)
def solve(level: Level, function: Any, A: Tensor, B: Tensor, *, left: bool = True, **options: Any) -> Any:  # noqa: N803
    """Batching rule of linear solvers: a vector as right side stays a vector, which a batch of vectors must not look like."""
    is_vector = len(B.shape) == 1 or (len(B.shape) == len(A.shape) - 1 and B.shape == A.shape[:-1])
    rank = 1 + max(len(A.shape), len(B.shape) + is_vector)
    right = _pad_rank(level.full(B).unsqueeze(-1) if is_vector else level.full(B), rank)
    result = function(_pad_rank(level.full(A), rank), right, left=left, **options)
    if is_vector:
        result = (result[0].squeeze(-1), *result[1:]) if isinstance(result, tuple) else result.squeeze(-1)
    return level.wrap(result)


# -- matrices -----------------------------------------------------------------------------------------------------------


@rule(matmuls.matmul)
def matmul(level: Level, function: Any, input: Tensor, other: Tensor) -> Any:
    ranks = len(input.shape), len(other.shape)
    if 0 in ranks:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {ranks[0]}D and {ranks[1]}D")
    _check_inner(input, other)
    if not level.owns(other) and ranks[1] <= 2:  # rows of the batch are more rows of one product
        return level.wrap(product(level.front(input), other))
    if ranks == (1, 2) and not level.owns(input):
        return level.wrap(product(input, level.front(other)))
    a = level.front(input) if ranks[0] > 1 else level.front(input).unsqueeze(-2)
    b = level.front(other) if ranks[1] > 1 else level.front(other).unsqueeze(-1)
    a = _pad_rank(a, 1 + ranks[1]) if level.owns(input) else a
    result = product(a, _pad_rank(b, 1 + ranks[0]) if level.owns(other) else b)
    if ranks[1] == 1:
        result = result.squeeze(-1)
    return level.wrap(result.squeeze(-1 if ranks[1] == 1 else -2) if ranks[0] == 1 else result)


def _pad_rank(t: Tensor, rank: int) -> Tensor:
    """Insert dimensions of size one behind the batch's, which must not meet a dimension of the other operand."""
    return t.reshape(t.shape[0], *(1,) * (rank - len(t.shape)), *t.shape[1:])


def _check_inner(a: Tensor, b: Tensor) -> None:
    if a.shape[-1] != b.shape[-2 if len(b.shape) > 1 else 0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({list(a.shape)} and {list(b.shape)})")


def _product_rule(ranks: tuple[int, int], level: Level, function: Any, input: Tensor, other: Tensor) -> Any:
    """Batching rule of products of tensors with these numbers of dimensions."""
    given = len(input.shape), len(other.shape)
    if given != ranks:
        raise RuntimeError(
            f"{function.__name__}(): expected tensors with {ranks[0]} and {ranks[1]} dimensions, got {given[0]} and {given[1]}"
        )
    return matmul(level, function, input, other)


for _product, _ranks in ((matmuls.mm, (2, 2)), (matmuls.bmm, (3, 3)), (matmuls.mv, (2, 1)), (matmuls.dot, (1, 1))):
    rule(_product)(functools.partial(_product_rule, _ranks))


@rule(sums.addmm)
def addmm(
    level: Level, function: Any, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    with level:
        result = mat1.mm(mat2)
        result = result if alpha == 1 else result * alpha
        return result if beta == 0 else result + (input if beta == 1 else input * beta)


@rule(layers.linear, layers.linear_matrix)
def linear(level: Level, function: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not level.owns(weight) and not level.owns(bias) and input.shape:
        return level.wrap(function(level.front(input), weight, bias))
    with level:
        result = input.matmul(weight.transpose(0, 1) if len(weight.shape) == 2 else weight)
        return result if bias is None else result + bias


@rule(attentions.scaled_dot_product_attention)
def attention(level: Level, function: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Batching rule of attention: the batch is another dimension before the heads."""
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), args), **kwargs)
    if options.get("dropout_p"):
        return level.one_by_one(function.op, function, (query, key, value), options)
    rank = max(len(t.shape) for t in (query, key, value))
    mask: Any = options.get("attn_mask")
    if level.owns(mask):
        options["attn_mask"] = in_line(level, mask, rank)
    return level.wrap(function(*(in_line(level, t, rank) for t in (query, key, value)), **options))


# -- convolutions -------------------------------------------------------------------------------------------------------


@rule(conv.conv_forward)
def conv_forward(level: Level, function: Any, input: Tensor, weight: Tensor, bias: Any, window: tuple) -> Any:
    if level.owns(weight) or level.owns(bias):
        with level:
            result = _grouped_forward(level, input, weight, window)
            return result if bias is None else result + bias.reshape(-1, *(1,) * (len(input.shape) - 2))
    result = conv.conv_forward(level.front(input).flatten(0, 1), weight, bias, window)
    return level.wrap(result.unflatten(0, (level.size, input.shape[0])))


def _grouped_forward(level: Level, input: Tensor, weight: Tensor, window: tuple) -> Any:
    """Convolve images and filters of each element as groups of their own in one convolution."""
    x, w = level.full(input), level.full(weight)  # (B, N, C, ...), (B, O, C / groups, ...)
    out = conv.conv_forward(_channels(x), w.flatten(0, 1), None, _more_groups(window, level.size))
    return level.wrap(out.unflatten(1, (level.size, weight.shape[0])), 1)


def _channels(x: Tensor) -> Tensor:
    """Reshape (B, N, C, ...) to (N, B * C, ...)."""
    return x.movedim(0, 1).flatten(1, 2)


def _more_groups(window: tuple, times: int) -> tuple:
    *rest, groups = window
    return (*rest, groups * times)


@rule(conv.conv_input_grad)
def conv_input_grad(level: Level, function: Any, dy: Tensor, weight: Tensor, shape: tuple, window: tuple) -> Any:
    count, channels, *sizes = shape
    if not level.owns(weight):
        result = conv.conv_input_grad(
            level.front(dy).flatten(0, 1), weight, (level.size * count, channels, *sizes), window
        )
        return level.wrap(result.unflatten(0, (level.size, count)))
    g, w = _channels(level.full(dy)), level.full(weight).flatten(0, 1)
    whole = (count, level.size * channels, *sizes)
    result = conv.conv_input_grad(g, w, whole, _more_groups(window, level.size))
    return level.wrap(result.unflatten(1, (level.size, channels)), 1)


@rule(conv.conv_weight_grad)
def conv_weight_grad(level: Level, function: Any, input: Tensor, dy: Tensor, shape: tuple, window: tuple) -> Any:
    x, g = _channels(level.full(input)), _channels(level.full(dy))
    whole = (level.size * shape[0], *shape[1:])
    result = conv.conv_weight_grad(x, g, whole, _more_groups(window, level.size))
    return level.wrap(result.unflatten(0, (level.size, shape[0])))


@rule(conv.conv_transpose_forward)
def conv_transpose_forward(
    level: Level, function: Any, input: Tensor, weight: Tensor, bias: Any, shape: tuple, window: tuple
) -> Any:
    with level:
        result = conv.conv_input_grad(input, weight, shape, window)
        return result if bias is None else result + bias.reshape(-1, *(1,) * (len(input.shape) - 2))
