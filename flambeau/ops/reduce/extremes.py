"""Largest and smallest elements, and their positions: amax, max, argmax, aminmax and their opposites."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core import modes
from ...core.layout import wrap_dim
from ...core.return_types import NamedResult, named_result
from ...core.tensor import Tensor, numel_of
from ...core.typenames import type_name
from ...expr import functions as f
from ..machinery.along import place_along, take_along
from ..machinery.arguments import is_int, need_tensor
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.formula import Pointwise
from ..machinery.out import write_out
from ..machinery.primitive import Saved
from ..machinery.quirks import Quirks
from ..machinery.record import lookup
from ..machinery.reduction import Reduction, counting, reduced_shape, restored, to_index
from ..machinery.reduction_faces import reduction

# -- derivatives -------------------------------------------------------------------------------------------------------


def _sharing(nan: bool) -> Any:
    """Return the rule that gives the gradient of an extreme value, in equal parts, to all elements that have it; `nan`: nan equals nan."""

    def equal(x: Any, top: Any) -> Any:
        return (x == top) | (f.isnan(x) & f.isnan(top)) if nan else x == top

    def part(g: Any, x: Any, top: Any, count: Any) -> Any:
        return g * f.where(equal(x, top), 1, 0) / count  # nan where no element is equal

    equals = Reduction("count_equal", equal, "sum", rule=counting)
    divide = Pointwise("divide_among", part, grad=lambda g, g0, *rest, out: (part(g, *rest), None, None, None))

    def rule(g: Tensor, input: Tensor, out: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        rank = len(input.shape)
        x, top = input._bare_alias(), restored(out._bare_alias(), rank, dims, keepdim)
        if modes.active and modes.deciding():  # in operators that have names
            if nan:
                same = x.isnan().logical_and(top.isnan()).logical_or_(x == top)
                return g / same.sum() * same
            shape = [1 if d in dims else n for d, n in enumerate(input.shape)]
            same, wide = x == out.reshape(shape), g.reshape(shape)
            return wide / same.sum(dims, True) * same
        count = equals.over((x, top), dims if rank else None, True)
        return divide.call((restored(g, rank, dims, keepdim), x, top, count))

    return rule


share_among_equals, _share_with_nan = _sharing(False), _sharing(True)


def select_backward(g: tuple[Any, ...], index: Tensor, input_shape: Any, dim: int, keepdim: bool) -> Tensor | None:
    """Return the gradient of values picked along a dimension, at their original positions."""
    values, shape = g[0], input_shape
    if not shape:
        return values
    d = wrap_dim(dim, len(shape))
    if not keepdim:
        values, index = values.unsqueeze(d), index.unsqueeze(d)
    return place_along(values, index, d, shape, True)


# -- amax, amin --------------------------------------------------------------------------------------------------------


def check_not_empty(op: Any, a: Tensor, dim: Any, dims: tuple[int, ...], requested: Any) -> None:
    """Raise for an extreme value of no elements."""
    if a.dtype.is_complex:
        raise unsupported(f"{op.name}_values_cpu", a.dtype)
    refuse_empty(op.name, a, dim, dims)


def refuse_empty(name: str, a: Tensor, dim: Any, dims: tuple[int, ...]) -> None:
    if numel_of(a.shape):
        return
    if dim is None or dim == ():
        raise (IndexError if name.startswith("arg") else RuntimeError)(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with"
            " the 'dim' argument."
        )
    for d in dims:
        if a.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _check_extreme_out(op: Reduction, input: Tensor, out: Tensor) -> None:
    if out.dtype is not input.dtype:
        raise RuntimeError(
            f"Expected the dtype for input and out to match, but got {input.dtype.scalar_type} for input's dtype and"
            f" {out.dtype.scalar_type} for out's dtype."
        )


@reduction("max", grad=share_among_equals, check=check_not_empty, check_out=_check_extreme_out)
def amax(x: Any) -> Any:
    """The largest element, overall or over the given dimensions. nan counts as larger than everything."""
    return x


@reduction("min", grad=share_among_equals, check=check_not_empty, check_out=_check_extreme_out)
def amin(x: Any) -> Any:
    """The smallest element, overall or over the given dimensions. nan counts as smaller than everything."""
    return x


# -- positions ---------------------------------------------------------------------------------------------------------


def _check_position(op: Reduction, a: Tensor, dim: Any, dims: tuple[int, ...], requested: Any) -> None:
    if dim is not None and not is_int(dim):
        raise TypeError(f"{op.name}(): argument 'dim' (position 2) must be int, not {type_name(dim)}")
    if a.dtype is dt.bool_:
        raise RuntimeError(f"{op.name}(): does not support bool input")
    if a.dtype.is_complex:
        raise RuntimeError(f"{op.name}(): does not support complex input")
    refuse_empty(op.name, a, dim, dims)


@reduction("argmax", rule=to_index, check=_check_position)
def argmax(x: Any) -> Any:
    """The position of the largest element: in the flattened tensor, or along a dimension."""
    return x


@reduction("argmin", rule=to_index, check=_check_position)
def argmin(x: Any) -> Any:
    """The position of the smallest element: in the flattened tensor, or along a dimension."""
    return x


# -- max, min: three functions under one name --------------------------------------------------------------------------

_max_result = named_result("max", "values", "indices")
_min_result = named_result("min", "values", "indices")
_largest = Reduction("max", lambda x: x, "max", grad=_share_with_nan, labels=("MaxBackward1",))
_smallest = Reduction("min", lambda x: x, "min", grad=_share_with_nan, labels=("MinBackward1",))
_where_largest = Reduction("max", lambda x: x, "argmax", rule=to_index)
_where_smallest = Reduction("min", lambda x: x, "argmin", rule=to_index)


def _along_dim(name: str, input: Tensor, dim: int, keepdim: bool, where: Reduction, value: Reduction) -> Saved:
    d = wrap_dim(dim, len(input.shape))
    if input.dtype.is_complex:
        raise RuntimeError(f"{name}(): does not support complex input")
    if input.shape and input.shape[d] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
    index = where.call(input, d, keepdim)
    # A second pass over few elements costs less than looking them up.
    few = numel_of(input.shape) <= _FEW
    values = value.call(input._bare_alias(), d, keepdim) if few else pick(input, index, d, keepdim)
    return Saved((values, index), index=index)


_FEW = 16384


def pick(input: Tensor, index: Tensor, d: int, keepdim: bool) -> Tensor:
    """Return the elements at `index`, whose shape is the input's with dimension `d` reduced."""
    if not input.shape:
        return input.clone()
    shape = index.shape
    kept = index if keepdim else index._view(reduced_shape(input.shape, (d,), True), _kept_strides(index, d), 0)
    values = take_along(input, kept, d, input.shape)
    return values if keepdim else values.reshape(shape)


