"""Nested tensors in the strided layout: calls are made as the operator's record declares.

Pointwise operators run on the buffer, reductions and operators along a dimension on each row separately; views of the rows are other places
in the same buffer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from ...core.aliases import Values
from ...core.held import HeldOperand
from ...core.layout import wrap_dim
from ...core.pytree import tree_flatten, tree_map
from ...core.strided_nested import StridedNestedTensor
from ...core.tensor import Tensor
from ..machinery.record import Batched, Op, lookup
from ..shape.joining import cat, stack
from . import (
    call_by_record,
    deep_copy,
    dims_given,
    held_as,
    hold,
    on_values,
    relabelled,
    sizes_given,
    value_of,
    written_by,
)  # fmt: skip
from .strided_rows import contiguous, from_parts, mold_of, packed, places_of, rows_at, rows_of, viewed


def _refuse(op: Op, like: StridedNestedTensor, why: str) -> NoReturn:
    """Refuse a call: an operator that is composed of this one may have a rule."""
    raise HeldOperand(like, f"{op.name}(): {why}")


def _dims(op: Op, given: Any, like: StridedNestedTensor, extra: int = 0, why: str | None = None) -> list[int]:
    """Return the dimensions of the rows for `given` ones, which count the batch."""
    found = [wrap_dim(d, len(like.shape) + extra) - 1 for d in ([given] if isinstance(given, int) else given)]
    if -1 in found:
        raise HeldOperand(like, why or f"Cannot apply {op.name} across nested dimension 0, that of its rows")
    return found


# -- how a call is made ----------------------------------------------------------------------------------------------------------------


def _elementwise(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    target = written_by(face, args, kwargs)
    if target is not None and not isinstance(target, StridedNestedTensor) and not target.shape:
        shapes = [list(t.shape) for t in (target, like)]
        raise HeldOperand(like, f"output with shape {shapes[0]} doesn't match the broadcast shape {shapes[1]}")
    given = tree_flatten((args, kwargs))[0]
    together = all(x._places == like._places for x in given if isinstance(x, StridedNestedTensor))
    if not like.is_contiguous() and (target is not None or (op.kind == "pointwise" and len(given) == 1)):
        raise HeldOperand(like, "NestedTensor must be contiguous to get buffer.")

    def beside(x: Any) -> Any:
        if isinstance(x, StridedNestedTensor):
            if x._places.sizes != like._places.sizes:
                raise HeldOperand(like, f"{op.name} does not support broadcasting when given a NestedTensor")
            return x if together else contiguous(x)
        if not isinstance(x, Tensor) or not x.shape:
            return x
        kinds = ("non-nested", "nested") if x is args[0] else ("nested", "non-nested")
        raise HeldOperand(
            like, f"Expected both self and other to be nested, but got a {kinds[0]} self and {kinds[1]} other"
        )

    args, kwargs = tree_map(beside, (args, kwargs))
    mold = like._mold() if together else mold_of(like._places.sizes)
    return on_values(face, args, kwargs, lambda value: held_as(value, mold))


def _made_like(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    """Make a contiguous tensor of the same sizes."""
    args, kwargs = tree_map(lambda x: contiguous(x) if isinstance(x, StridedNestedTensor) else x, (args, kwargs))
    return _elementwise(face, op, args, kwargs, contiguous(like))


def _reduced(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    dim, keepdim = bound.pop("dim", None), bound.pop("keepdim", False)
    rest = {name: x for name, x in bound.items() if x is not like and x is not None}
    if dim is None or dim in ((), []):
        return face(contiguous(like).values(), **rest)
    dims = _dims(op, dim, like, why="NestedTensor can only be reduced across the last dimensions, got dimension 0")
    if not keepdim:
        raise HeldOperand(like, "NestedTensor always requires keepdim=True for now.")
    return packed([face(row, dims if len(dims) > 1 else dims[0], True, **rest) for row in rows_of(like)])


def _along(
    face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor, why: str | None = None
) -> Any:
    """Run an operator along one dimension on each row; `why` is the reason if it is the first one, which is refused."""
    bound, rule = op.bind(args, kwargs), op.batching
    names, extra = (rule.dims, rule.extra) if isinstance(rule, Batched) else (("dim",), 0)
    given = [name for name in names if bound.get(name) is not None]
    at = {name: _dims(op, bound[name], like, extra, why) for name in given}
    bound |= {name: dims[0] if isinstance(bound[name], int) else dims for name, dims in at.items()}
    if sum(isinstance(x, Tensor) for x in tree_flatten(bound)[0]) > 1:
        _refuse(op, like, "needs one nested tensor, and no others")
    return on_rows(lambda row: face(**{name: row if x is like else x for name, x in bound.items()}), like)


def on_rows(function: Callable[[Tensor], Any], like: StridedNestedTensor) -> Any:
    """Call a function on each row; if it returns views of them, the result is a view of the nested tensor."""
    bare = rows_at(like._value.detach(), like._places)
    first = tree_flatten(function(bare[0]))[0] if bare else []
    if not first or first[0]._storage is not like._storage:
        return _regrouped([function(row) for row in rows_of(like)], packed)
    history = function(rows_of(like)[0]) if like.requires_grad else None
    node = None if history is None else tree_flatten(history)[0][0].grad_fn
    label = None if node is None else f"{node.name().removesuffix('0')}AutogradNestedTensor0"
    return _regrouped([function(row) for row in bare], lambda views: viewed(like, views, label))


def _regrouped(results: list[Any], made: Callable[[list[Tensor]], Any]) -> Any:
    """Return a nested tensor of one result per row, or a tuple of those if there are several."""
    if not results or isinstance(results[0], Tensor):
        return made(results)
    return tuple(made(list(each)) for each in zip(*results))


# What an operator does with these tensors.
call = functools.partial(call_by_record, StridedNestedTensor, elementwise=_elementwise, reduced=_reduced, along=_along)


# -- operators with a rule of their own ------------------------------------------------------------------------------------------------


def _each_element(
    face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor, width: int | None = None
) -> Any:
    """Run an operator that computes each element of a row from itself, where an element has the last `width` dimensions (for a norm, its
    normalized shape): all rows of the buffer are one batch."""
    bound = op.bind(args, kwargs)
    name, *others = bound
    if bound[name] is not like or any(isinstance(bound[other], StridedNestedTensor) for other in others):
        _refuse(op, like, "the input alone must be nested")
    width = len(bound["normalized_shape"]) if width is None else width
    sizes = like._places.sizes
    inner = sizes[0][len(sizes[0]) - width :] if sizes else ()
    if width and not like.is_contiguous():
        raise HeldOperand(like, f"for now {op.name} only supports contiguous nested tensor")
    if any(size[len(size) - width :] != inner for size in sizes) or (sizes and width >= len(like.shape)):
        why = "Expected all tensors in nested tensor to have the same trailing dimension, instead last dimension equals"
        if width > 1:
            why = "normalized_shape extends into irregular dimensions for the nested tensor"
        raise HeldOperand(like, f"{why}: the rows have the sizes {list(sizes)}")
    value = face(**{**bound, name: contiguous(like).values().view(-1, *inner)})
    label = None if value.grad_fn is None else value.grad_fn.name()
    shapes = [(*size[: len(size) - width], *value.shape[1:]) for size in sizes]
    return relabelled(hold(value.reshape(-1), mold_of(shapes)), label)


def _linear(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    ranks = len(like.shape), op.bind(args, kwargs)["weight"].dim()
    if ranks != (3, 2):
        found = f"Nested tensor dim: {ranks[0]}. Dense tensor dim: {ranks[1]}"
        raise HeldOperand(like, f"Linear requires nested_tensor.dim == 3 and dense_matrix.dim == 2. {found}")
    return _each_element(face, op, args, kwargs, like, width=1)


def _unbound(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    dim = wrap_dim(op.bind(args, kwargs)["dim"], len(like.shape))
    if dim != 0:
        raise HeldOperand(like, f"NestedTensor can only be unbound along dimension 0 got dimension {dim} instead.")
    return tuple(relabelled(row, "UnbindBackwardAutogradNestedTensor0") for row in rows_of(like))


def _selected(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    if wrap_dim(bound["dim"], len(like.shape)) == 0:
        return relabelled(rows_of(like)[bound["index"]], "SelectBackwardAutogradNestedTensor0")
    return _along(face, op, args, kwargs, like)


def _narrowed(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    dim, start, length = wrap_dim(bound["dim"], len(like.shape)), bound["start"], bound["length"]
    if dim != 0:
        raise HeldOperand(like, f"narrow(): only dim=0 supported for nested tensors, but got: {dim}")
    if not like.is_contiguous():
        raise HeldOperand(like, "narrow(): only contiguous nested tensors supported")
    if not 0 <= start <= start + length <= len(like):
        raise HeldOperand(like, f"start ({start}) + length ({length}) exceeds dimension size ({len(like)}).")
    return viewed(like, rows_at(like._value.detach(), like._places)[start : start + length])


def _reshaped(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    """Reshape the rows: -1 keeps the size of each row in that dimension."""
    sizes = sizes_given(args)
    if not len(like):
        raise HeldOperand(like, "empty nested tensor cannot be reshaped")
    if not sizes:
        raise HeldOperand(like, "shape '[]' is invalid for a nested tensor")
    if kwargs or sizes[0] != len(like):
        raise HeldOperand(
            like, f"{op.name}: For now nested {op.name} cannot change or infer the implicit batch dimension"
        )
    if sizes.count(-1) > 1:
        raise HeldOperand(like, f"{op.name}: only one dimension can be inferred, got {list(sizes)}")
    old = like._places.sizes
    new = [[n if n != -1 else size[d] if d < len(size) else -1 for d, n in enumerate(sizes[1:])] for size in old]
    return _with_sizes(like if op.name == "view" else contiguous(like), new)


def _reshaped_as(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    first, other = op.bind(args, kwargs).values()
    if not all(isinstance(t, StridedNestedTensor) and len(t) == len(like) for t in (first, other)):
        _refuse(op, like, "needs two nested tensors of the same number of rows")
    return _with_sizes(contiguous(first), other._places.sizes)


def _with_sizes(like: StridedNestedTensor, sizes: Any) -> Any:
    views = [row.view(size) for row, size in zip(rows_at(like._value.detach(), like._places), sizes)]
    return viewed(like, views, "ViewBackwardAutogradNestedTensor0")


def _squeezed(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    given = args[1] if len(args) > 1 else kwargs.get("dim")
    if given is None:
        raise HeldOperand(like, "For nested tensors, squeeze without the dim argument is ambiguous: give it")
    dims = _dims(
        op, given, like, why="For nested tensors, squeezing dimension 0 is not supported: it is that of the rows"
    )
    return on_rows(lambda row: face(row, dims if len(dims) > 1 else dims[0]), like)


def _permuted(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    order = dims_given(args, kwargs, len(like.shape))
    if order[:1] != [0]:
        _refuse(op, like, f"the rows must stay in dimension 0 of a nested tensor, got the order {order}")
    return on_rows(lambda row: row.permute([d - 1 for d in order[1:]]), like)


def _concatenated(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    tensors, dim = bound["tensors"], wrap_dim(bound["dim"], len(like.shape))
    if not all(isinstance(t, StridedNestedTensor) for t in tensors):
        _refuse(op, like, "expected each tensor in given list to be nested")
    if len({len(t.shape) for t in tensors}) > 1:
        _refuse(
            op, like, "expected all nested tensors to have matching ragged structures outside of the concatenated dim"
        )
    if dim == 0:
        return packed([row for t in tensors for row in rows_of(t)], "CatBackward0")
    if any(len(t) != len(like) for t in tensors):
        _refuse(op, like, f"the tensors have {sorted({len(t) for t in tensors})} rows: these numbers must be equal")
    return packed([cat(list(rows), dim - 1) for rows in zip(*map(rows_of, tensors))])


def _product(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    sides = list(op.bind(args, kwargs).values())[:2]
    plain = sides[1]
    if op.name == "matmul" and len(like.shape) > 3 and not isinstance(plain, StridedNestedTensor) and plain.dim() == 2:
        return packed([row.matmul(plain) for row in rows_of(like)])  # one matrix for all
    if op.name != "bmm" and not all(isinstance(t, StridedNestedTensor) for t in sides):
        kinds = ["nested" if isinstance(t, StridedNestedTensor) else "non-nested" for t in sides]
        raise HeldOperand(like, f"Expected both to be nested, but got a {kinds[0]} self and {kinds[1]} other")
    names = ("batch1", "batch2 tensor") if op.name == "bmm" else ("1st input", "2nd input tensor")
    for name, t in zip(names, sides):
        if len(t.shape) < 3:
            why = f"{name.split(' t')[0]} has rank: {len(t.shape)}, and {name.split(' ')[0]} must be a 3D tensor"
            raise HeldOperand(
                like, f"{op.name}: For nested tensors, only inputs with >= 3 dims are currently supported. {why}"
            )
    counts = [len(t) for t in sides]
    if counts[0] != counts[1]:
        why = f"Expected size for the 1st dimension of {names[1]} to be: {counts[0]} but got: {counts[1]}."
        raise HeldOperand(like, f"{op.name}: {why}")
    a, b = ([*t.unbind()] for t in sides)
    for i, (x, y) in enumerate(zip(a, b)):
        if x.shape[-1] != y.shape[-2]:
            shapes = " and ".join(f"{t.shape[-2]}x{t.shape[-1]}" for t in (x, y))
            raise HeldOperand(like, f"{i}-th nested matrices in batch cannot be multiplied ({shapes})")
    return packed([x.matmul(y) for x, y in zip(a, b)], f"{op.name.capitalize()}Backward0")


def _attention(face: Any, op: Op, args: Values, kwargs: dict[str, Any], like: StridedNestedTensor) -> Any:
    bound = op.bind(args, kwargs)
    operands = [bound.pop(name) for name in ("query", "key", "value")]
    if bound["attn_mask"] is not None:
        raise HeldOperand(like, "nested tensors are not supported when an explicit attn_mask is set")
    if not all(isinstance(t, StridedNestedTensor) for t in operands):
        _refuse(op, like, "query, key and value must be nested")
    if bound["is_causal"]:
        _refuse(op, like, "nested tensors for query and key are not supported when is_causal=True")
    return packed([face(*each, **bound) for each in zip(*map(rows_of, operands))])


for _rule, _keys in (
    (_each_element, ("nn.functional.layer_norm", "nn.functional.rms_norm")),
    (_linear, ("nn.functional.linear",)),
    (functools.partial(_each_element, width=0), ("nn.functional.embedding",)),
    (_made_like, ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")),
    (_elementwise, ("nn.functional.dropout", "masked_fill", "where", "copy_", "fill_", "zero_", "normal_", "uniform_")),
    (lambda face, op, args, kwargs, like: contiguous(like), ("contiguous",)),
    (functools.partial(_along, why="Nested tensor dimension 0 cannot be transposed"), ("transpose",)),
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
    """The rows as one plain tensor, padded with `padding` to the largest size in each dimension or to `output_size`."""
    if not self.is_contiguous():
        raise RuntimeError("for now to_padded_tensor only supports contiguous nested tensor: call contiguous() first")
    if not len(self):
        return self._value.clone()
    if not self.numel():
        raise RuntimeError("at least one constituent tensor should have non-zero numel")
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
    raise NotImplementedError("slices of a nested tensor are not supported: unbind() gives its rows")


def rearranged(self: StridedNestedTensor, mold: Any) -> StridedNestedTensor:
    """Return a gradient with its rows at the places of `mold`."""
    places = mold.keywords["places"]
    if self._places == places:
        return self
    buffer = self._value.new_zeros(places.capacity)
    for row, size, strides, start in zip(rows_of(self), *places[:3]):
        buffer = buffer.as_strided_scatter(row, size, strides, start)
    return hold(buffer, mold)


def show(self: StridedNestedTensor, *, tensor_contents: Any = None) -> str:
    """Return the rows in their printed form, each on lines of its own."""
    rows = rows_at(self._value.detach(), self._places)
    texts = [repr(row.requires_grad_() if self.requires_grad else row).replace("\n", "\n  ") for row in rows]
    history = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ", requires_grad=True"
    body = ",\n".join(f"  {text}" for text in texts)
    return f"nested_tensor([\n{body}\n]{history if self.requires_grad else ''})"


def reduce_ex(self: StridedNestedTensor, protocol: int) -> tuple[Any, ...]:
    """Return the pickled form: the buffer and the places of the rows in it."""
    if not self.is_leaf:
        raise RuntimeError("cannot pickle a tensor that is not a graph leaf: use tensor.detach() first")
    return _rebuilt, (self._value, *places_of(self), self.requires_grad)


def _rebuilt(value: Tensor, sizes: Tensor, strides: Tensor, starts: Tensor, requires_grad: bool) -> Tensor:
    return from_parts(value, sizes, strides, starts).requires_grad_(requires_grad)


for _name, _method in {
    "to_padded_tensor": to_padded_tensor, "__getitem__": getitem, "__reduce_ex__": reduce_ex, "__deepcopy__": deep_copy, "__repr__": show, "_arranged": rearranged,
    "values": lambda self: relabelled(value_of(self), "ValuesBackwardAutogradNestedTensor0"), "__iter__": lambda self: iter(self.unbind()),
    "_nested_tensor_size": lambda self: places_of(self)[0], "_nested_tensor_strides": lambda self: places_of(self)[1],
    "_nested_tensor_storage_offsets": lambda self: places_of(self)[2],
}.items():  # fmt: skip
    setattr(StridedNestedTensor, _name, _method)
