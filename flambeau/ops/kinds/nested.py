"""Nested tensors in the jagged layout: calls are made as the operator's record declares.

Pointwise operators run on the values, reductions and operators along a dimension on the values or, along the ragged one, on each row
separately. Operators that compute each row from itself (a linear layer, a norm) are declared in their records' `forms`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from ...core import dtype as dt
from ...core.held import HeldOperand
from ...core.jagged import NestedTensor, SymInt, new_jagged
from ...core.layout import wrap_dim
from ...core.pytree import tree_flatten, tree_map
from ...core.tensor import Tensor
from ..creation.construct import from_data
from ..machinery.record import Batched, Op, lookup
from ..shape.joining import cat, stack
from ..shape.reshape import view_shape
from . import call_by_record, deep_copy, dims_given, held_as, on_values, relabelled, sizes_given, value_of, written_by
from .jagged_rows import lengths_of, rows_of, without_gaps


def refuse(op: Op, why: str) -> NoReturn:
    """Raise PyTorch's error for calls that it does not have for nested tensors."""
    raise RuntimeError(f"{op.name}(): {why}")


def _refuse_ragged(op: Op, like: NestedTensor) -> NoReturn:
    """Refuse a call along the ragged dimension: an operator that is composed of this one may have a rule."""
    raise HeldOperand(like, f"{op.name}(): not supported for NestedTensor on ragged dim")


def joined(rows: list[Tensor], like: NestedTensor, op: Op) -> Any:
    """Return rows of unchanged lengths as a nested tensor with the ragged dimension of `like`."""
    at = like._ragged - 1
    if any(row.dim() <= at or row.shape[at] != n for row, n in zip(rows, lengths_of(like))):
        _refuse_ragged(op, like)
    return held_as(cat(rows, at), like._mold())


# -- how a call is made ----------------------------------------------------------------------------------------------------------------


