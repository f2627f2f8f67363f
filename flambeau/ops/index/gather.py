"""Moving elements along a dimension by index: gather, scatter, index_select, index_add and relatives."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ...core import dtype as dt
from ...core.layout import broadcast_shapes, wrap_dim
from ...core.tensor import Tensor, numel_of
from ...kernels.library import index as kernels
from ..machinery.along import split_at
from ..machinery.declare import composite, effect, internal, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense, like_first
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from .bad_index import bad_index


def _check_index(name: str, index: Tensor) -> None:
    if index.dtype not in (dt.int64, dt.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")


def _check_bounds(index: Tensor, dim: int, size: int) -> None:
    bad = first_bad_index(index, size)
    if bad is not None:
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {size}")


def first_bad_index(index: Tensor, size: int) -> int | None:
    """Return an index outside 0 ... size - 1, or None. For kernels."""
    where = index.device
    kernels.out_of_bounds(bad_index.on(where), dense(index), numel_of(index.shape), size)
    return bad_index.taken(where)


def _narrowed(t: Tensor, shape: tuple[int, ...], dim: int) -> Tensor:
    """Return t narrowed to `shape` in every dimension but `dim`."""
    for d, (size, wanted) in enumerate(zip(t.shape, shape)):
        if size != wanted and d != dim:
            t = t.narrow(d, 0, wanted)
    return t


def _leading(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the leading part of t that has this shape."""
    return _narrowed(t, shape, -1) if t.shape else t


def _as_words(t: Tensor) -> Tensor:
    """Return complex numbers of 8 bytes as one word, for kernels that only move them."""
    return t.view(dt.int64)


# -- gather -----------------------------------------------------------------------------------------------------------


