"""Nested tensors in the strided layout: what a call does follows from the operator's record.

Pointwise operators run on the buffer, reductions and operators along a dimension on each row by itself; what only gives another view
of the rows gives other places in the same buffer."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn

from ...core import dtype as dt
from ...core.held import HeldOperand
from ...core.layout import wrap_dim
from ...core.pytree import tree_flatten, tree_map
from ...core.strided_nested import Places, StridedNestedTensor, new_strided_nested, packed_places
from ...core.tensor import Tensor
from ..creation.construct import from_data
from ..machinery.record import Batched, Op, lookup
from ..shape.joining import cat, stack
from . import call_by_record, deep_copy, dims_given, held_as, hold, on_values, relabelled, value_of, written_by


def _at(value: Tensor, places: Places) -> list[Tensor]:
    """The rows at their places in a buffer: parts of it where they are stored one after the other, so that their gradients are put together once."""
    if places == packed_places(places.sizes):
        parts = value.split([math.prod(size) for size in places.sizes]) if places.sizes else ()
        return [part.view(size) for part, size in zip(parts, places.sizes)]
    return [value.as_strided(n, s, value._offset + start) for n, s, start in zip(*places[:3])]


def rows_of(t: StridedNestedTensor) -> list[Tensor]:
    """The rows as plain tensors, each with the history of `t`."""
    return _at(value_of(t), t._places)


def packed(rows: list[Tensor], label: str | None = None) -> Any:
    """A nested tensor of copies of the rows; its history shows `label`, or else the operator that made them."""
    if label is None and rows and rows[0].grad_fn is not None:
        label = rows[0].grad_fn.name()
    value = cat([row.reshape(-1) for row in rows]) if rows else from_data([], dt.float32, Tensor().device)
    return relabelled(hold(value, _mold_of([row.shape for row in rows])), label)


def _mold_of(sizes: Any) -> Callable[[Tensor], Any]:
    return functools.partial(new_strided_nested, places=packed_places(sizes))


def contiguous(t: StridedNestedTensor) -> Any:
    """The tensor itself if its rows are stored one after the other, else a copy for which that holds."""
    return t if t.is_contiguous() else packed(rows_of(t), "CloneBackward0")


def viewed(t: StridedNestedTensor, views: list[Tensor], label: str | None = None) -> Any:
    """The nested tensor of views of the rows of `t`, in the same buffer."""
    first = t._value._offset
    sizes, strides = tuple(tuple(v.shape) for v in views), tuple(v._strides for v in views)
    places = Places(sizes, strides, tuple(v._offset - first for v in views), t._places.capacity)
    return relabelled(hold(value_of(t), functools.partial(new_strided_nested, places=places)), label)


def _refuse(op: Op, like: StridedNestedTensor, why: str) -> NoReturn:
    """Refuse a call: an operator that is made of this one may have a rule."""
    raise HeldOperand(like, f"{op.name}(): {why}")


def _dims(op: Op, given: Any, like: StridedNestedTensor, extra: int = 0) -> list[int]:
    """The dimensions of the rows that `given` counts with the batch."""
    found = [wrap_dim(d, len(like.shape) + extra) - 1 for d in ([given] if isinstance(given, int) else given)]
    if -1 in found:
        _refuse(op, like, "not supported for a nested tensor along dimension 0, that of its rows")
    return found


# -- how a call is made ----------------------------------------------------------------------------------------------------------------


def _elementwise(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    target = written_by(face, args, kwargs)
    if target is not None and (not isinstance(target, StridedNestedTensor) or not target.is_contiguous()):
        _refuse(op, like, "a nested result can be written into a contiguous nested tensor only")

    def beside(x: Any) -> Any:
        if isinstance(x, StridedNestedTensor):
            if x._places.sizes != like._places.sizes:
                raise HeldOperand(like, f"{op.name} does not support broadcasting when given a NestedTensor")
            return contiguous(x)
        if not isinstance(x, Tensor) or not x.shape:
            return x
        kinds = ("non-nested", "nested") if x is args[0] else ("nested", "non-nested")
        raise HeldOperand(
            like, f"Expected both self and other to be nested, but got a {kinds[0]} self and {kinds[1]} other"
        )

    args, kwargs = tree_map(beside, (args, kwargs))
    return on_values(face, args, kwargs, lambda value: held_as(value, _mold_of(like._places.sizes)))


def _reduced(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    dim, keepdim = bound.pop("dim", None), bound.pop("keepdim", False)
    rest = {name: x for name, x in bound.items() if x is not like and x is not None}
    if dim is None or dim in ((), []):
        return face(contiguous(like).values(), **rest)
    dims = _dims(op, dim, like)
    if not keepdim:
        raise HeldOperand(like, "NestedTensor always requires keepdim=True for now.")
    return packed([face(row, dims if len(dims) > 1 else dims[0], True, **rest) for row in rows_of(like)])


def _along(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    """Run an operator along one dimension on each row."""
    bound, rule = op.bind(args, kwargs), op.batching
    names, extra = (rule.dims, rule.extra) if isinstance(rule, Batched) else (("dim",), 0)
    given = [name for name in names if bound.get(name) is not None]
    at = {name: _dims(op, bound[name], like, extra) for name in given}
    bound |= {name: dims[0] if isinstance(bound[name], int) else dims for name, dims in at.items()}
    if sum(isinstance(x, Tensor) for x in tree_flatten(bound)[0]) > 1:
        _refuse(op, like, "needs one nested tensor, and no others")
    return on_rows(lambda row: face(**{name: row if x is like else x for name, x in bound.items()}), like)


def on_rows(function: Callable[[Tensor], Any], like: StridedNestedTensor) -> Any:
    """Call a function on each row; where it gives views of them, the result is a view of the nested tensor."""
    bare = _at(like._value.detach(), like._places)
    first = tree_flatten(function(bare[0]))[0] if bare else []
    if not first or first[0]._storage is not like._storage:
        return _regrouped([function(row) for row in rows_of(like)], packed)
    history = function(rows_of(like)[0]) if like.requires_grad else None
    node = None if history is None else tree_flatten(history)[0][0].grad_fn
    label = None if node is None else f"{node.name().removesuffix('0')}AutogradNestedTensor0"
    return _regrouped([function(row) for row in bare], lambda views: viewed(like, views, label))


def _regrouped(results: list[Any], made: Callable[[list[Tensor]], Any]) -> Any:
    """A nested tensor of a result for each row, or a tuple of those where there are several."""
    if not results or isinstance(results[0], Tensor):
        return made(results)
    return tuple(made(list(each)) for each in zip(*results))


call = functools.partial(
    call_by_record, StridedNestedTensor, elementwise=_elementwise, reduced=_reduced, along=_along
)  # what an operator does with these tensors


# -- operators with a rule of their own ------------------------------------------------------------------------------------------------


def _each_element(
    face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor, width: int | None = None
) -> Any:
    """Run an operator that computes each element of a row from itself, where an element has the last `width` dimensions (of a norm, those
    that it is given): all rows of the buffer are one batch."""
    bound = op.bind(args, kwargs)
    name, *others = bound
    if bound[name] is not like or any(isinstance(bound[other], StridedNestedTensor) for other in others):
        _refuse(op, like, "the input alone must be nested")
    width = len(bound["normalized_shape"]) if width is None else width
    sizes = like._places.sizes
    inner = sizes[0][len(sizes[0]) - width :] if sizes else ()
    if any(size[len(size) - width :] != inner for size in sizes) or (sizes and width >= len(like.shape)):
        _refuse(op, like, f"the rows must have one size in their last {width} dimensions, got {list(sizes)}")
    value = face(**{**bound, name: contiguous(like).values().view(-1, *inner)})
    label = None if value.grad_fn is None else value.grad_fn.name()
    shapes = [(*size[: len(size) - width], *value.shape[1:]) for size in sizes]
    return relabelled(hold(value.reshape(-1), _mold_of(shapes)), label)


def _unbound(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    dim = wrap_dim(op.bind(args, kwargs)["dim"], len(like.shape))
    if dim != 0:
        raise HeldOperand(like, f"NestedTensor can only be unbound along dimension 0 got dimension {dim} instead.")
    return tuple(relabelled(row, "UnbindBackwardAutogradNestedTensor0") for row in rows_of(like))


def _selected(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    if wrap_dim(bound["dim"], len(like.shape)) == 0:
        return relabelled(rows_of(like)[bound["index"]], "SelectBackwardAutogradNestedTensor0")
    return _along(face, op, args, kwargs, like)


def _narrowed(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    dim, start, length = wrap_dim(bound["dim"], len(like.shape)), bound["start"], bound["length"]
    if dim != 0:
        raise HeldOperand(like, f"narrow(): only dim=0 supported for nested tensors, but got: {dim}")
    if not 0 <= start <= start + length <= len(like):
        raise HeldOperand(like, f"start ({start}) + length ({length}) exceeds dimension size ({len(like)}).")
    return viewed(like, _at(like._value.detach(), like._places)[start : start + length])


def _reshaped(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    """Give the rows other sizes: -1 keeps the size of each row in that dimension."""
    sizes = args[1:] if len(args) != 2 or isinstance(args[1], int) else tuple(args[1])
    if kwargs or not sizes or sizes[0] != len(like):
        raise HeldOperand(
            like, f"{op.name}: For now nested {op.name} cannot change or infer the implicit batch dimension"
        )
    old = like._places.sizes
    new = [[n if n != -1 else size[d] if d < len(size) else -1 for d, n in enumerate(sizes[1:])] for size in old]
    return _with_sizes(like if op.name == "view" else contiguous(like), new)


def _reshaped_as(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    first, other = op.bind(args, kwargs).values()
    if not all(isinstance(t, StridedNestedTensor) and len(t) == len(like) for t in (first, other)):
        _refuse(op, like, "needs two nested tensors of the same number of rows")
    return _with_sizes(contiguous(first), other._places.sizes)


def _with_sizes(like: StridedNestedTensor, sizes: Any) -> Any:
    views = [row.view(size) for row, size in zip(_at(like._value.detach(), like._places), sizes)]
    return viewed(like, views, "ViewBackwardAutogradNestedTensor0")


def _squeezed(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    given = args[1] if len(args) > 1 else kwargs.get("dim")
    if given is None:
        _refuse(op, like, "needs the dimension for a nested tensor")
    dims = _dims(op, given, like)
    return on_rows(lambda row: face(row, dims if len(dims) > 1 else dims[0]), like)


def _permuted(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    order = dims_given(args, kwargs, len(like.shape))
    if order[:1] != [0]:
        _refuse(op, like, f"the rows must stay in dimension 0 of a nested tensor, got the order {order}")
    return on_rows(lambda row: row.permute([d - 1 for d in order[1:]]), like)


def _concatenated(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    tensors, dim = bound["tensors"], wrap_dim(bound["dim"], len(like.shape))
    if not all(isinstance(t, StridedNestedTensor) and len(t.shape) == len(like.shape) for t in tensors):
        _refuse(op, like, "all tensors must be nested, with the same number of dimensions")
    if dim == 0:
        return packed([row for t in tensors for row in rows_of(t)], "CatBackward0")
    if any(len(t) != len(like) for t in tensors):
        _refuse(op, like, f"the tensors have {sorted({len(t) for t in tensors})} rows: these numbers must be equal")
    return packed([cat(list(rows), dim - 1) for rows in zip(*map(rows_of, tensors))])


def _product(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    sides = list(op.bind(args, kwargs).values())[:2]
    if not all(isinstance(t, StridedNestedTensor) for t in sides) and (op.name != "bmm" or sides[0] is not like):
        kinds = ["nested" if isinstance(t, StridedNestedTensor) else "non-nested" for t in sides]
        raise HeldOperand(like, f"Expected both to be nested, but got a {kinds[0]} self and {kinds[1]} other")
    counts = [len(t) for t in sides]
    if counts[0] != counts[1]:
        raise HeldOperand(
            like, f"Expected size for the 1st dimension of 2nd input tensor to be: {counts[0]} but got: {counts[1]}."
        )
    a, b = ([*t.unbind()] for t in sides)
    return packed([x.matmul(y) for x, y in zip(a, b)], f"{op.name.capitalize()}Backward0")


def _attention(face: Any, op: Op, args: tuple, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    operands = [bound.pop(name) for name in ("query", "key", "value")]
    if not all(isinstance(t, StridedNestedTensor) for t in operands) or bound["attn_mask"] is not None:
        _refuse(op, like, "query, key and value must be nested, without a mask")
    if bound["is_causal"]:
        _refuse(op, like, "nested tensors for query and key are not supported when is_causal=True")
    return packed([face(*each, **bound) for each in zip(*map(rows_of, operands))])


for _rule, _keys in (
    (_each_element, ("nn.functional.layer_norm", "nn.functional.rms_norm")),
    (functools.partial(_each_element, width=1), ("nn.functional.linear",)),
    (functools.partial(_each_element, width=0), ("nn.functional.embedding",)),
    (_elementwise, ("nn.functional.dropout", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like")),
    (_elementwise, ("masked_fill", "where", "copy_", "fill_", "zero_", "normal_", "uniform_")),
    (lambda face, op, args, kwargs, like: contiguous(like), ("contiguous",)),
    (_unbound, ("unbind",)),
    (_selected, ("select",)),
    (_narrowed, ("narrow",)),
    (_attention, ("nn.functional.scaled_dot_product_attention",)),
    (_product, ("matmul", "bmm")),
    (_reshaped, ("view", "reshape")),
    (_reshaped_as, ("view_as", "reshape_as")),
    (_squeezed, ("squeeze",)),
    (_permuted, ("permute",)),
    (_concatenated, ("cat",)),
):  # fmt: skip
    for _key in _keys:
        lookup(_key).forms["strided_nested"] = _rule


# -- methods ---------------------------------------------------------------------------------------------------------------------------


def to_padded_tensor(self: StridedNestedTensor, padding: float, output_size: Any = None) -> Tensor:
    """The rows as one plain tensor, filled up with `padding` to the largest size in each dimension or to `output_size`."""
    sizes = [max(n) for n in zip(*self._places.sizes)] if output_size is None else list(output_size[1:])
    if any(n > most for size in self._places.sizes for n, most in zip(size, sizes)):
        raise RuntimeError("Value in output_size is less than NestedTensor padded size. Truncation is not supported.")

    def filled(row: Tensor) -> Tensor:
        for d, n in enumerate(sizes):
            row = cat([row, row.new_full([*row.shape[:d], n - row.shape[d], *row.shape[d + 1 :]], padding)], d)
        return row

    return relabelled(stack([filled(row) for row in rows_of(self)]), "ToPaddedTensorBackward0")


def getitem(self: StridedNestedTensor, key: Any) -> Any:
    """Return a row, a part of one, or a part of each."""
    first, *rest = key if isinstance(key, tuple) else (key,)
    if type(first) is int:
        row = self.select(0, first)
        return row[tuple(rest)] if rest else row
    if first is Ellipsis and len(rest) < len(self.shape) - 1 and all(type(k) is int for k in rest):
        parts: Any = self
        for i in reversed(range(len(rest))):
            parts = parts.select(i - len(rest), rest[i])
        return parts
    raise RuntimeError("slices of a nested tensor are not supported: unbind() gives its rows")


def rearranged(self: StridedNestedTensor, mold: Any) -> StridedNestedTensor:
    """A gradient with its rows at the places that `mold` gives them."""
    places = mold.keywords["places"]
    if self._places == places:
        return self
    buffer = self._value.new_zeros(places.capacity)
    for row, size, strides, start in zip(rows_of(self), *places[:3]):
        buffer = buffer.as_strided_scatter(row, size, strides, start)
    return hold(buffer, mold)


def show(self: StridedNestedTensor, *, tensor_contents: Any = None) -> str:
    """The rows as they print, each on lines of its own."""
    rows = _at(self._value.detach(), self._places)
    texts = [repr(row.requires_grad_() if self.requires_grad else row).replace("\n", "\n  ") for row in rows]
    history = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ", requires_grad=True"
    body = ",\n".join(f"  {text}" for text in texts)
    return f"nested_tensor([\n{body}\n]{history if self.requires_grad else ''})"


def from_parts(value: Tensor, sizes: Tensor, strides: Tensor, starts: Tensor) -> Tensor:
    """A nested tensor over a buffer, whose rows have these sizes, strides and beginnings (a line for each row)."""
    if [t.dim() for t in (value, sizes, strides, starts)] != [1, 2, 2, 1] or not value.is_contiguous():
        raise RuntimeError(
            "a nested tensor needs a contiguous buffer, a line of sizes and of strides and a beginning for each row"
        )
    places = Places(
        tuple(map(tuple, sizes.tolist())), tuple(map(tuple, strides.tolist())), tuple(starts.tolist()), value.shape[0]
    )
    _check_places(places)
    return relabelled(
        hold(value, functools.partial(new_strided_nested, places=places)), "NestedViewFromBufferBackward0"
    )


def _check_places(places: Places) -> None:
    """Refuse rows that are not inside the buffer."""
    if len({len(part) for part in places[:3]}) != 1 or len({len(n) for part in places[:2] for n in part}) > 1:
        raise RuntimeError("a nested tensor needs as many strides and beginnings as sizes, all of one length")
    for size, strides, start in zip(*places[:3]):
        last = start + sum((n - 1) * s for n, s in zip(size, strides)) if all(size) else start - 1
        if min((start, *size, *strides)) < 0 or last >= places.capacity:
            raise RuntimeError(
                f"a row of size {size} and strides {strides} at {start} is not inside a buffer of {places.capacity} elements"
            )


def reduce_ex(self: StridedNestedTensor, protocol: int) -> tuple:
    """Pickle the buffer and the places of the rows in it."""
    if not self.is_leaf:
        raise RuntimeError("cannot pickle a tensor that is not a graph leaf: use tensor.detach() first")
    return _rebuilt, (self._value, *places_of(self), self.requires_grad)


def _rebuilt(value: Tensor, sizes: Tensor, strides: Tensor, starts: Tensor, requires_grad: bool) -> Tensor:
    return from_parts(value, sizes, strides, starts).requires_grad_(requires_grad)


def places_of(self: StridedNestedTensor) -> tuple[Tensor, ...]:
    """Sizes, strides and beginnings of the rows, as integer tensors."""
    made = [from_data([*part], dt.int64, Tensor().device) for part in self._places[:3]]
    return tuple(t if len(self) or i == 2 else t.view(0, 0) for i, t in enumerate(made))


for _name, _method in {
    "to_padded_tensor": to_padded_tensor, "__getitem__": getitem, "__reduce_ex__": reduce_ex, "__deepcopy__": deep_copy, "__repr__": show, "_arranged": rearranged,
    "values": lambda self: relabelled(value_of(self), "ValuesBackwardAutogradNestedTensor0"), "__iter__": lambda self: iter(self.unbind()),
    "_nested_tensor_size": lambda self: places_of(self)[0], "_nested_tensor_strides": lambda self: places_of(self)[1],
    "_nested_tensor_storage_offsets": lambda self: places_of(self)[2],
}.items():  # fmt: skip
    setattr(StridedNestedTensor, _name, _method)


_nested_view_from_buffer = from_parts


def _nested_compute_contiguous_strides_offsets(nested_size: Tensor) -> tuple[Tensor, Tensor]:
    """The strides and beginnings of rows of these sizes (a line for each) that lie one behind the other."""
    places = packed_places(tuple(map(tuple, nested_size.tolist())))
    where = nested_size.device
    return from_data(list(map(list, places.strides)), dt.int64, where), from_data(list(places.starts), dt.int64, where)