def _elementwise(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    target = written_by(face, args, kwargs)
    if target is not None and not isinstance(target, NestedTensor):
        refuse(op, "a nested result cannot be written into a tensor that is not nested")

    def packed(x: Any) -> Any:
        if isinstance(x, SymInt):
            refuse(op, f"invalid argument {x}: the size of a ragged dimension is no number")
        if isinstance(x, NestedTensor):
            return _same(x, like, f"binary pointwise function {op.name}.Tensor")
        return _beside(x, like, op) if isinstance(x, Tensor) else x

    args, kwargs = tree_map(packed, (args, kwargs))
    return on_values(face, args, kwargs, lambda value: held_as(value, like._mold()))


def _sizes(t: Tensor) -> str:
    return f"({', '.join(map(str, t.shape))})"


def _beside(x: Tensor, like: NestedTensor, op: Op) -> Tensor:
    """Return a plain operand aligned with the values: repeated for the elements of each row, or without its padding."""
    n, at = len(like.shape), like._ragged
    if x.dim() < n:
        if x.dim() >= n - at and x.shape[at - n] != 1:
            refuse(op, f"cannot broadcast a tensor of shape {tuple(x.shape)} with {_sizes(like)}")
        return x
    if x.dim() > n or x.shape[0] not in (1, len(like)):
        refuse(op, f"cannot broadcast a tensor of shape {tuple(x.shape)} with {_sizes(like)}")
    lengths = lengths_of(like)
    if x.shape[0] == 1 and x.shape[at] == 1:
        return x.squeeze(0)
    rows = x.expand(len(like), *x.shape[1:]).unbind(0)
    if x.shape[at] == 1:
        return cat(
            [row.expand(*(k if d == at - 1 else -1 for d in range(n - 1))) for row, k in zip(rows, lengths)], at - 1
        )
    if x.shape[at] != max(lengths, default=0):
        refuse(op, f"cannot broadcast a tensor of shape {tuple(x.shape)} with {_sizes(like)}")
    return cat([row.narrow(at - 1, 0, k) for row, k in zip(rows, lengths)], at - 1)


def _inner_dims(
    op: Op, given: Any, like: NestedTensor, why: str = "not supported for NestedTensor on dim=0"
) -> list[int]:
    dims = [given] if isinstance(given, int) else list(given)
    found = [wrap_dim(d, len(like.shape)) for d in dims]
    if 0 in found and op.kind != "reduction":
        refuse(op, why)
    return found


def _had_gaps(like: NestedTensor) -> bool:
    """Return whether there were gaps between the rows: the ragged size is then that of their lengths, not of the offsets."""
    return like._symbol.node.source is not like._starts


def _reduced(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    try:
        bound = op.bind(args, kwargs)
    except TypeError:  # a part of an operator that takes more: that one may have a rule
        raise HeldOperand(like, f"aten.{op.name}.default: not implemented for nested tensors") from None
    options = {k: v for k, v in bound.items() if k not in ("input", "dim", "keepdim") and v is not None}
    dim, keepdim = bound.get("dim"), bool(bound.get("keepdim"))
    if dim is None or dim == () or dim == []:
        return face(value_of(like), **options)
    dims = _inner_dims(op, dim, like)
    ragged = like._ragged
    if ragged in dims and _had_gaps(like):
        refuse(op, "reducing across the ragged dimension is not supported for non-contiguous nested tensors with holes")
    if 0 in dims and ragged in dims:
        value = face(value_of(like), [d - 1 for d in dims if d], keepdim, **options)
        return value.unsqueeze(0) if keepdim else value
    if 0 in dims:
        refuse(
            op, "reducing along the batch dimension but not the ragged dimension is not supported for nested tensors"
        )
    if ragged not in dims:
        value = face(value_of(like), [d - 1 for d in dims] if len(dims) > 1 else dims[0] - 1, keepdim, **options)
        gone = 0 if keepdim else sum(d < ragged for d in dims)
        return tree_map(lambda v: _moved(v, like, ragged - gone), value)
    if len(dims) > 1:
        refuse(op, "reducing along a ragged and non-batch dimension is not supported for nested tensors")
    results = [face(row, ragged - 1, keepdim, **options) for row in rows_of(like)]
    if isinstance(results[0], Tensor):
        return stack(results)
    made: Any = type(results[0])
    return made([stack(list(each)) for each in zip(*results)])


def _moved(value: Tensor, like: NestedTensor, ragged: int) -> Any:
    """Return a nested tensor of the same rows with another ragged dimension."""
    mold: Any = like._mold()
    return held_as(value, functools.partial(mold, ragged=ragged))


def _along(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    """Run an operator along one dimension: on the values, or along the ragged dimension on each row."""
    bound = op.bind(args, kwargs)
    names = op.batching.dims if isinstance(op.batching, Batched) else ("dim",)
    if any(bound.get(name, 0) is None for name in names):
        raise HeldOperand(like, f"{op.name}(): not supported for NestedTensor without a dimension")
    why = "not supported when reducing across the batch dimension for NestedTensor"
    at = {name: _inner_dims(op, bound[name], like, why) for name in names if name in bound}
    if any(like._ragged in dims for dims in at.values()) and (like._ragged > 1 or _had_gaps(like)):
        why = "along the ragged dimension for ragged_idx > 1" if like._ragged > 1 else "across the ragged dimension"
        refuse(
            op,
            f"not supported {'when' if like._ragged > 1 else 'where lengths is not None if'} reducing {why} for NestedTensor",
        )
    inner = {
        **bound,
        **{name: dims[0] - 1 if isinstance(bound[name], int) else [d - 1 for d in dims] for name, dims in at.items()},
    }
    if not any(like._ragged in dims for dims in at.values()):
        inner = tree_map(lambda x: value_of(_same(x, like, op.name)) if isinstance(x, NestedTensor) else x, inner)
        lost = _dimensions_lost(inner, like, at)
        return tree_map(
            lambda v: _moved(v, like, like._ragged - lost(v)) if isinstance(v, Tensor) else v, face(**inner)
        )
    if sum(isinstance(x, Tensor) for x in tree_flatten(inner)[0]) > 1:
        _refuse_ragged(op, like)
    rows = [face(**tree_map(lambda x, row=row: row if x is like else x, inner)) for row in rows_of(like)]
    if not all(isinstance(row, Tensor) for row in rows):
        _refuse_ragged(op, like)
    return joined(rows, like, op)


def _dimensions_lost(inner: dict[str, Any], like: NestedTensor, at: dict[str, list[int]]) -> Callable[[Tensor], int]:
    """Return a function that counts the dimensions before the ragged one that a result has lost."""
    before = any(d < like._ragged for dims in at.values() for d in dims)
    return lambda v: max(like._value.dim() - v.dim(), 0) if before else 0


def _same(x: NestedTensor, like: NestedTensor, what: str) -> NestedTensor:
    """Return `x`, whose rows must have the lengths of those of `like`."""
    if x._symbol != like._symbol or x._ragged != like._ragged:
        raise RuntimeError(f"cannot call {what} with inputs of shapes {_sizes(like)} and {_sizes(x)}")
    return x


def call(face: Any, args: tuple[Any, ...], kwargs: dict[str, Any], problem: HeldOperand) -> Any:
    """Run an operator on nested tensors, as its record allows; all but those that return rows read the rows without gaps."""
    if face.op.forms.get("nested") is not _unbound:
        written = written_by(face, args, kwargs)
        if isinstance(written, NestedTensor) and written._lengths is not None:
            refuse(face.op, "cannot write into a nested tensor with gaps between its rows: use contiguous()")
        args, kwargs = tree_map(without_gaps, (args, kwargs))
    return call_by_record(
        NestedTensor, face, args, kwargs, problem, elementwise=_elementwise, reduced=_reduced, along=_along
    )


# -- operators with a rule of their own ------------------------------------------------------------------------------------------------


def _each_element(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    """Run an operator that computes each element of a row from itself: the packed rows are a batch."""
    bound = op.bind(args, kwargs)
    others = [x for x in tree_flatten(list(bound.values())[1:])[0] if isinstance(x, NestedTensor)]
    if like._ragged != 1 or next(iter(bound.values())) is not like or others:
        refuse(op, "the input alone must be nested, with its ragged dimension next to the batch dimension")
    shape = bound.get("normalized_shape", ())
    if len(shape) >= like._value.dim():
        return _normalized(face, op, bound, like)
    return on_values(face, args, kwargs, lambda value: held_as(value, like._mold()))


def _normalized(face: Any, op: Op, bound: dict[str, Any], like: NestedTensor) -> Any:
    """Normalize each row separately, over all of its elements."""
    over = tuple(bound["normalized_shape"])
    if like._value.dim() == 1:
        refuse(op, "not supported for NestedTensor objects with 2 or fewer dimensions")
    if len(over) > like._value.dim():
        refuse(op, "not supported when normalizing over the batch dimension for NestedTensor")
    if over != tuple(like.shape[1:]):
        refuse(op, f"expected the last sizes of {_sizes(like)}, got {over}")
    if _had_gaps(like):
        refuse(op, "not supported where lengths is not None if operating on the ragged dimension for NestedTensor")
    name = next(iter(bound))
    return joined([face(**{**bound, name: row, "normalized_shape": row.shape}) for row in rows_of(like)], like, op)


def _flattened(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    start, end = (_inner_dims(op, bound[name], like)[0] for name in ("start_dim", "end_dim"))
    if start <= like._ragged <= end:
        _refuse_ragged(op, like)
    return _moved(
        face(value_of(like), start - 1, end - 1), like, like._ragged - (end - start if end < like._ragged else 0)
    )


def _expanded(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    sizes = sizes_given(args)
    at = like._ragged
    if len(sizes) != len(like.shape) or any(sizes[d] not in (-1, like.shape[d]) for d in (0, at)):
        refuse(op, f"cannot expand shape {_sizes(like)} to {list(sizes)}: batch and ragged dimension must stay")
    return held_as(value_of(like).expand(*(-1 if d == at else sizes[d] for d in range(1, len(sizes)))), like._mold())


def _chunked(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    if wrap_dim(bound["dim"], len(like.shape)) != 0:
        return _along(face, op, args, kwargs, like)
    found, value = [], value_of(like)
    for rows in from_data(list(range(len(like))), dt.int64, like.device).chunk(bound["chunks"]):
        starts = like._starts[int(rows[0]) : int(rows[-1]) + 2]
        part = value.narrow(like._ragged - 1, int(starts[0]), int(starts[-1] - starts[0]))
        found.append(held_as(part, functools.partial(new_jagged, starts=starts - starts[0], ragged=like._ragged)))
    return tuple(found)


def _transposed(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    a, b = (_inner_dims(op, bound[name], like)[0] for name in ("dim0", "dim1"))
    return _moved(face(value_of(like), a - 1, b - 1), like, {a: b, b: a}.get(like._ragged, like._ragged))


def _unsqueezed(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    at = wrap_dim(op.bind(args, kwargs)["dim"], len(like.shape) + 1)
    if at == 0:
        refuse(op, "not supported for NestedTensor on dim=0")
    return _moved(face(value_of(like), at - 1), like, like._ragged + (at <= like._ragged))


def _unbound(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    if wrap_dim(op.bind(args, kwargs)["dim"], len(like.shape)) != 0:
        refuse(op, "only supported for NestedTensor on dim=0")
    return tuple(rows_of(like))


def _selected(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    if wrap_dim(bound["dim"], len(like.shape)) == 0:
        return rows_of(like)[bound["index"]]
    return _along(face, op, args, kwargs, like)


def _viewed(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    sizes = sizes_given(args)
    at = like._ragged
    kept = zip(sizes[: at + 1], like.shape[: at + 1])
    if kwargs or len(sizes) <= at or any(new not in (-1, old) for new, old in kept):
        why = f"cannot view shape {_sizes(like)} as {list(sizes)}: sizes up to the ragged one must stay"
        raise HeldOperand(like, f"{op.name}(): {why}")
    return held_as(face(value_of(like), (*like._value.shape[:at], *sizes[at + 1 :])), like._mold())


def _squeezed(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    at = _inner_dims(op, dim, like)[0] if isinstance(dim, int) else refuse(op, "needs one dim= for a NestedTensor")
    if at == like._ragged:
        _refuse_ragged(op, like)
    if like.shape[at] != 1:
        return like
    return _moved(value_of(like).squeeze(at - 1), like, like._ragged - (at < like._ragged))


def _permuted(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    order = dims_given(args, kwargs, len(like.shape))
    rank = len(like.shape)
    if len(order) != rank:
        raise ValueError(
            f"permute(): number of dimensions in the tensor input ({rank}) does not match the length of the desired"
            f" ordering of dimensions ({len(order)})."
        )
    if len(set(order)) != rank:
        raise ValueError("permute(): duplicate dims are not allowed.")
    if order[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    return _moved(value_of(like).permute([d - 1 for d in order[1:]]), like, order.index(like._ragged))


def _concatenated(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    at = _inner_dims(op, bound["dim"], like)[0]
    if at == like._ragged or not all(isinstance(t, NestedTensor) for t in bound["tensors"]):
        refuse(op, "needs nested tensors and a dimension that is not ragged")
    return held_as(cat([value_of(_same(t, like, op.name)) for t in bound["tensors"]], at - 1), like._mold())


def _extreme(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    if dim is None:
        return face(value_of(like))
    if not isinstance(dim, int):
        refuse(op, "needs a dimension for a NestedTensor")
    at, keepdim = _inner_dims(op, dim, like)[0], bool(args[2] if len(args) > 2 else kwargs.get("keepdim", False))
    if at != like._ragged:
        found = face(value_of(like), at - 1, keepdim)
        return type(found)([_moved(v, like, like._ragged - (at < like._ragged and not keepdim)) for v in found])
    rows = [face(row, at - 1, keepdim) for row in rows_of(like)]
    return type(rows[0])([stack(list(each)) for each in zip(*rows)])


def _attention(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    names = ("query", "key", "value")
    if not all(isinstance(bound[name], NestedTensor) and bound[name]._ragged == like._ragged for name in names):
        refuse(op, "nested query, key and value with the same ragged dimension are needed")
    if bound["attn_mask"] is not None or bound["is_causal"]:
        refuse(op, "masks are not supported for nested tensors")
    if like._ragged != 2:  # many sequences of one length: each is an element of a batch
        same = {name: value_of(_same(bound.pop(name), like, op.name)) for name in names}
        return held_as(face(**same, **bound), like._mold())
    rows = zip(*(rows_of(bound.pop(name)) for name in names))
    return joined([face(*each, **bound) for each in rows], like, op)


def _copied(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    target, source = list(op.bind(args, kwargs).values())[:2]
    if isinstance(target, NestedTensor) and isinstance(source, NestedTensor):
        if target._value.shape != source._value.shape or lengths_of(target) != lengths_of(source):
            shapes = [_sizes(t) for t in (target, source)]
            refuse(op, f"expected compatible input and src shapes, but got: {shapes[0]} and {shapes[1]}")
        source = held_as(value_of(source), target._mold())
    return _elementwise(face, op, (target, source), {}, like)


def _product(face: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], like: NestedTensor) -> Any:
    a, b = list(op.bind(args, kwargs).values())[:2]
    if a is not like or isinstance(b, NestedTensor) or like._ragged != 1 or b.dim() not in (2, 3):
        shapes = [_sizes(t) for t in (a, b)]
        refuse(op, f"not supported between inputs of shapes {shapes[0]} and {shapes[1]}")
    if b.dim() == 2:
        return held_as(value_of(like).matmul(b), like._mold())
    if b.shape[0] != len(like):
        refuse(op, f"expected a batch of {len(like)}, got {b.shape[0]}")
    return joined([row.matmul(other) for row, other in zip(rows_of(like), b.unbind(0))], like, op)


for _rule, _keys in (
    (_each_element, ("nn.functional.linear", "nn.functional.layer_norm", "nn.functional.rms_norm", "nn.functional.embedding")),
    (_elementwise, ("nn.functional.dropout", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")),
    (_elementwise, ("masked_fill", "where", "fill_", "zero_")),
    (_copied, ("copy_",)),
    (_transposed, ("transpose",)),
    (_unsqueezed, ("unsqueeze",)),
    (_unbound, ("unbind",)),
    (_selected, ("select",)),
    (_attention, ("nn.functional.scaled_dot_product_attention",)),
    (_product, ("matmul", "bmm")),
    (_viewed, ("view", "reshape", view_shape.op.key)),
    (_flattened, ("flatten",)),
    (_expanded, ("expand",)),
    (_chunked, ("chunk",)),
    (_squeezed, ("squeeze",)),
    (_permuted, ("permute",)),
    (_concatenated, ("cat",)),
    (_extreme, ("max", "min")),
    (_elementwise, ("contiguous",)),
):  # fmt: skip
    for _key in _keys:
        lookup(_key).forms["nested"] = _rule


# -- methods ---------------------------------------------------------------------------------------------------------------------------


def to_padded_tensor(self: NestedTensor, padding: float, output_size: Any = None) -> Tensor:
    """The rows as one plain tensor, padded with `padding` to the longest row or to `output_size`."""
    at = self._ragged - 1
    longest = max(lengths_of(self), default=0) if output_size is None else output_size[self._ragged]
    short = [longest - n for n in lengths_of(self)]
    if any(n < 0 for n in short):
        raise RuntimeError("Value in output_size is less than NestedTensor padded size. Truncation is not supported.")

    def filled(row: Tensor, missing: int) -> Tensor:
        sizes = [missing if d == at else n for d, n in enumerate(row.shape)]
        return cat([row, row.new_full(sizes, padding)], at)

    return stack([filled(row, missing) for row, missing in zip(rows_of(self), short)])


def getitem(self: NestedTensor, key: Any) -> Any:
    """Return a row, or a part of one."""
    first, *rest = key if isinstance(key, tuple) else (key,)
    taken = [k for k in rest if k is not None]
    plain = all(type(k) is int or isinstance(k, slice) for k in taken)
    self = without_gaps(self) if first is Ellipsis else self
    if first is Ellipsis and plain and self._ragged == 1 and len(taken) <= len(self.shape) - 2:
        return held_as(value_of(self)[key], self._mold())
    if type(first) is not int:
        raise RuntimeError("slice(): not supported for NestedTensor on dim=0")
    row = rows_of(self)[first]
    return row[tuple(rest)] if rest else row


def _extreme_length(self: NestedTensor, of: Callable[[list[int]], int]) -> int:
    """Return the smallest or the largest length, which is cached."""
    name = f"{of.__name__}_seqlen"
    if name not in self._metadata_cache:
        self._metadata_cache[name] = of(lengths_of(self))
    return self._metadata_cache[name]


def _rebuilt(value: Tensor, starts: Tensor, ragged: int, requires_grad: bool, lengths: Tensor | None = None) -> Tensor:
    return new_jagged(value, starts, ragged, lengths=lengths).requires_grad_(requires_grad)


def reduce_ex(self: NestedTensor, protocol: int) -> tuple[Any, ...]:
    """Return the pickled form: the values and the offsets."""
    if self.grad_fn is not None:
        raise RuntimeError("cannot pickle a tensor that is not a graph leaf: use tensor.detach() first")
    return _rebuilt, (self._value, self._starts, self._ragged, self.requires_grad, self._lengths)


def _no_list(self: NestedTensor, *args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(".tolist() and .numpy() are not supported for tensor subclasses, got NestedTensor")


for _name, _method in {
    "to_padded_tensor": to_padded_tensor, "__getitem__": getitem, "__reduce_ex__": reduce_ex, "__deepcopy__": deep_copy, "values": lambda self: relabelled(value_of(self), "NestedGetValuesBackward0"),
    "__iter__": lambda self: iter(rows_of(self)), "_get_min_seqlen": functools.partialmethod(_extreme_length, min), "_get_max_seqlen": functools.partialmethod(_extreme_length, max),
    "_min_seqlen": property(lambda self: self._get_min_seqlen()), "_max_seqlen": property(lambda self: self._get_max_seqlen()),
    "tolist": _no_list, "numpy": _no_list, "__array__": _no_list,
}.items():  # fmt: skip
    setattr(NestedTensor, _name, _method)
