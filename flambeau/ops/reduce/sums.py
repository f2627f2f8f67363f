"""Sums, products, means, extreme values, any and all, over all or some dimensions."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core import modes
from ...core.dtype import dtype
from ...core.graph import grad_mode
from ...core.layout import format_shape
from ...core.promotion import get_default_dtype
from ...core.size import make_size
from ...core.tensor import Tensor, contiguous_strides, numel_of
from ...core.typenames import type_name
from ...expr import functions as f
from ..machinery.arguments import is_int, varargs_ints
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, primitive
from ..machinery.formula import Pointwise
from ..machinery.memory import tells
from ..machinery.quirks import Quirks
from ..machinery.record import lookup
from ..machinery.reduction import (
    Reduction,
    counting,
    plain_dim,
    real_result,
    reduced_dims,
    restored,
    spread,
    to_bool,
    widen_integers,
)
from ..machinery.reduction_faces import reduction

# -- sums --------------------------------------------------------------------------------------------------------------


@reduction(
    "sum",
    name="sum",
    rule=widen_integers,
    grad=spread,
    quirks=Quirks(label=("SumBackward0", "SumBackward1")),
    takes_dtype=True,
    autocast_cuda="float32",
    beside=lambda input, dim=None, **options: dim in (0, [0], (0,)) and len(input.shape) == 2,  # as a bias is
)
def sum_(x: Any) -> Any:
    """The sum of all elements, or over the given dimensions. Integers are summed in int64."""
    return x


aten_parts("sum.default")(lambda aten, self, *, dtype=None: aten.sum.dim_IntList(self, [], dtype=dtype))


def _check_mean(op: Reduction, a: Tensor, dim: Any, dims: tuple[int, ...], requested: Any) -> None:
    d = requested or a.dtype
    if d.category < 2:
        kind = "Input" if requested is None else "Optional"
        raise RuntimeError(
            f"{op.name}(): could not infer output dtype. {kind} dtype must be either a floating point or complex dtype. Got: {d.scalar_type}"
        )


def _mean_backward(g: Tensor, shape: Any, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    count = numel_of(tuple(shape[d] for d in dims))
    if numel_of(shape) == 0:
        return spread(g, shape, dims, keepdim)
    return spread(_divide.call((g, count)), shape, dims, keepdim)


_divide = Pointwise("div", lambda x, y: x / y)


@reduction(
    "sum",
    final=lambda total, count: total / count,
    grad=_mean_backward,
    quirks=Quirks(label=("MeanBackward0", "MeanBackward1")),
    check=_check_mean,
    takes_dtype=True,
)
def mean(x: Any) -> Any:
    """The arithmetic mean of all elements, or over the given dimensions."""
    return x


_size_plans: dict[tuple[Any, ...], tuple[Any, ...]] = {}


def _plan_sum_to(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[Any, ...]:
    lead = len(shape) - len(target)
    fits = lead >= 0 and all(t == n or t == 1 for t, n in zip(target, shape[max(lead, 0) :]))
    if not fits:
        raise RuntimeError(f"size {{{format_shape(target)}}} is not expandable to size {{{format_shape(shape)}}}.")
    dims = (*range(lead), *(i for i in range(lead, len(shape)) if target[i - lead] == 1 and shape[i] != 1))
    size = make_size(target)
    plan = _size_plans[shape, target] = (dims, size, contiguous_strides(size))
    return plan


@composite(function=False)
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The tensor summed over broadcast dimensions until its shape is `size`."""
    target = tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple) else varargs_ints(size, "sum_to_size")
    if not target:
        return sum_(self)
    if self.shape == target:
        return self
    dims, shape, strides = _size_plans.get((self.shape, target)) or _plan_sum_to(self.shape, target)
    sums = sum_ if modes.active else sum_.op.impl.call
    out: Any = sums(self, dims, True) if dims else self
    if out.shape == target:
        return out
    if out is self or (grad_mode.enabled and out._autograd is not None) or modes.active:
        view = out.reshape(target)
        if view._base is out and out is not self and out._autograd is None:
            view._base = None  # no other reference exists: a leaf may take it over
        return view
    out.shape, out._strides = shape, strides  # no other reference exists yet
    return out


# -- products ----------------------------------------------------------------------------------------------------------

_over_product = Pointwise("prod_backward", lambda g, x, out: g * f.conj(out / x))
has_zero = Reduction("has_zero", lambda x: x == 0, "any", rule=to_bool)


