"""Rules by which operators name their results, if their kind does not decide it: formulas unify the names of their operands, reductions drop
those of the reduced dimensions."""

from __future__ import annotations

from typing import Any

from ...core.named import Names, names_of, plain
from ...core.tensor import Tensor
from ..creation import construct, convert, filled, memory, overwrite
from ..index import index_vector, masked, sort, subscript
from ..late import OPS
from ..linalg import addmm
from ..linalg import matmul as products
from ..machinery.record import lookup
from ..nn import distance, softmax
from ..random import fills, sampling
from ..reduce import agreement, scan, statistics, sums
from ..shape import dimensions, joining, parts, reshape, strided
from .algebra import product, quoted, shown, unify, unify_all
from .propagation import Call, broadcast, give_names, names_rule, no_names, reduced, same

names_rule(
    convert.convert, convert.clone, convert.contiguous, convert.to, convert.detach, overwrite.fill_, overwrite.zero_,
    filled.empty_like, filled.zeros_like, filled.ones_like, filled.full_like, fills.rand_like, fills.randn_like,
    sampling.bernoulli, index_vector.index_fill, softmax.softmax, softmax.log_softmax, lookup("nn.functional.softmax"),
    lookup("nn.functional.log_softmax"), lookup("dropout"), lookup("nn.functional.dropout"), lookup("nn.functional.relu"),
    scan.cumsum, scan.cumprod, scan.cummax, scan.cummin, scan.logcumsumexp, sort.sort, sort.topk, sort.argsort,
    dimensions.slice_dim, parts.narrow, parts.split, parts.chunk, lookup("type"), lookup("polygamma"), lookup("nn.functional.threshold"),
    lookup("Tensor.polygamma"), *(op for op in list(OPS.values()) if "max_pool" in op.name and "unpool" not in op.name and op.namespaces),
)(same)  # fmt: skip

names_rule(
    statistics.var, statistics.std, statistics.var_mean, statistics.std_mean, sums.logsumexp, sums.nanmean
)(reduced)  # fmt: skip


def _along_one(call: Call) -> Names:
    """Return the names after a reduction along one dimension that must be given."""
    if call.get("dim") is None and not {"dim", "*dim"}.isdisjoint((*call.places, *call.kwargs)):
        raise RuntimeError("Please look up dimensions by name, got: name = None.")
    names, dim = call.input, call.dim("dim", -1)
    return names if call.get("keepdim") else (*names[:dim], *names[dim + 1 :])  # type: ignore[operator]


names_rule(sort.mode, sort.kthvalue)(_along_one)


@names_rule(sort.median, sort.nanmedian, lookup("max"), lookup("min"), lookup("prod"))
def _along_one_or_all(call: Call) -> Names:
    """Return the names after a reduction of everything, along one dimension, or (the larger of two tensors) of nothing."""
    if len(call.tensors) > 1:
        return broadcast(call)
    if not {"dim", "*dim"}.isdisjoint((*call.places, *call.kwargs)):
        return _along_one(call)
    return ()


@names_rule(construct.tensor, whole=True)
def _copied_tensor(function: Any, data: Any, *, names: Any = None, **options: Any) -> Tensor:
    own = names_of(data)
    if names is not None and tuple(names) != own:
        raise RuntimeError(f"Name mismatch: the data has names {shown(own)}, but names={shown(names)} is given.")
    return give_names(function(plain(data), **options), own)


# -- shapes --------------------------------------------------------------------------------------------------------------------


@names_rule(dimensions.select, parts.unbind)
def _without_one(call: Call) -> Names:
    if call.get("dim", 0) is None:
        raise RuntimeError("Please look up dimensions by name, got: name = None.")
    dim = call.dim("dim", 0)
    return tuple(name for i, name in enumerate(call.input) if i != dim)


@names_rule(dimensions.transpose, lookup("swapaxes"), lookup("swapdims"), moves=True)
def _exchanged(call: Call) -> Names:
    names = list(call.input)
    a, b = (
        (int(d) % max(1, len(names)) for d in call.args[1:3])
        if len(call.args) > 2
        else (call.dim("dim0"), call.dim("dim1"))
    )
    names[a], names[b] = names[b], names[a]  # type: ignore[index]
    return tuple(names)


@names_rule(dimensions.t, moves=True)
def _reversed(call: Call) -> Names:
    return call.input[::-1]


