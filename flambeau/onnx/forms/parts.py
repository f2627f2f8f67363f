"""Operators that are exported as calls of others: functions of tensors, with the parameters of PyTorch's schemas.

A call of `aten.name` inside the function for `name` is exported by its form. Composites are not here: they are decomposed without a
declaration."""

from __future__ import annotations

import functools
import math
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...nn import functional as F  # noqa: N812
from ..registry import aten, made_of

# -- elements -----------------------------------------------------------------------------------------------------------------------


@made_of(aten.fmax)
def fmax(x: Tensor, other: Tensor) -> Tensor:
    return flambeau.where(x.isnan(), other, flambeau.where(other.isnan(), x, flambeau.maximum(x, other)))


@made_of(aten.fmin)
def fmin(x: Tensor, other: Tensor) -> Tensor:
    return flambeau.where(x.isnan(), other, flambeau.where(other.isnan(), x, flambeau.minimum(x, other)))


@made_of(aten.copysign)
def copysign(x: Tensor, other: Any) -> Tensor:
    size = abs(x) if x.is_floating_point() else abs(x.to(flambeau.get_default_dtype()))
    return flambeau.where(flambeau.as_tensor(other) < 0, -size, size)


@made_of(aten.bitwise_right_shift, before=18)
def bitwise_right_shift(x: Any, other: Any) -> Tensor:
    x = x if isinstance(x, Tensor) else flambeau.full_like(other, x)
    half = other // 2  # in two steps: the largest power of two is no positive number
    powers = (2**n if isinstance(n, int) else flambeau.ones_like(x) << n for n in (half, other - half))
    return functools.reduce(flambeau.floor_divide, powers, x)


@made_of(aten.gelu, before=20)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        curve = flambeau.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * (x * x))))
    else:
        curve = flambeau.erf(x / math.sqrt(2))
    return x * (curve + 1) * 0.5