def _check_gather(name: str, input: Tensor, dim: int, index: Tensor) -> int:
    d = wrap_dim(dim, len(input.shape))
    _check_index(name, index)
    if max(len(index.shape), 1) != max(len(input.shape), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for i, n in enumerate(index.shape):
        if i != d and n > input.shape[i]:
            raise RuntimeError(
                f"Size does not match at dimension {i} expected index {list(index.shape)} to be no larger than self"
                f" {list(input.shape)} apart from dimension {d}"
            )
    return d


@primitive(
    grads={
        "input": lambda g, input_shape, dim, index: (
            g.new_zeros(input_shape).scatter_add(dim, index, g) if input_shape else g.reshape(-1).sum(0, dtype=g.dtype)
        )
    },
    out="disjoint",
    batching="along",
    sharding="gather",
)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> NewTensor:
    """out[i][j] = input[index[i][j]][j] (for dim 0)"""
    if 0 in index.shape:
        wrap_dim(dim, len(input.shape))
    else:
        _check_gather("gather", input, dim, index)
    return index.shape, input.dtype, input.device


@gather.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> None:
    d = dim if dim >= 0 or not input.shape else dim + len(input.shape)
    source = dense(_narrowed(input, index.shape, d))
    outer, picked, inner = split_at(index.shape, d)
    size = source.shape[d] if source.shape else 1
    if source.dtype is dt.complex64:
        out, source = _as_words(out), _as_words(source)
    kernels.gather(out, source, dense(index), bad_index.on(out.device, "gather"), outer, size, picked, inner)
    bad = bad_index.taken(out.device)
    if bad is not None:
        raise RuntimeError(f"index {bad} is out of bounds for dimension {d} with size {size}")


@composite(out="exact")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements at `indices` along a dimension, as `gather`, with the other dimensions broadcast."""
    if indices.dtype is not dt.int64:
        raise RuntimeError(
            f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype.scalar_type}"
        )
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if len(input.shape) != len(indices.shape):
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got"
            f" {len(input.shape)} dimensions for input, and {len(indices.shape)} dimensions for indices"
        )
    d = wrap_dim(dim, len(input.shape))
    others = broadcast_shapes(
        tuple(1 if i == d else n for i, n in enumerate(input.shape)),
        tuple(1 if i == d else n for i, n in enumerate(indices.shape)),
    )
    full = [input.shape[d] if i == d else n for i, n in enumerate(others)]
    wanted = [indices.shape[d] if i == d else n for i, n in enumerate(others)]
    wrapped = indices.where(indices >= 0, indices + input.shape[d])
    return input.expand(full).gather(d, wrapped.expand(wanted))


def _index_select_backward(g: Tensor, input_shape: Any, dim: int, index: Tensor) -> Tensor:
    return g.new_zeros(input_shape).index_add(dim, index, g)


@primitive(grads={"input": _index_select_backward}, out="disjoint", runs_empty=True, sharding="index_select")
def index_select(input: Tensor, dim: int, index: Tensor) -> NewTensor:
    """The given indices of one dimension, in their order."""
    d = wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    _check_index("index_select", index)
    count = index.shape[0] if index.shape else 1
    if not input.shape:
        if count != 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {count} value(s)")
        return input.shape, input.dtype, input.device
    if not input.shape[d] and count:
        raise RuntimeError("index_select(): self indexing axis dim should be positive")
    return (*input.shape[:d], count, *input.shape[d + 1 :]), input.dtype, input.device


@index_select.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor) -> None:
    d = dim if dim >= 0 or not input.shape else dim + len(input.shape)
    outer, size, inner = split_at(input.shape, d)
    count = out.shape[d] if out.shape else 1
    if outer == 1 and inner:  # rows are shared out among the threads, and bad indices skipped
        where = out.device
        kernels.embedding(out, dense(input), dense(index), bad_index.on(where, "index_select"), count, size, inner)
        _refuse(bad_index.taken(where), d, size)
        return
    _refuse(first_bad_index(index, size), d, size)
    if 0 not in out.shape:
        kernels.select_slices(out, dense(input), dense(index), outer, size, count, inner)


def _refuse(bad: int | None, dim: int, size: int) -> None:
    if bad is not None:
        raise IndexError(f"index out of range in self: {bad} for dimension {dim} with size {size}")


# -- scatter ----------------------------------------------------------------------------------------------------------


def _check_scatter(name: str, input: Tensor, dim: int, index: Tensor, src: Tensor | None) -> int:
    d = wrap_dim(dim, len(input.shape))
    if index.numel():
        _check_index(name, index)
    if src is not None and src.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    if index.numel() == 0:
        return d
    for like, t in (("self", input), ("src", src)):
        if t is not None and max(len(index.shape), 1) != max(len(t.shape), 1):
            raise RuntimeError(f"Index tensor must have the same number of dimensions as {like} tensor")
    for i, n in enumerate(index.shape):
        if (i != d and n > input.shape[i]) or (src is not None and src.shape and n > src.shape[i]):
            like = f" and to be no larger size than src {list(src.shape)}" if src is not None else ""
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {d}{like}"
            )
    return d


_COMPLEX_REDUCE = ("none", "add", "multiply")  # complex numbers have no order


def scatter_raw(out: Tensor, dim: int, index: Tensor, src: Tensor | None, value: float, reduce: str) -> None:
    """Write src (or value) into `out` at index along dim (not negative); bad indices raise. For kernels."""
    if 0 in index.shape:
        return
    size = out.shape[dim] if out.shape else 1
    _check_bounds(index, dim, size)
    if out.dtype.is_complex and reduce not in _COMPLEX_REDUCE:
        raise unsupported(f"scatter_gather_tensor_cpu_reduce_{reduce}", out.dtype)
    if out.dtype is dt.bool_:  # as bytes of 0 and 1: or is their maximum, and their minimum
        reduce = {"add": "amax", "multiply": "amin"}.get(reduce, reduce)
        out, src = out.view(dt.uint8), None if src is None else src.view(dt.uint8)
    part = _narrowed(out, index.shape, dim)
    whole = part.contiguous()
    source = None if src is None else dense(_leading(src, index.shape))
    outer, picked, inner = split_at(index.shape, dim)
    kernels.scatter(
        whole, dense(index), source, value, bad_index.on(out.device), outer, size, picked, inner, reduce=reduce
    )
    if whole is not part:
        raw_copy(part, whole)


@effect(runs_empty=True, batching="each")
def scatter_into_(out: Tensor, dim: int, index: Tensor, src: Tensor | None, value: float, reduce: str) -> Tensor:
    """out[index[i][j]][j] (op)= src[i][j], or the value if there is no src (for dim 0)."""


scatter_into_.on("any")(scatter_raw)


def _scatter_input_grad(g: Tensor, dim: int, index: Tensor) -> Tensor:
    return g.scatter(dim, index, 0)


def _src_grad(g: Tensor, dim: int, index: Tensor, src_shape: Any) -> Tensor:
    return _pad_to(g.gather(dim, index), src_shape)


def _pad_to(share: Tensor, shape: Any) -> Tensor:
    """Return a gradient for the used part of a source, with zeros elsewhere."""
    for i, n in enumerate(shape):
        if share.shape[i] != n:
            full = [n if d == i else m for d, m in enumerate(share.shape)]
            share = share.new_zeros(full).slice_scatter(share, i, 0, share.shape[i])
    return share


def _scatter_src_layout(input: Tensor, dim: int, index: Tensor, src: Tensor) -> tuple[Any, ...]:
    _check_scatter("scatter", input, dim, index, src)
    return like_first(input)


@internal(
    layout=_scatter_src_layout,
    grads={"input": _scatter_input_grad, "src": _src_grad},
    quirks=Quirks(label="ScatterBackward0"),
    runs_empty=True,
    batching="along",
)
def scatter_src(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of input with out[index[i][j]][j] = src[i][j] (for dim 0)."""


@scatter_src.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
    raw_copy(out, input)
    scatter_raw(out, wrap_dim(dim, len(input.shape)), index, src, 0.0, "none")


@internal(
    grads={"input": _scatter_input_grad}, quirks=Quirks(label="ScatterBackward1"), runs_empty=True, batching="along"
)
def scatter_value(input: Tensor, dim: int, index: Tensor, value: Any) -> NewTensor:
    """A copy of input with out[index[i][j]][j] = value (for dim 0)."""
    _check_scatter("scatter", input, dim, index, None)
    return like_first(input)


@scatter_value.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, value: Any) -> None:
    raw_copy(out, input)
    scatter_raw(out, wrap_dim(dim, len(input.shape)), index, *_number_source(out, index, value), "none")


