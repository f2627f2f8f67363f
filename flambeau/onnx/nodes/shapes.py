"""Operators that rearrange, select and create elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import flambeau

from ...core.tensor import Tensor
from ...nn import functional as F  # noqa: N812
from ..dtypes import DTYPE, tensor_of
from .table import Call, node, numbers

_ALL = slice(None)


@node("Constant")
def constant(call: Call, **given: Any) -> Any:
    (kind, value), *_ = given.items()
    if kind in ("value", "sparse_value"):
        return value
    if kind == "value_string":
        return np.array(value, object)
    if kind == "value_strings":
        return np.array(value, object)
    return flambeau.tensor(value, dtype=flambeau.float32 if "float" in kind else flambeau.int64)


@node("ConstantOfShape")
def constant_of_shape(call: Call, shape: Tensor, value: Any = None) -> Tensor:
    fill = flambeau.zeros(1) if value is None else value.reshape(-1)
    return fill.expand(numbers(shape)).clone() if numbers(shape) else fill.reshape(()).clone()


@node("Shape")
def shape(call: Call, x: Any, start: int = 0, end: int | None = None) -> Tensor:
    return flambeau.tensor(list(x.shape)[start:end], dtype=flambeau.int64)


@node("Size")
def size(call: Call, x: Any) -> Tensor:
    return flambeau.tensor(int(np.prod(x.shape)), dtype=flambeau.int64)


@node("Reshape")
def reshape(call: Call, x: Any, sizes: Any = None, allowzero: int = 0, shape: Any = None) -> Any:
    wanted = numbers(shape if sizes is None else sizes)
    if not allowzero:
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return x.reshape(wanted)


@node("Flatten")
def flatten(call: Call, x: Tensor, axis: int = 1) -> Tensor:
    axis = axis + x.dim() if axis < 0 else axis
    return (
        x.reshape(int(np.prod(x.shape[:axis])), -1)
        if x.numel()
        else x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
    )


@node("Unsqueeze")
def unsqueeze(call: Call, x: Any, places: Any = None, axes: Any = None) -> Any:
    wanted = numbers(axes if places is None else places)
    rank = len(x.shape) + len(wanted)
    for a in sorted(n % rank for n in wanted):
        x = x.unsqueeze(a) if isinstance(x, Tensor) else np.expand_dims(x, a)
    return x


@node("Squeeze")
def squeeze(call: Call, x: Tensor, places: Any = None, axes: Any = None) -> Tensor:
    wanted = axes if places is None else places
    if wanted is None:
        return x.squeeze()
    kept = {n % x.dim() for n in numbers(wanted)}
    return x.reshape([s for i, s in enumerate(x.shape) if i not in kept])


@node("Transpose")
def transpose(call: Call, x: Tensor, perm: Any = None) -> Tensor:
    return x.permute(list(range(x.dim()))[::-1] if perm is None else perm)


@node("Concat")
def concat(call: Call, *values: Any, axis: int = 1) -> Any:
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values, axis)
    return flambeau.cat(list(values), axis)


@node("Split")
def split(
    call: Call, x: Tensor, sizes: Any = None, axis: int = 0, split: Any = None, num_outputs: int | None = None
) -> tuple:
    wanted = split if sizes is None else numbers(sizes)
    if wanted is None:
        count = num_outputs or call.outputs
        each = -(-x.shape[axis] // count)
        wanted = [max(min(each, x.shape[axis] - i * each), 0) for i in range(count)]
    return tuple(flambeau.split(x, list(wanted), axis))


@node("Slice")
def slice_(
    call: Call, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None, **old: Any
) -> Any:
    starts, ends = (numbers(v) for v in (starts, ends))
    places = list(range(len(starts))) if axes is None else numbers(axes)
    jumps = [1] * len(starts) if steps is None else numbers(steps)
    if not isinstance(x, Tensor):
        index = [_ALL] * x.ndim
        for a, b, e, s in zip(places, starts, ends, jumps):
            index[a] = slice(b, e, s)
        return x[tuple(index)]
    for a, b, e, s in zip(places, starts, ends, jumps):
        n = x.shape[a]
        found = range(*slice(b, e if s > 0 or e >= -n else None, s).indices(n))
        if s > 0:
            x = x[(_ALL,) * (a % x.dim()) + (slice(found.start, max(found.stop, found.start), s),)]
        else:
            x = x.index_select(a, flambeau.tensor(list(found), dtype=flambeau.int64))
    return x


@node("Gather")
def gather(call: Call, x: Any, places: Tensor, axis: int = 0) -> Any:
    if not isinstance(x, Tensor):
        return np.take(x, places.numpy(), axis)
    places = _count_from_start(places, x.shape[axis])
    made = x.index_select(axis, places.reshape(-1))
    axis %= max(x.dim(), 1)
    return made.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


def _count_from_start(places: Tensor, size: int) -> Tensor:
    places = places.to(flambeau.int64)
    return flambeau.where(places < 0, places + size, places)


@node("GatherElements")
def gather_elements(call: Call, x: Tensor, places: Tensor, axis: int = 0) -> Tensor:
    return x.gather(axis, _count_from_start(places, x.shape[axis]))


@node("GatherND")
def gather_nd(call: Call, x: Tensor, places: Tensor, batch_dims: int = 0) -> Tensor:
    places = places.to(flambeau.int64)
    if not batch_dims:
        return x[tuple(places.unbind(-1))]
    lead = x.shape[:batch_dims]
    count = int(np.prod(lead))
    flat, rows = x.reshape(count, *x.shape[batch_dims:]), places.reshape(count, *places.shape[batch_dims:])
    made = flambeau.stack([flat[i][tuple(rows[i].unbind(-1))] for i in range(count)])
    return made.reshape(*lead, *made.shape[1:])


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@node("Scatter", "ScatterElements")
def scatter(call: Call, x: Tensor, places: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none") -> Tensor:
    places = _count_from_start(places, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCE[reduction])


@node("ScatterND")
def scatter_nd(call: Call, x: Tensor, places: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    index = tuple(_count_from_start(p, s) for p, s in zip(places.unbind(-1), x.shape))
    if reduction in ("none", "add"):
        return x.index_put(index, updates, accumulate=reduction == "add")
    made = x.clone()
    lead = places.shape[:-1]
    for at in itertools.product(*(range(n) for n in lead)):
        spot = tuple(int(i[at]) for i in index)
        old, new = made[spot], updates[at]
        made[spot] = {"mul": flambeau.mul, "max": flambeau.maximum, "min": flambeau.minimum}[reduction](old, new)
    return made


@node("TensorScatter")
def tensor_scatter(
    call: Call, past: Tensor, update: Tensor, write: Any = None, axis: int = -2, mode: str = "linear"
) -> Tensor:
    made, axis = past.clone(), axis % past.dim()
    starts = [0] * past.shape[0] if write is None else numbers(write)
    for b, start in enumerate(starts):
        spots = flambeau.arange(update.shape[axis]) + start
        if mode == "circular":
            spots = spots % past.shape[axis]
        made[b] = made[b].index_copy(axis - 1, spots, update[b])
    return made


@node("Expand")
def expand(call: Call, x: Tensor, sizes: Tensor) -> Tensor:
    wanted = numbers(sizes)
    return x.expand(flambeau.broadcast_shapes(tuple(x.shape), tuple(wanted)))


@node("Tile")
def tile(call: Call, x: Tensor, times: Tensor) -> Tensor:
    return x.repeat(numbers(times))


@node("Pad")
def pad(
    call: Call, x: Tensor, widths: Any = None, fill: Any = None, axes: Any = None, mode: str = "constant", pads: Any = None, paddings: Any = None,
    value: float = 0.0,
) -> Tensor:  # fmt: skip
    listed = numbers(next(w for w in (widths, pads, paddings) if w is not None))
    number = value if fill is None else fill.item()
    dims = list(range(x.dim())) if axes is None else [a % x.dim() for a in numbers(axes)]
    half = len(listed) // 2
    for d, before, after in zip(dims, listed[:half], listed[half:]):
        x = _pad_dim(x, d, before, after, mode, number)
    return x


def _pad_dim(x: Tensor, dim: int, before: int, after: int, mode: str, fill: Any) -> Tensor:
    n = x.shape[dim]
    if before < 0 or after < 0:
        x = x.narrow(dim, max(-before, 0), n - max(-before, 0) - max(-after, 0))
        before, after, n = max(before, 0), max(after, 0), x.shape[dim]
    if not before and not after:
        return x
    if mode == "constant":
        parts = [x.new_full([*x.shape[:dim], k, *x.shape[dim + 1 :]], fill) for k in (before, after)]
        return flambeau.cat([parts[0], x, parts[1]], dim)
    places = np.arange(-before, n + after)
    if mode == "edge":
        places = places.clip(0, n - 1)
    elif mode == "reflect":
        around = max(2 * (n - 1), 1)
        places = np.abs((places + (n - 1) * 2 * (before // max(n - 1, 1) + 1)) % around)
        places = np.where(places > n - 1, around - places, places)
    else:
        places = places % n
    return x.index_select(dim, tensor_of(places.astype(np.int64)))


@node("Range")
def range_(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return flambeau.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


@node("EyeLike")
def eye_like(call: Call, x: Tensor, dtype: int | None = None, k: int = 0) -> Tensor:
    made = tensor_of(np.eye(x.shape[0], x.shape[1], k=k))
    return made.to(x.dtype if dtype is None else DTYPE[dtype])


@node("OneHot")
def one_hot(call: Call, places: Tensor, depth: Tensor, values: Tensor, axis: int = -1) -> Tensor:
    count = int(depth.reshape(-1)[0].item())
    places = places.to(flambeau.int64)
    axis = axis % (places.dim() + 1)
    inside = flambeau.where(places < 0, places + count, places).unsqueeze(axis)
    hot = inside == flambeau.arange(count).reshape([-1 if d == axis else 1 for d in range(places.dim() + 1)])
    return flambeau.where(hot, values[1], values[0])


@node("NonZero")
def non_zero(call: Call, x: Tensor) -> Tensor:
    return x.nonzero().t().contiguous()


@node("Trilu")
def trilu(call: Call, x: Tensor, k: Any = None, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(k.item())
    return flambeau.triu(x, diagonal) if upper else flambeau.tril(x, diagonal)


@node("Compress")
def compress(call: Call, x: Tensor, condition: Tensor, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x.index_select(axis, condition.nonzero().reshape(-1))


@node("DepthToSpace")
def depth_to_space(call: Call, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "CRD":
        return F.pixel_shuffle(x, b)
    return x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // (b * b), h * b, w * b)


@node("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    cut = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return cut.permute(*order).reshape(n, c * b * b, h // b, w // b)


@node("ReverseSequence")
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    turned = x.transpose(0, 1) if batch_axis else x
    rows = [flambeau.cat([row[:n].flip(0), row[n:]]) for row, n in zip(turned.unbind(0), numbers(lengths))]
    made = flambeau.stack(rows)
    return made.transpose(0, 1) if batch_axis else made


# -- random ----------------------------------------------------------------------------------------------------------------------------


def _generator(seed: Any) -> Any:
    return None if seed is None else flambeau.Generator().manual_seed(int(seed))


@node("RandomUniform")
def random_uniform(
    call: Call, shape: Any, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: Any = None
) -> Tensor:
    return flambeau.rand(list(shape), generator=_generator(seed)).to(DTYPE[dtype]) * (high - low) + low


@node("RandomNormal")
def random_normal(
    call: Call, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: Any = None
) -> Tensor:
    return flambeau.randn(list(shape), generator=_generator(seed)).to(DTYPE[dtype]) * scale + mean


@node("RandomUniformLike")
def random_uniform_like(call: Call, x: Tensor, dtype: int | None = None, **rest: Any) -> Tensor:
    return random_uniform(call, list(x.shape), **rest).to(x.dtype if dtype is None else DTYPE[dtype])


@node("RandomNormalLike")
def random_normal_like(call: Call, x: Tensor, dtype: int | None = None, **rest: Any) -> Tensor:
    return random_normal(call, list(x.shape), **rest).to(x.dtype if dtype is None else DTYPE[dtype])


@node("Bernoulli")
def bernoulli(call: Call, x: Tensor, dtype: int | None = None, seed: Any = None) -> Tensor:
    return flambeau.bernoulli(x, generator=_generator(seed)).to(x.dtype if dtype is None else DTYPE[dtype])


@node("Multinomial")
def multinomial(call: Call, x: Tensor, dtype: int = 6, sample_size: int = 1, seed: Any = None) -> Tensor:
    return flambeau.multinomial(flambeau.exp(x), sample_size, True, generator=_generator(seed)).to(DTYPE[dtype])