@names_rule(dimensions.squeeze, moves=True)
def _squeezed(call: Call) -> Names:
    assert call.first is not None
    shape, dims = call.first.shape, call.get("dim")
    if dims is None:
        chosen = set(range(len(shape)))
    else:
        chosen = {int(d) % max(1, len(shape)) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}
    return tuple(
        name for i, (name, size) in enumerate(zip(call.input, shape, strict=True)) if size != 1 or i not in chosen
    )


@names_rule(dimensions.expand)
def _expanded(call: Call) -> Names:
    sizes = call.args[1] if len(call.args) == 2 and not isinstance(call.args[1], int) else call.args[1:]
    sizes = sizes or call.get("size", ())
    return (*(None for _ in range(len(sizes) - len(call.input))), *call.input)


@names_rule(dimensions.expand_as)
def _expanded_as(call: Call) -> Names:
    return (*(None for _ in range(len(call.args[1].shape) - len(call.input))), *call.input)


@names_rule(parts.diagonal, whole=True)
def _diagonal(
    function: Any, input: Tensor, offset: int = 0, dim1: Any = 0, dim2: Any = 1, outdim: Any = None
) -> Tensor:
    names = names_of(input)
    first, second = (names.index(d) if isinstance(d, str) else d % len(names) for d in (dim1, dim2))
    result = function(plain(input), offset, first, second)
    return give_names(result, (*(n for i, n in enumerate(names) if i not in (first, second)), outdim))


@names_rule(strided.as_strided)
def _unnamed(call: Call) -> Names:
    return tuple(None for _ in call.get("size"))


_unnamed.views_only = True


@names_rule(subscript.getitem, whole=True)
def _subscript(function: Any, input: Any, key: Any) -> Tensor:
    """Index by numbers, which drop a dimension, and slices, which keep it."""
    names, keys = names_of(input), list(key) if isinstance(key, tuple) else [key]
    if not all(k is ... or isinstance(k, (int, slice)) for k in keys) or any(isinstance(k, bool) for k in keys):
        raise RuntimeError(
            "aten::index is not yet supported with named tensors. Please drop names via `tensor = tensor.rename(None)`, call the op"
            " with an unnamed tensor, and set names on the result of the operation."
        )
    if ... not in keys:
        keys.append(...)
    here = keys.index(...)
    keys[here : here + 1] = [slice(None)] * (len(names) - len(keys) + 1)
    kept = tuple(n for n, k in zip(names, keys, strict=False) if isinstance(k, slice))
    return give_names(function(plain(input), key), kept)


@names_rule(joining.cat)
def _joined(call: Call) -> Names:
    counts = {len(t.shape) for t in call.tensors}
    return unify_all(map(names_of, call.tensors), "cat") if len(counts) == 1 else ()


def flatten(
    function: Any, input: Tensor, start_dim: Any = 0, end_dim: Any = -1, out_dim: Any = None, **more: Any
) -> Tensor:
    """Merge dimensions into one, which gets a name: given by their names, or by the first and the last."""
    names, value = names_of(input), plain(input)
    if isinstance(start_dim, (list, tuple)):
        return _flatten_listed(
            function, value, names, list(start_dim), end_dim if end_dim != -1 else more.get("out_dim", out_dim)
        )
    first, last = (names_index(d, names) for d in (start_dim, end_dim))
    result = function(value, first, last)
    first, last = first % max(1, len(names)), last % max(1, len(names))
    kept = (*names[:first], out_dim, *names[last + 1 :])
    if out_dim is None and any(n is not None for n in names[first : last + 1]):
        raise RuntimeError(
            f"flatten(tensor, dims, out_dim): the dims {shown(names[first : last + 1])} have names; give the merged one a name, too."
        )
    return give_names(_fresh(result, value), kept)


names_rule(reshape.flatten, whole=True)(flatten)


def names_index(dim: Any, names: Names) -> int:
    if not isinstance(dim, str):
        return dim
    if dim not in names:
        raise RuntimeError(f"Name {quoted(dim)} not found in Tensor{shown(names)}.")
    return names.index(dim)


def _flatten_listed(function: Any, value: Tensor, names: Names, dims: list[Any], out_dim: Any) -> Tensor:
    if not dims:
        raise RuntimeError("flatten(tensor, dims, out_dim): dims cannot be empty")
    places = [names_index(d, names) for d in dims]
    if places != list(range(places[0], places[0] + len(places))):
        raise RuntimeError(
            f"flatten(tensor, dims, out_dim): dims {shown(dims)} must be consecutive in Tensor{shown(names)}"
        )
    result = function(value, places[0], places[-1])
    return give_names(_fresh(result, value), (*names[: places[0]], out_dim, *names[places[-1] + 1 :]))