def _number_source(out: Tensor, index: Tensor, value: Any) -> tuple[Tensor | None, float]:
    """Return a number in the form scatter takes: by itself, or as a tensor if it must keep all its digits."""
    if out.dtype.is_floating_point and isinstance(value, (int, float)):
        return None, float(value)
    value = bool(value) if out.dtype is dt.bool_ else value
    return index.new_full(index.shape, value, dtype=out.dtype), 0.0


def _scatter_into(
    out: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> bool:
    source = value if src is None else src
    if source is None or reduce is not None:
        return False
    tensor = source if isinstance(source, Tensor) else None
    d = _check_scatter("scatter", out, dim, index, tensor)
    given = (tensor, 0.0) if tensor is not None else _number_source(out, index, source)
    scatter_into_(out, d, index, *given, "none")
    return True


@composite(inplace=_scatter_into, out="exact", batching="along")
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """out[index[i][j]][j] = src[i][j] (for dim 0); src may be a number."""
    source = value if src is None else src
    if source is None:
        raise TypeError("scatter() received an invalid combination of arguments: src or value is needed")
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError("reduce argument must be either add or multiply.")
        if not isinstance(source, Tensor):
            source = index.new_full(index.shape, source, dtype=input.dtype)
        return _scatter_legacy(input, dim, index, source, reduce)
    if isinstance(source, Tensor):
        return scatter_src(input, dim, index, source)
    return scatter_value(input, dim, index, source)


@internal(grads={("input", "src"): unknown_derivative("scatter")}, runs_empty=True, batching="along")
def _scatter_legacy(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> NewTensor:
    """A copy of input with src added to it, or multiplied with it, at index."""
    return _scatter_src_layout(input, dim, index, src)


@_scatter_legacy.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> None:
    raw_copy(out, input)
    scatter_raw(out, wrap_dim(dim, len(input.shape)), index, src, 0.0, reduce)


def _scatter_add_into(out: Tensor, dim: int, index: Tensor, src: Tensor) -> bool:
    d = _check_scatter("scatter_add", out, dim, index, src)
    scatter_into_(out, d, index, src, 0.0, "add")
    return True


@primitive(
    grads={"input": lambda g: g, "src": _src_grad},
    inplace=_scatter_add_into,
    out="exact",
    runs_empty=True,
    batching="along",
    autocast_cuda="widest",
)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> NewTensor:
    """Add values at the places that an index names, summing those with the same place."""
    _check_scatter("scatter_add", input, dim, index, src)
    return like_first(input)


@scatter_add.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
    raw_copy(out, input)
    scatter_raw(out, wrap_dim(dim, len(input.shape)), index, src, 0.0, "add")


# -- scatter_reduce and index_reduce ------------------------------------------------------------------------------------

_REDUCTIONS = {"sum": "add", "prod": "multiply", "amax": "amax", "amin": "amin", "mean": "add"}


def _identity(reduce: str, d: dt.dtype) -> Any:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if d.is_floating_point:
        return float("-inf") if reduce == "amax" else float("inf")
    if d is dt.bool_:
        return reduce == "amin"
    info = np.iinfo(d.numpy)
    return int(info.min if reduce == "amax" else info.max)


def scatter_reduce_grads(
    g: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool, out: Tensor
) -> tuple[Any, ...]:
    """Return the gradients of input and src, by the kind of reduction."""
    if reduce == "sum":
        grad_input, grad_src = g, g.gather(dim, index)
    elif reduce == "prod":
        grad_input, grad_src = _product_grads(g, input, dim, index, src, include_self, out)
    elif reduce == "mean":
        count = input.new_full(input.shape, float(include_self)).scatter_add(dim, index, input.new_ones(index.shape))
        grad_input = g / count.masked_fill(count == 0, 1)
        grad_src = grad_input.gather(dim, index)
    else:
        own = (input == out).to(g.dtype)
        winner = (_leading(src, index.shape) == out.gather(dim, index)).to(g.dtype)
        share = g / own.scatter_add(
            dim, index, winner
        )  # PyTorch counts the input's own value even if it is not included
        grad_input, grad_src = own * share, winner * share.gather(dim, index)
    if not include_self:
        grad_input = grad_input.scatter(dim, index, 0)
    return grad_input, _pad_to(grad_src, src.shape)


def _product_grads(
    g: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool, out: Tensor
) -> tuple[Any, ...]:
    factor = input.masked_fill(input == 0, 1)
    grad_input = g * factor.scatter_reduce(dim, index, src, "prod", include_self=include_self) / factor
    used = _leading(src, index.shape)
    is_zero = used == 0
    zeros = input.new_zeros(input.shape).scatter_add(dim, index, is_zero.to(g.dtype))
    # Where src holds the only zero, its share is the product of everything else.
    only = is_zero & (zeros.gather(dim, index) == 1)
    rest = input.scatter_reduce(dim, index, used.masked_fill(only, 1), "prod", include_self=include_self)
    usual = (g * out).gather(dim, index) / used.masked_fill(is_zero, 1)
    grad_src = (g * rest).gather(dim, index).where(only, usual)
    if grad_src.requires_grad and (zeros > 1).any():
        grad_src = _several_zeros(grad_src)
    return grad_input, grad_src


def _refuse_second(g: Tensor) -> NoReturn:
    raise RuntimeError(
        "scatter_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered to the same position in self"
    )


@internal(layout=like_first, grads={"input": _refuse_second}, quirks=Quirks(label="Error"), batching="each")
def _several_zeros(input: Tensor) -> Tensor:
    """Return input as an operand whose derivative raises: two zeros in one product have no formula above."""


@_several_zeros.on("any")
def _(out: Tensor, input: Tensor) -> None:
    raw_copy(out, input)


@primitive(grads={("input", "src"): scatter_reduce_grads}, inplace=True, out="exact", runs_empty=True, batching="along")
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> NewTensor:
    """Combine the values of src with the same place in index: sum, prod, mean, amax or amin."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    _check_scatter("scatter_reduce", input, dim, index, src)
    if reduce == "mean" and input.dtype is dt.bool_:
        raise unsupported("scatter_reduce mean", dt.bool_)
    return like_first(input)


@scatter_reduce.on("any")
def _(
    out: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> None:
    raw_copy(out, input)
    reduce_raw(out, wrap_dim(dim, len(input.shape)), index, src, reduce, include_self)


def reduce_raw(out: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> None:
    """Combine src into `out`, which holds the input. For kernels."""
    if 0 in index.shape:
        return
    if not include_self:
        start = index.new_full(index.shape, _identity(reduce, out.dtype), dtype=out.dtype)
        scatter_raw(out, dim, index, start, 0.0, "none")
    scatter_raw(out, dim, index, src, 0.0, _REDUCTIONS[reduce])
    if reduce == "mean":
        count = out.new_full(out.shape, 1 if include_self else 0, dtype=dt.int64)
        scatter_raw(count, dim, index, index.new_full(index.shape, 1, dtype=dt.int64), 0.0, "add")
        count.clamp_(min=1)
        raw_copy(out, out / count if out.dtype.category >= 2 else out.div(count, rounding_mode="floor"))
