"""Running sums, products and extremes along a dimension, differences, and integrals by the trapezoid rule."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.layout import wrap_dim
from ...core.numeric_limits import finfo
from ...core.return_types import named_result
from ...core.tensor import Tensor, numel_of
from ...core.typenames import type_name
from ...expr import functions as f
from ...kernels.library import scan as kernels
from ..machinery.along import LineOperator, split_at
from ..machinery.arguments import as_dtype, is_int, need_tensor
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.formula import Pointwise
from ..machinery.inplace import assign, check_writable
from ..machinery.memory import dense, like_first, tells
from ..machinery.out import check_out_dtype, check_unrecorded, write_out
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, lookup
from .sums import has_zero


def one_dim(name: str, dim: Any, rank: int) -> int:
    """Return the dimension given to `name`, counted from the front."""
    if type(dim) is int and -rank <= dim < rank:
        return dim if dim >= 0 else dim + rank
    if not is_int(dim):
        raise TypeError(f"{name}(): argument 'dim' (position 2) must be int, not {type_name(dim)}")
    return wrap_dim(int(dim), rank)


_RUNNING = {
    (op, reverse): LineOperator(None, kernels.cumulate, 1, op=op, reverse=reverse)
    for op in ("sum", "prod", "logsumexp", "complex logsumexp")
    for reverse in (False, True)
}


# -- sums --------------------------------------------------------------------------------------------------------------


@internal(
    layout=like_first,
    shortcut=lambda input, dim, reverse: _RUNNING["sum", reverse].known(input, dim),
    grads={"input": lambda g, dim, reverse: running_sum(g, dim, not reverse)},
    quirks=Quirks(label="CumsumBackward0"),
    batching="along",
)
def running_sum(input: Tensor, dim: int, reverse: bool) -> Tensor:
    """The sum of all elements up to (from, if `reverse`) each element."""


@running_sum.op.as_aten
def _(recorder: Any, input: Tensor, dim: int, reverse: bool) -> Tensor:
    aten = recorder.aten
    if not reverse:
        return aten.cumsum.default(input, dim)
    return aten.flip.default(aten.cumsum.default(aten.flip.default(input, [dim]), dim), [dim])


@running_sum.on("any")
def _(out: Tensor, input: Tensor, dim: int, reverse: bool) -> None:
    _RUNNING["sum", reverse].fill(out, dim, input)


def _prepared(name: str, input: Tensor, dtype: Any, out: Any) -> Tensor:
    """Return the input in the result's dtype: dtype=, out's dtype, int64 for integers."""
    if not isinstance(input, Tensor):
        need_tensor(name, input)
    if dtype is not None:
        dtype = as_dtype(dtype, name)
    if isinstance(out, Tensor):
        check_unrecorded(name, out, input)
        if dtype is not None:
            check_out_dtype(out, dtype)
        dtype = out.dtype
    if dtype is None:
        dtype = dt.int64 if input.dtype.category < 2 else input.dtype
    if dtype is dt.bool_:
        raise unsupported(f"{name}_out_cpu", dt.bool_)
    return input if input.dtype is dtype else input.to(dtype)


@composite(autocast_cuda="float32")
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """The sum of all elements up to each one along a dimension."""
    x = _prepared("cumsum", input, dtype, out)
    result = running_sum(x, one_dim("cumsum", dim, len(x.shape)), False)
    return result if out is None else write_out("cumsum", out, result)


@composite(function=False)
def cumsum_(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Compute cumsum in place."""
    check_writable(self)
    return assign(self, cumsum(self, dim, dtype=dtype or self.dtype), "cumsum_")


# -- products ----------------------------------------------------------------------------------------------------------


def _cumprod_grad(g: Tensor, input: Tensor, out: Tensor, dim: int) -> Tensor:
    if g.dtype.is_floating_point and not g.requires_grad and not input.requires_grad:
        return cumprod_backward(g, out, input, dim)
    return _cumprod_grad_from_parts(g, input, dim)


@internal(batching="each")
def cumprod_backward(g: Tensor, products: Tensor, input: Tensor, dim: int) -> NewTensor:
    """The gradient of running products, in one pass."""
    return input.shape, g.dtype, g.device


@cumprod_backward.on("any")
def _(out: Tensor, g: Tensor, products: Tensor, input: Tensor, dim: int) -> None:
    kernels.cumprod_backward(out, dense(g), dense(products), dense(input), *split_at(input.shape, dim))


def _cumprod_grad_from_parts(g: Tensor, input: Tensor, dim: int) -> Tensor:
    """Return cumprod's gradient by differentiable operators, for second derivatives and complex numbers."""
    if not input.shape:
        return g
    x, n = input.conj(), input.shape[dim]
    if not numel_of(input.shape):
        return g
    if not tells(has_zero.call(input._bare_alias()), True):
        return running_sum(running_product(x, dim) * g, dim, True) / x
    parts = []
    for k in range(n):  # the products that hold element k, without it
        before = x.narrow(dim, 0, k).prod(dim, True)
        products = before.expand([1 if d == dim else s for d, s in enumerate(x.shape)])
        if k + 1 < n:
            after = running_product(x.narrow(dim, k + 1, n - k - 1), dim)
            products = lookup("cat").function([products, products * after], dim)
        parts.append((g.narrow(dim, k, n - k) * products).sum(dim, True))
    return lookup("cat").function(parts, dim)