def _fresh(result: Tensor, value: Tensor) -> Tensor:
    """Return another header if an operator returned its argument, whose names must stay."""
    return result.view(result.shape) if result is value else result


@names_rule(reshape.unflatten, whole=True)
def unflatten(function: Any, input: Tensor, dim: Any, sizes: Any) -> Tensor:
    """Split a dimension into several with names: `sizes` are pairs of a name and a size."""
    names, value = names_of(input), plain(input)
    pairs = list(sizes.items()) if hasattr(sizes, "items") else sizes
    if pairs is None or len(pairs) == 0:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not all(isinstance(p, (list, tuple)) for p in pairs):
        if isinstance(dim, str):
            raise TypeError("unflatten(): argument 'dim' (position 1) must be int, not str")
        raise RuntimeError("unflatten: input is a named tensor but no names were given for unflattened sizes")
    place = names_index(dim, names) % len(names)
    new_names, new_sizes = [p[0] for p in pairs], [p[1] for p in pairs]
    size, known = value.shape[place], 1
    for s in new_sizes:
        known *= 1 if s == -1 else s
    if -1 in new_sizes and known == 0:
        raise RuntimeError(
            f"cannot reshape tensor of {size} elements into shape {new_sizes} because the unspecified dimension size -1 can be any"
            " value and is ambiguous"
        )
    if known != size if -1 not in new_sizes else size % known:
        raise RuntimeError(
            f"unflatten: Provided sizes {new_sizes} don't multiply up to the size of dim {place} ({quoted(names[place])}: {size}) in"
            f" Tensor{shown(names)}"
        )
    result = function(value, place, new_sizes)
    return give_names(_fresh(result, value), (*names[:place], *new_names, *names[place + 1 :]))


# -- in place, masks, comparison -----------------------------------------------------------------------------------------------


@names_rule(overwrite.copy_)
def _copied(call: Call) -> Names:
    return unify(names_of(call.args[0]), names_of(call.args[1]))


@names_rule(memory.resize_, whole=True)
def _resized(function: Any, input: Any, *sizes: Any, **options: Any) -> Tensor:
    wanted = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    if wanted != list(input.shape):
        raise RuntimeError(
            f"Cannot resize named tensor with resize_ or resize_as_ (tried to resize Tensor{shown(names_of(input))} with size"
            f" {list(input.shape)} to {wanted}). This may be caused by passing a named tensor as an `out=` argument; please ensure"
            " that the sizes are the same. "
        )
    return input


@names_rule(memory.resize_as_)
def _resized_as(call: Call) -> Names:
    return names_of(call.args[1])


@names_rule(masked.masked_fill)
def _masked(call: Call) -> Names:
    input, mask = names_of(call.args[0]), names_of(call.args[1])
    if len(mask) > len(input):
        raise RuntimeError(
            f"masked_fill: the number of dimensions of the mask ({len(mask)}) must be less than or equal to that of the tensor"
            f" ({len(input)})"
        )
    return unify(input, mask)


@names_rule(masked.masked_select)
def _selected(call: Call) -> Names:
    broadcast(call)
    return (None,)


@names_rule(agreement.equal, whole=True)
def _equal(function: Any, input: Any, other: Any) -> bool:
    if names_of(input) != names_of(other):
        return False
    return function(*(plain(t) for t in (input, other)))


names_rule(lookup("where"), lookup("Tensor.where"))(broadcast)


# -- products ------------------------------------------------------------------------------------------------------------------


@names_rule(products.mm, products.bmm, products.mv, products.matmul)
def _product(call: Call) -> Names:
    a, b = call.tensors[:2]
    if not a.shape or not b.shape:
        return ()
    return product(names_of(a), names_of(b), call.op.name)


names_rule(products.dot)(no_names)


@names_rule(addmm.addmm, addmm.addmv)
def _product_plus(call: Call) -> Names:
    bias, a, b = call.tensors[:3]
    return unify(product(names_of(a), names_of(b), call.op.name), names_of(bias))


@names_rule(lookup("nn.functional.linear"))
def _layer(call: Call) -> Names:
    """Return the names of a linear layer's result: those of the input but the last, then that of the weight's rows."""
    names = (*call.input[:-1], names_of(call.tensors[1])[0])
    return unify(names, names_of(call.tensors[2])) if len(call.tensors) > 2 else names


@names_rule(distance.cdist)
def _distances(call: Call) -> Names:
    a, b = map(names_of, call.tensors[:2])
    return (*unify(a[:-2], b[:-2], "cdist"), a[-2], b[-2])