def _prod_backward(g: Tensor, input: Tensor, out: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    rank = len(input.shape)
    if not numel_of(input.shape):
        return input.new_zeros(input.shape)
    if not rank:
        return g
    g, out = restored(g, rank, dims, keepdim), restored(out, rank, dims, keepdim)
    if not tells(has_zero.call(input._bare_alias()), True):
        return _over_product.call((g, input, out))
    if len(dims) == 1:
        return g * _product_of_others(input, dims[0]).conj()
    flat = _product_of_others(input.reshape(-1), 0)  # all dimensions: prod takes one or all
    return g * flat.reshape(input.shape).conj()


def _product_of_others(x: Tensor, dim: int) -> Tensor:
    """Return for each element the product of all others along `dim`: those before it times those after it."""
    n = x.shape[dim]
    ones = x.new_ones([1 if d == dim else size for d, size in enumerate(x.shape)])
    cat, flip = lookup("cat").function, lookup("flip").function
    before = cat([ones, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    after = cat([ones, flip(x.narrow(dim, 1, n - 1), (dim,))], dim).cumprod(dim)
    return before * flip(after, (dim,))


def _one_dim(op: Reduction, a: Tensor, dim: Any, dims: tuple[int, ...], requested: Any) -> None:
    if dim is not None and not is_int(dim):
        raise TypeError(
            f"{op.name}() received an invalid combination of arguments: 'dim' must be int, not {type_name(dim)}"
        )


@reduction(
    "prod", rule=widen_integers, grad=_prod_backward, quirks=Quirks(label=("ProdBackward0", "ProdBackward1")), check=_one_dim,
    takes_dtype=True,autocast="float32"
)  # fmt: skip
def prod(x: Any) -> Any:
    """The product of all elements, or along a dimension. Integers are multiplied in int64."""
    return x


# -- truth and counts --------------------------------------------------------------------------------------------------


def _check_truth_out(op: Reduction, input: Tensor, out: Tensor) -> None:
    if out.dtype is not dt.bool_ and out.dtype is not dt.uint8:
        raise RuntimeError(f"{op.name} only supports bool tensor for result, got: {out.dtype.scalar_type}")


@reduction("any", name="any", rule=to_bool, check_out=_check_truth_out)
def any_(x: Any) -> Any:
    """Test whether any element is true (not zero), overall or over the given dimensions."""
    return x != 0


@reduction("all", name="all", rule=to_bool, check_out=_check_truth_out)
def all_(x: Any) -> Any:
    """Test whether all elements are true (not zero), overall or over the given dimensions."""
    return x != 0


_nonzero = Reduction("count_nonzero", lambda x: x != 0, "sum", rule=counting)
count_not_nan = Reduction("count_not_nan", lambda x: f.logical_not(f.isnan(x)), "sum", rule=counting)


@composite
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """The number of elements that are not zero, overall or over the given dimensions."""
    return _nonzero.call(input, plain_dim(dim, "count_nonzero"))


# -- sums that leave out nan -------------------------------------------------------------------------------------------


def _check_nansum(op: Reduction, a: Tensor, dim: Any, dims: tuple[int, ...], requested: Any) -> None:
    if a.dtype.is_complex:
        raise RuntimeError("nansum on CPU does not support complex inputs")


_unless_nan = Pointwise(
    "unless_nan",
    lambda g, x: g * f.where(f.isnan(x), 0, 1),
    grad=lambda g, g0, x, out: (g * f.where(f.isnan(x), 0, 1), None),
)


def _nansum_backward(g: Tensor, input: Tensor, shape: Any, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    return _unless_nan.call((spread(g, shape, dims, keepdim), input._bare_alias()))


def _nansum_rule(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    """Return the dtypes of nansum: those of sum, but elements are tested for nan before they become integers."""
    compute, acc, result = widen_integers(op, d, requested)
    return d if d.category > compute.category else compute, acc, result


@reduction("sum", rule=_nansum_rule, grad=_nansum_backward, check=_check_nansum, takes_dtype=True)
def nansum(x: Any) -> Any:
    """The sum of the elements that are not nan."""
    return f.where(f.isnan(x), 0, x)


@composite(out=True)
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of the elements that are not nan."""
    if input.dtype.category < 2:
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype.scalar_type}"
        )
    dim = plain_dim(dim, "nanmean")
    return nansum(input, dim, keepdim, dtype=dtype) / count_not_nan.call(input._bare_alias(), dim, keepdim)


# -- logarithm of a sum of exponentials --------------------------------------------------------------------------------

_real_max = Reduction("amax", f.real, "max", rule=real_result)
_shifted_exp_sum = Reduction("logsumexp", lambda x, top: f.exp(x - top), "sum", lambda s, n: f.log(s))
_finite_or_zero = Pointwise("finite_or_zero", lambda x: f.where(f.isinf(x), 0, x))


def _logsumexp_backward(g: Tensor, input: Tensor, out: Tensor, dim: Any, keepdim: bool) -> Tensor:
    rank = len(input.shape)
    dims = reduced_dims(dim, rank)
    g, out = restored(g, rank, dims, keepdim), restored(out, rank, dims, keepdim)
    if input.dtype.is_complex:
        return g * (input - out).exp().conj()
    return _times_exp.call((g, input, _finite_or_zero.call((out,))))


_times_exp = Pointwise("times_exp", lambda g, x, out: g * f.exp(x - out))


@primitive(
    grads={"input": _logsumexp_backward},
    out=True,
    namespaces=("torch", "special"),
    batching="along",
    autocast_cuda="float32",
)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over the given dimensions, without overflow."""
    if input.dtype.category < 2:
        input = input.to(get_default_dtype())
    dim, rank = (
        plain_dim(dim, "logsumexp"),
        len(input._strides),
    )  # which a tensor that is spread over ranks does not have
    dims = reduced_dims(dim, rank, "logsumexp")
    if not numel_of(input.shape):
        return log_of(sum_(_exp_of.call((input,)), dims, keepdim))
    top = _finite_or_zero.call((_real_max.call(input, dims if rank else None, True),))
    total = _shifted_exp_sum.over((input, top), dims if rank else None, keepdim)
    return total + (top if keepdim else top.reshape(total.shape))


_exp_of = Pointwise("exp", f.exp)
_log_of = Pointwise("log", f.log)


def log_of(x: Tensor) -> Tensor:
    return _log_of.call((x,))