@internal(
    layout=like_first, grads={"input": _cumprod_grad}, aten="cumprod(input, dim, None)",
    quirks=Quirks(label="CumprodBackward0"), batching="along",
)  # fmt: skip
def running_product(input: Tensor, dim: int) -> Tensor:
    """The product of all elements up to each one."""


@running_product.on("any")
def _(out: Tensor, input: Tensor, dim: int) -> None:
    _RUNNING["prod", False].fill(out, dim, input)


@composite(autocast_cuda="float32")
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """The product of all elements up to each one along a dimension."""
    x = _prepared("cumprod", input, dtype, out)
    result = running_product(x, one_dim("cumprod", dim, len(x.shape)))
    return result if out is None else write_out("cumprod", out, result)


@composite(function=False)
def cumprod_(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Compute cumprod in place."""
    check_writable(self)
    return assign(self, cumprod(self, dim, dtype=dtype or self.dtype), "cumprod_")


# -- logarithms of sums of exponentials --------------------------------------------------------------------------------

_log_part = Pointwise("log_part", lambda g, x, sign, least: f.where(g * sign > 0, f.log(f.abs_(g)), least) - x)


def _logcumsumexp_grad(g: Tensor, input: Tensor, out: Tensor, dim: int) -> Tensor:
    """Return the sum over later j of g[j] * exp(x - out[j]), in logarithms for each sign of g."""
    if not numel_of(input.shape):
        return g
    if g.dtype.is_complex:
        return (running_logsumexp(g.conj().log() - out, dim, True) + input).exp().conj()
    least = finfo(g.dtype).min  # not -inf: second derivatives subtract it from itself
    positive = running_logsumexp(_log_part.call((g, out, 1.0, least)), dim, True)
    negative = running_logsumexp(_log_part.call((g, out, -1.0, least)), dim, True)
    return (positive + input).exp() - (negative + input).exp()


@internal(
    layout=like_first,
    grads={"input": lambda g, input, out, dim, reverse: _directed_grad(g, input, out, dim, reverse)},
    quirks=Quirks(label="LogcumsumexpBackward0"),
    batching="along",
)
def running_logsumexp(input: Tensor, dim: int, reverse: bool) -> Tensor:
    """log of the sum of the exponentials of all elements up to (from, if `reverse`) each one."""


@running_logsumexp.op.as_aten
def _(recorder: Any, input: Tensor, dim: int, reverse: bool) -> Tensor:
    flip, scan = recorder.aten.flip.default, recorder.aten.logcumsumexp.default
    return flip(scan(flip(input, [dim]), dim), [dim]) if reverse else scan(input, dim)


@running_logsumexp.on("any")
def _(out: Tensor, input: Tensor, dim: int, reverse: bool) -> None:
    _RUNNING["complex logsumexp" if input.dtype.is_complex else "logsumexp", reverse].fill(out, dim, input)


def _directed_grad(g: Tensor, input: Tensor, out: Tensor, dim: int, reverse: bool) -> Tensor:
    if not reverse:
        return _logcumsumexp_grad(g, input, out, dim)
    flip = lookup("flip").function
    return flip(_logcumsumexp_grad(flip(g, (dim,)), flip(input, (dim,)), flip(out, (dim,)), dim), (dim,))


@composite(out="exact")
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the sum of the exponentials of all elements up to each one."""
    d = one_dim("logcumsumexp", dim, len(input.shape))
    if input.dtype.category < 2:
        raise unsupported("logcumsumexp_out_cpu", input.dtype)
    return running_logsumexp(input, d, False)


# -- extremes ----------------------------------------------------------------------------------------------------------


def _extreme_grad(g: tuple[Any, ...], index: Tensor, input_shape: Any, dim: int) -> Tensor:
    values = g[0]
    if not input_shape or not numel_of(input_shape):
        return values
    return values.new_zeros(input_shape).scatter_add(dim, index, values)


def _running_extreme(name: str, largest: bool, doc: str) -> Any:
    def layout(input: Tensor, dim: int) -> list[Any]:
        need_tensor(name, input)
        one_dim(name, dim, len(input.shape))
        if input.dtype.is_complex:
            raise unsupported(f"{name}_cpu", input.dtype)
        return [(input.shape, input.dtype, input.device), (input.shape, dt.int64, input.device)]

    def extreme(input: Tensor, dim: int) -> Any: ...

    extreme.__name__, extreme.__doc__ = name, doc
    returns = named_result(name, "values", "indices")
    face = primitive(
        extreme,
        layout=layout,
        keeps={"index": 1},
        returns=returns,
        grads={"input": _extreme_grad},
        out=True,
        batching="along",
    )

    @face.on("any")
    def _(out: list[Tensor], input: Tensor, dim: int) -> None:
        kernels.cumulate_extreme(out[0], out[1], dense(input), *split_at(input.shape, dim), largest=largest)

    return face


cummax = _running_extreme(
    "cummax", True, "The largest element so far along a dimension, and where it is (the latest of equals)."
)
cummin = _running_extreme(
    "cummin", False, "The smallest element so far along a dimension, and where it is (the latest of equals)."
)