@made_of(aten.elu)
def elu(x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    if input_scale == 1:
        return aten.elu.default(x, alpha, scale)
    return flambeau.where(x > 0, x, flambeau.expm1(x * input_scale) * alpha) * scale


@made_of(aten.special_ndtr)
def ndtr(x: Tensor) -> Tensor:
    return (flambeau.erf(x * math.sqrt(0.5)) + 1) * 0.5


@made_of(aten.rrelu)
def rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:
    return F.leaky_relu(x, (lower + upper) / 2) if not training else NotImplemented


@made_of(aten.dropout)
def dropout(x: Tensor, p: float, train: bool) -> Tensor:
    return aten.dropout.default(x, p, train) if train and p < 1 else flambeau.zeros_like(x) if train else x


@made_of(aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout)
def other_dropout(x: Tensor, p: float, train: bool) -> Any:
    return NotImplemented if train else x


@made_of(aten.normal_)
def normal_(x: Tensor, mean: float = 0, std: float = 1, generator: Any = None) -> Tensor:
    return x.copy_(flambeau.randn_like(x) * std + mean)


@made_of(aten.bernoulli_)
def bernoulli_(x: Tensor, p: Any = 0.5, generator: Any = None) -> Tensor:
    chance = p if isinstance(p, Tensor) else flambeau.full_like(x, p, dtype=flambeau.float32)
    return x.copy_(flambeau.bernoulli(chance))


@made_of(aten.multinomial)
def multinomial(x: Tensor, num_samples: int, replacement: bool = False, generator: Any = None) -> Tensor:
    if replacement or num_samples == 1:
        rows = x if x.dim() == 2 else x.unsqueeze(0)
        return aten.multinomial.default(rows, num_samples, replacement).reshape(*x.shape[:-1], num_samples)
    noise = -flambeau.log(-flambeau.log(flambeau.rand_like(x).clamp_min(1e-30)))  # the largest after Gumbel's noise
    return flambeau.topk(flambeau.log(x) + noise, num_samples)[1]


# -- reductions ---------------------------------------------------------------------------------------------------------------------


@made_of(aten.nansum)
def nansum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return flambeau.where(x.isnan(), 0, x).sum(dim, keepdim, dtype=dtype)


@made_of(aten.aminmax)
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = () if dim is None or not x.dim() else (dim,)
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


@made_of(aten.var_mean)
def var_mean(
    x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    dims = list(range(x.dim())) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    centre = x.mean(dims, keepdim=True) if x.dim() else x
    off = x - centre
    less = int(unbiased) if correction is None else correction
    count = math.prod([x.shape[d] for d in dims] if x.dim() else [])
    rest = max(count - less, 0) if isinstance(less, int) else max(int(count) - less, 0)
    total = (off * off).sum(dims, keepdim) if x.dim() else off * off
    return total / rest, centre if keepdim or not x.dim() else x.mean(dims)


@made_of(aten.var)
def var(x: Tensor, *args: Any, **named: Any) -> Tensor:
    return var_mean(x, *args, **named)[0]


@made_of(aten.std_mean)
def std_mean(x: Tensor, *args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    spread, centre = var_mean(x, *args, **named)
    return spread.sqrt(), centre


@made_of(aten.linalg_vector_norm)
def linalg_vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    if not x.dim():
        return abs(x) if ord != 0 else (x != 0).to(x.dtype)
    dims = list(range(x.dim())) if dim is None or dim == [] else dim
    return aten.linalg_vector_norm.default(x, ord, dims, keepdim)


@made_of(aten.dist)
def dist(x: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    return flambeau.linalg.vector_norm(x - other, p)


@made_of(aten.addmm)
def addmm(x: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if left.shape[1]:
        return aten.addmm.default(x, left, right, beta=beta, alpha=alpha)
    return (x * beta).expand(left.shape[0], right.shape[1]).clone()  # the product is zero, which engines do not compute


def _add_scaled(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """Return x * beta + product * alpha; with beta = 0, x is ignored even if it is not finite."""
    product = product if alpha == 1 else product * alpha
    return product + (x if beta == 1 else x * beta) if beta else product


@made_of(aten.addmv, aten.baddbmm)
def baddbmm(x: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _add_scaled(x, left @ right, beta, alpha)


@made_of(aten.addbmm)
def addbmm(x: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _add_scaled(x, (left @ right).sum(0), beta, alpha)


@made_of(aten.cdist, aten._cdist_forward)
def cdist(x: Tensor, other: Tensor, p: float = 2, compute_mode: Any = None) -> Tensor:
    return flambeau.linalg.vector_norm(x.unsqueeze(-2) - other.unsqueeze(-3), p, -1)


@made_of(aten.trace)
def trace(x: Tensor) -> Tensor:
    return x.diagonal().sum()


def _arg_extreme(best: Any, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    return best(x, None).reshape([1] * x.dim()) if keepdim and dim is None else best(x, dim, keepdim)


@made_of(aten.argmax)
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _arg_extreme(aten.argmax.default, x, dim, keepdim)


@made_of(aten.argmin)
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _arg_extreme(aten.argmin.default, x, dim, keepdim)


@made_of(aten.topk)
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.dim():
        return x.clone(), flambeau.zeros((), dtype=flambeau.int64)
    return aten.topk.default(x, k, dim, largest, sorted)


@made_of(aten.sort)
def sort(x: Tensor, *args: Any, stable: Any = None, **named: Any) -> tuple[Tensor, Tensor]:
    return _sort(x, *args, **named)


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    numbers = x.to(flambeau.int32) if x.dtype == flambeau.bool else x
    values, places = flambeau.topk(numbers, x.shape[dim] if x.dim() else 1, dim, descending)
    return values if values.dtype is x.dtype else values.to(x.dtype), places


@made_of(aten.kthvalue)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    if not x.dim():
        return topk(x, 1)
    found = [part.narrow(dim, k - 1, 1) for part in flambeau.topk(x, k, dim, largest=False)]
    return tuple(part if keepdim else part.squeeze(dim) for part in found)


@made_of(aten.median)
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is None:
        return kthvalue(x.reshape(-1), (x.numel() + 1) // 2, 0)[0]
    return kthvalue(x, ((x.shape[dim] if x.dim() else 1) + 1) // 2, dim, keepdim)


# -- places -------------------------------------------------------------------------------------------------------------------------


@made_of(aten.argwhere)
def argwhere(x: Tensor) -> Tensor:
    return x.nonzero()


@made_of(aten.nonzero)
def nonzero(x: Tensor) -> Tensor:
    return aten.nonzero.default(x) if x.dim() else aten.nonzero.default(x.reshape(1))[:, :0]


@made_of(aten.nonzero_static)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    rest = flambeau.full((size, x.dim()), fill_value, dtype=flambeau.int64)
    return flambeau.cat([x.nonzero(), rest])[:size]


@made_of(aten.masked_select)
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    x, mask = flambeau.broadcast_tensors(x, mask)
    return aten.index.Tensor(x.reshape(-1), [mask.reshape(-1)])


@made_of(aten.masked_scatter)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    return aten.masked_scatter.default(*flambeau.broadcast_tensors(x, mask), source)


@made_of(aten.take)
def take(x: Tensor, index: Tensor) -> Tensor:
    return aten.index.Tensor(x.reshape(-1), [index])


@made_of(aten.index_put)
def index_put(x: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    filled = _is_mask_of(x, indices) and not values.dim() and not accumulate
    return aten.index_put.default(x, indices if filled else _without_masks(indices), values, accumulate)


@made_of(aten.index)
def index(x: Tensor, indices: Any) -> Tensor:
    return aten.index.Tensor(x, indices if _is_mask_of(x, indices) else _without_masks(indices))


_MASKS = (flambeau.bool, flambeau.uint8)


def _is_mask_of(x: Tensor, indices: Any) -> bool:
    """Return whether indices are one mask over all elements."""
    return len(indices) == 1 and indices[0].dtype in _MASKS and indices[0].dim() == x.dim()


def _without_masks(indices: Any) -> list[Tensor | None]:
    """Return indices of int64, with the positions of the true elements in place of masks."""
    found: list[Tensor | None] = []
    for i in indices:
        if i is not None and i.dtype in _MASKS:
            found += i.nonzero().unbind(1)
        else:
            found.append(None if i is None else i.to(flambeau.int64))
    return found


@made_of(aten.put)
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = aten.index_put.default(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _scatter_at(x: Tensor, dim: int, index: Tensor, values: Tensor, accumulate: bool = False) -> Tensor:
    """Return x with `values` written (or added) at the positions `index` along a dimension."""
    if not x.dim():
        return _scatter_at(x.reshape(1), 0, index, values, accumulate).reshape(())
    places = [*[None] * (dim % x.dim()), index.reshape(-1)]
    return aten.index_put.default(x, places, values, accumulate)


@made_of(aten.index_fill)
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    filling = value if isinstance(value, Tensor) else flambeau.full((), value, dtype=x.dtype)
    return _scatter_at(x, dim, index, filling)


@made_of(aten.index_copy)
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scatter_at(x, dim, index, source)


@made_of(aten.index_add)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    return _scatter_at(x, dim, index, source if alpha == 1 else source * alpha, accumulate=True)


@made_of(aten.scatter_reduce)
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if reduce != "mean":
        return aten.scatter_reduce.two(x, dim, index, src, reduce, include_self=include_self)
    total = flambeau.scatter_reduce(x, dim, index, src, "sum", include_self=include_self)
    own = flambeau.full_like(x, int(include_self))
    count = flambeau.scatter_add(own, dim, index, flambeau.ones_like(src)).clamp_min(1)
    return flambeau.div(total, count, rounding_mode=None if x.is_floating_point() else "floor")


@made_of(aten.isin)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    elements, among = (flambeau.as_tensor(given) for given in (elements, test_elements))
    found = (elements.unsqueeze(-1) == among.reshape(-1)).any(-1)
    return found.logical_not() if invert else found


@made_of(aten.searchsorted)
def searchsorted(
    edges: Tensor, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Tensor:  # fmt: skip
    edges = edges if sorter is None else edges.gather(-1, sorter)
    edges = edges.unsqueeze(-2) if edges.dim() > 1 else edges  # each sequence beside its own values
    values = values.unsqueeze(-1) if isinstance(values, Tensor) else values  # beside all edges
    below = edges <= values if right or side == "right" else edges < values
    return below.sum(-1, dtype=flambeau.int32 if out_int32 else flambeau.int64)


@made_of(aten.bucketize)
def bucketize(values: Any, edges: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return searchsorted(edges, values, out_int32=out_int32, right=right)


@made_of(aten.embedding_bag)
def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    places = flambeau.arange(indices.shape[0])
    bag = (places.unsqueeze(1) >= starts).sum(1) - 1  # of each index
    inside = flambeau.arange(starts.shape[0]).unsqueeze(1) == bag
    if padding_idx is not None:
        inside = inside & (indices != padding_idx % weight.shape[0])
    count, rows, share = inside.sum(1), weight.index_select(0, indices), inside.to(weight.dtype)
    if mode == 2:
        low = flambeau.where(inside.unsqueeze(2), rows, -math.inf)
        most, at = low.max(1)
        return flambeau.where(most.isinf(), 0, most), bag, count, aten.index.Tensor(indices, [at])
    made = share @ (rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(1))
    made = made / count.clamp_min(1).unsqueeze(1) if mode == 1 else made
    return made, bag, count, flambeau.zeros_like(count)


# -- shapes -------------------------------------------------------------------------------------------------------------------------


@made_of(aten.rot90)
def rot90(x: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    a, b = dims
    turned = (x.clone, lambda: x.flip(b).transpose(a, b), lambda: x.flip(a, b), lambda: x.transpose(a, b).flip(b))
    return turned[k % 4]()


@made_of(aten.diag_embed)
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    n = x.shape[-1] + abs(offset)
    wide = F.pad(x, (max(offset, 0), max(-offset, 0)))  # each element in its column
    line = flambeau.arange(n)
    made = flambeau.where(line == line.unsqueeze(1) + offset, wide.unsqueeze(-2), 0)
    return made.movedim((-2, -1), (dim1, dim2))


@made_of(aten.channel_shuffle)
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    return x.unflatten(1, (groups, x.shape[1] // groups)).transpose(1, 2).reshape(x.shape)


@made_of(aten.repeat_interleave)
def repeat_interleave(
    x: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    if repeats is None:
        return aten.repeat_interleave.Tensor(x)
    x, dim = (x.reshape(-1), 0) if dim is None else (x, dim % x.dim())
    if isinstance(repeats, Tensor):
        return x.index_select(dim, aten.repeat_interleave.Tensor(repeats.expand(x.shape[dim])))
    return x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :]).flatten(dim, dim + 1)


@made_of(aten.narrow_copy)
def narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(dim, start, length).clone()


@made_of(aten.chunk, aten.unsafe_chunk)
def chunk(x: Tensor, chunks: int, dim: int = 0) -> Any:
    return x.split(max(-(-x.shape[dim] // chunks), 1), dim)


@made_of(aten.tril, before=14)
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    rows, columns = (flambeau.arange(n) for n in x.shape[-2:])
    return flambeau.where(columns <= rows.unsqueeze(1) + diagonal, x, flambeau.zeros((), dtype=x.dtype))


@made_of(aten.triu, before=14)
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    rows, columns = (flambeau.arange(n) for n in x.shape[-2:])
    return flambeau.where(columns >= rows.unsqueeze(1) + diagonal, x, flambeau.zeros((), dtype=x.dtype))


@made_of(aten.pad)
def pad(x: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    pads = [*pad]
    for i in range(0, len(pads), 2):  # engines take negative pads for constants only, if at all
        before, after, dim = pads[i], pads[i + 1], x.dim() - 1 - i // 2
        if before >= 0 and after >= 0:
            continue
        size = x.shape[dim]
        if mode == "replicate":  # beyond the border is the nearest element, also where the rest is dropped
            x = x.index_select(dim, (flambeau.arange(size + before + after) - before).clamp(0, size - 1))
            pads[i : i + 2] = [0, 0]
        else:
            start = max(-before, 0)
            x = x.narrow(dim, start, size - start - max(-after, 0))
            pads[i : i + 2] = [max(before, 0), max(after, 0)]
    if not any(pads):
        return x.clone()
    if mode != "circular":
        return aten.pad.default(x, pads, mode, value)
    for i in range(0, len(pads), 2):
        before, after, dim = pads[i], pads[i + 1], x.dim() - 1 - i // 2
        size = x.shape[dim]
        x = flambeau.cat([x.narrow(dim, size - before, before), x, x.narrow(dim, 0, after)], dim)
    return x