def _kept_strides(index: Tensor, d: int) -> tuple[int, ...]:
    return (*index._strides[:d], 1, *index._strides[d:])


@internal(grads={"input": select_backward}, quirks=Quirks(label="MaxBackward0"), batching="along")
def max_dim(input: Tensor, dim: int, keepdim: bool) -> Any:
    """The largest element along a dimension and its index."""
    return _named(_max_result, _along_dim("max", input, dim, keepdim, _where_largest, _largest))


@internal(grads={"input": select_backward}, quirks=Quirks(label="MinBackward0"), batching="along")
def min_dim(input: Tensor, dim: int, keepdim: bool) -> Any:
    """The smallest element along a dimension and its index."""
    return _named(_min_result, _along_dim("min", input, dim, keepdim, _where_smallest, _smallest))


def _named(kind: Any, saved: Saved) -> Saved:
    saved.result = kind(saved.result)
    return saved


def _overloaded(name: str, word: str, whole: Reduction, along: Any, binary: str) -> Any:
    def extreme(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Tensor | NamedResult:
        need_tensor(name, input)
        if not args and not kwargs:
            _check_whole(name, input)
            result = whole.call(input)
            return result if out is None else write_out(name, out, result)
        if isinstance(args[0] if args else kwargs.get("other"), Tensor) and len(args) + len(kwargs) == 1:
            other = args[0] if args else kwargs["other"]
            return lookup(binary).function(input, other, **({} if out is None else {"out": out}))
        dim, keepdim = _read_dim(name, args, kwargs)
        result = along(input, dim, keepdim)
        return result if out is None else write_out(name, out, result, exact=True)

    extreme.__name__ = name
    extreme.__doc__ = (
        f"{name}(input, dim=None, keepdim=False, *, out=None): the {word} element, or the {word} along a dimension and its index."
        f" {name}(input, other): the {word} of each pair of elements."
    )
    return extreme


def _check_whole(name: str, input: Tensor) -> None:
    if not numel_of(input.shape):
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with"
            " the 'dim' argument."
        )
    if input.dtype.is_complex:
        raise unsupported(f"{name}_all", input.dtype)


def _read_dim(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, bool]:
    if len(args) > 2:
        raise TypeError(f"{name}() takes at most 3 positional arguments, got {len(args) + 1}")
    values = dict(zip(("dim", "keepdim"), args))
    for key, value in kwargs.items():
        plain = {"axis": "dim", "keepdims": "keepdim"}.get(key, key)
        if plain in values or plain not in ("dim", "keepdim"):
            raise TypeError(f"{name}() received an invalid combination of arguments: unexpected '{key}'")
        values[plain] = value
    dim: Any = values.get("dim")
    keepdim = values.get("keepdim", False)
    if not is_int(dim):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: 'dim' must be int or 'other' Tensor, not"
            f" {type_name(dim)}"
        )
    if type(keepdim) is not bool:
        raise TypeError(f"{name}(): argument 'keepdim' (position 2) must be bool, not {type_name(keepdim)}")
    return int(dim), keepdim


max_ = composite(name="max")(_overloaded("max", "largest", _largest, max_dim, "maximum"))
min_ = composite(name="min")(_overloaded("min", "smallest", _smallest, min_dim, "minimum"))


# -- both ends ---------------------------------------------------------------------------------------------------------

_aminmax_result = named_result("aminmax", "min", "max")


def _aminmax_backward(g: tuple[Any, ...], input: Tensor, dim: Any, keepdim: bool, out: list[Tensor]) -> Tensor | None:
    dims = tuple(range(len(input.shape))) if dim is None else (wrap_dim(dim, len(input.shape)),)
    total = None
    for share, extreme in zip(g, out):
        if share is not None:
            part = share_among_equals(share, input, extreme, dims, keepdim)
            total = part if total is None else total + part
    return total


@composite(out="exact")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element, overall or along a dimension."""
    return both_extremes(input, dim, keepdim)


@internal(grads={"input": _aminmax_backward}, quirks=Quirks(label="AminmaxBackward0"), batching="each")
def both_extremes(input: Tensor, dim: int | None, keepdim: bool) -> Any:
    if dim is not None:
        dim = wrap_dim(dim, len(input.shape))
        if input.shape and input.shape[dim] == 0:
            raise IndexError(f"aminmax(): Expected reduction dim {dim} to have non-zero size.")
    elif not numel_of(input.shape):
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        )
    if input.dtype.is_complex:
        raise unsupported("aminmax_cpu", input.dtype)
    return _aminmax_result((_smallest.call(input, dim, keepdim), _largest.call(input, dim, keepdim)))
