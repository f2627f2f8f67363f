"""Layers: normalisation, pooling, resampling, padding, embedding."""

from __future__ import annotations

from typing import Any

from ...core.batched import VmapRefusal
from ...core.tensor import Tensor
from ...ops.machinery.record import Batched
from ...ops.nn import batch_norm as batch_norms
from ...ops.nn import embedding as embeddings
from ...ops.nn import group_norm as group_norms
from ...ops.nn import normalization
from ...ops.nn.batch_norm import batch_norm as normalise
from ..batching import Level, Rule, form, rule
from .common import bind, unfolded


@form("pooled")
def pooled(declared: Batched) -> Rule:
    """Batch a pooling: an image (C, ...) becomes a batch of images; a batch of them becomes a longer one."""

    def run(level: Level, function: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        digits = next(int(c) for c in function.__name__ if c.isdigit())
        value = level.front(input)
        if len(input.shape) == digits + 2:
            return level.wrap(unfolded(level, function(value.flatten(0, 1), *args, **kwargs)))
        return level.wrap(function(value, *args, **kwargs))

    return run


def _affine(result: Tensor, weight: Any, bias: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Scale and shift, by parameters that may be batched."""
    if weight is not None:
        result = result * (weight if shape is None else weight.reshape(shape))
    if bias is not None:
        result = result + (bias if shape is None else bias.reshape(shape))
    return result


@rule(normalization.layer_norm_rows, normalization.layer_norm_result)
def layer_norm(level: Level, function: Any, input: Tensor, weight: Any, bias: Any, inner: int, eps: float) -> Any:
    if not level.owns(weight) and not level.owns(bias):
        return level.wrap(function(level.front(input), weight, bias, inner, eps))
    with level:
        return _affine(function(input, None, None, inner, eps), weight, bias)


@rule(group_norms.group_norm_apply)
def group_norm(level: Level, function: Any, input: Tensor, weight: Any, bias: Any, *settings: Any) -> Any:
    if level.owns(weight) or level.owns(bias):
        with level:
            result = function(input, None, None, *settings)
            plain, *statistics = result if isinstance(result, tuple) else (result,)
            scaled = _affine(plain, weight, bias, (-1, *(1,) * (len(input.shape) - 2)))
            return (scaled, *statistics) if statistics else scaled
    return level.wrap(unfolded(level, function(level.front(input).flatten(0, 1), weight, bias, *settings)))


def _refuse_shared_statistics(level: Level, input: Tensor, statistics: Any) -> None:
    """Raise an error if all batch elements would update the same running statistics."""
    if statistics is not None and level.owns(input) and not level.owns(statistics):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in"
            " place, were not batched.\nIf you are using modules and do not need eval mode, please set"
            " `track_running_stats` to be False. If you are using a prebuilt module and do not need eval mode, please use"
            " replace_all_batch_norm_modules_ from torch.func."
        )


@rule(batch_norms.batch_norm, batch_norms.torch_batch_norm)
def batch_norm(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    given = bind(function, args, kwargs).arguments
    input, mean, variance = given["input"], given["running_mean"], given["running_var"]
    shape = (1, -1, *(1,) * (len(input.shape) - 2))
    if len(input.shape) < 2:
        return level.one_by_one(function.op, function, args, kwargs)
    if not given["training"]:
        with level:
            scale = (variance.reshape(shape) + given["eps"]).rsqrt()
            return _affine((input - mean.reshape(shape)) * scale, given["weight"], given["bias"], shape)
    _refuse_shared_statistics(level, input, mean)
    running = [None if r is None else level.front(r).reshape(-1) for r in (mean, variance)]
    x = level.full(input).movedim(0, 1).flatten(1, 2)  # (N, B * C, ...)
    out = normalise(x, *running, None, None, True, given["momentum"], given["eps"])
    for own, new in zip((mean, variance), running):
        if own is not None and new is not None and not level.front(own).is_contiguous():  # a copy was updated
            level.front(own).copy_(new.reshape(level.size, -1))
    with level:
        plain = level.wrap(out.unflatten(1, (level.size, input.shape[1])), 1)
        return _affine(plain, given["weight"], given["bias"], shape)


@rule(batch_norms.native_batch_norm, batch_norms.instance_norm, batch_norms.torch_instance_norm)
def statistics_updated(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    given = bind(function, args, kwargs).arguments
    if given.get("training", given.get("use_input_stats")):
        _refuse_shared_statistics(level, given["input"], given["running_mean"])
    return level.composite(function.op, function, args, kwargs)


@rule(embeddings.embedding_rows)
def embedding(
    level: Level, function: Any, weight: Tensor, indices: Tensor, padding: Any, by_frequency: Any, sparse: Any
) -> Any:
    if not level.owns(weight):
        return level.wrap(function(weight, level.front(indices), padding, by_frequency, sparse))
    if by_frequency or sparse:
        raise VmapRefusal("vmap: embedding with scale_grad_by_freq or sparse and a weight for each element")
    w, i = level.full(weight), level.full(indices)
    count = weight.shape[0]
    if padding is not None and padding >= 0:
        raise VmapRefusal("vmap: embedding with padding_idx and a weight for each element")
    offsets = _offsets(level, i, count)
    return level.wrap(function(w.flatten(0, 1), i + offsets, padding, by_frequency, sparse))


def _offsets(level: Level, like: Tensor, count: int) -> Tensor:
    """Return each batch element's offset into a shared table: `count` rows for every element before it."""
    steps = like.new_ones(level.size).cumsum(0) - 1
    return (steps * count).reshape(level.size, *(1,) * (len(like.shape) - 1))


@rule(embeddings.embedding_dense_backward)
def embedding_backward(
    level: Level, function: Any, grad: Tensor, indices: Tensor, count: int, padding: Any, by_frequency: Any
) -> Any:
    if by_frequency or (padding is not None and padding >= 0):
        return level.one_by_one(function.op, function, (grad, indices, count, padding, by_frequency), {})
    g, i = level.full(grad), level.full(indices)
    result = function(g, i + _offsets(level, i, count), level.size * count, padding, by_frequency)
    return level.wrap(result.unflatten(0, (level.size, count)))


@rule(embeddings.one_hot)
def one_hot(level: Level, function: Any, input: Tensor, num_classes: int = -1) -> Any:
    if num_classes < 0:
        raise VmapRefusal("vmap: one_hot inside vmap needs num_classes: the shape must not depend on the data")
    return level.wrap(function(level.front(input), num_classes))
