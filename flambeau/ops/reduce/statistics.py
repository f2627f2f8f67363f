"""Variance and standard deviation, covariance and correlation."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.tensor import Tensor, numel_of
from ...core.typenames import type_name
from ...expr import functions as f
from ..machinery.arguments import need_tensor
from ..machinery.declare import composite, internal
from ..machinery.formula import Pointwise
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..machinery.reduction import Reduction, plain_dim, reduced_dims, restored, spread


def _wide(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    """Return the dtypes of a mean in double precision: its rounding error would enter the variance squared, once per element."""
    wide = dt.complex128 if d.is_complex else dt.float64
    return wide, wide, wide


def _wide_squares(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    return (dt.complex128 if d.is_complex else dt.float64), dt.float64, d.to_real()


_mean = Reduction("mean", lambda x: x, "sum", lambda total, count: total / count, rule=_wide)


@functools.lru_cache(maxsize=256)
def _moment(correction: float, root: bool) -> Reduction:
    """Return the reduction to the sum of squared distances from a given mean over count - correction, or its root."""

    def distance(x: Any, center: Any) -> Any:
        d = f.abs_(x - center)
        return d * d

    def final(total: Any, count: Any) -> Any:
        variance = total / f.maximum(count - correction, 0)
        return f.sqrt(variance) if root else variance

    return Reduction("std" if root else "var", distance, "sum", final, rule=_wide_squares)


class Spread:
    """The arguments of one call of var, std, var_mean or std_mean."""

    __slots__ = ("dim", "correction", "keepdim")

    def __init__(self, dim: Any, correction: float, keepdim: bool):
        self.dim, self.correction, self.keepdim = dim, correction, keepdim


def _read(name: str, input: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Spread:
    """Return the arguments of var(unbiased), var(dim, unbiased, keepdim) or var(dim, *, correction, keepdim)."""
    need_tensor(name, input)
    values: dict[str, Any] = {}
    if args and isinstance(args[0], bool):
        values["unbiased"], args = args[0], args[1:]
        if args:
            raise TypeError(f"{name}() received an invalid combination of arguments: 'unbiased' before 'dim'")
    if len(args) > 3:
        raise TypeError(f"{name}() takes at most 4 positional arguments, got {len(args) + 1}")
    values.update(zip(("dim", "unbiased", "keepdim"), args))
    for key, value in kwargs.items():
        plain = {"axis": "dim", "keepdims": "keepdim"}.get(key, key)
        if plain in values or plain not in ("dim", "unbiased", "keepdim", "correction"):
            raise TypeError(f"{name}() received an invalid combination of arguments: unexpected '{key}'")
        values[plain] = value
    if "correction" in values and "unbiased" in values:
        raise TypeError(
            f"{name}() received an invalid combination of arguments: 'unbiased' and 'correction' exclude each other"
        )
    for key in ("unbiased", "keepdim"):
        if not isinstance(values.get(key, False), bool):
            raise TypeError(
                f"{name}() received an invalid combination of arguments: '{key}' must be bool, not"
                f" {type_name(values[key])}"
            )
    correction = values.get("correction")
    if correction is None:
        correction = 1 if values.get("unbiased", True) else 0
    return Spread(plain_dim(values.get("dim")), float(correction), values.get("keepdim", False))


def _check(name: str, input: Tensor, arguments: Spread) -> tuple[int, ...]:
    if input.dtype.category < 2:
        words = "std and var only support" if name in ("std", "var") else f"{name} only support"
        raise RuntimeError(f"{words} floating point and complex dtypes")
    dims = reduced_dims(arguments.dim, len(input.shape), name)
    if numel_of(tuple(input.shape[d] for d in dims)) - arguments.correction <= 0:
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input"
            " numel divided by output numel).",
            stacklevel=4,
        )
    return dims


def _compute(input: Tensor, arguments: Spread, root: bool) -> tuple[Tensor, Tensor]:
    """Return the variance (or its root) and the mean, both reduced; the mean is in double precision and keeps its dimensions."""
    dim = arguments.dim if input.shape else None
    center = _mean.call(input, dim, True)
    return _moment(arguments.correction, root).over((input, center), dim, arguments.keepdim), center


# -- derivatives -------------------------------------------------------------------------------------------------------

_scaled_difference = Pointwise("var_backward", lambda g, x, center, scale: scale * g * (x - center))
_without_freedom = Pointwise("var_backward", lambda g, x, center: g * f.where(x == center, float("nan"), float("inf")))
_half_over = Pointwise("std_backward", lambda g, out: f.where(out == 0, 0, g / f.where(out == 0, 1, 2 * out)))


def _var_grad(g: Tensor, input: Tensor, arguments: Spread) -> Tensor:
    rank = len(input.shape)
    dims = reduced_dims(arguments.dim, rank)
    freedom = numel_of(tuple(input.shape[d] for d in dims)) - arguments.correction
    given = restored(g, rank, dims, arguments.keepdim), input, input.mean(dims if rank else None, True)
    if freedom <= 0 and (arguments.dim is None or not rank):
        return _without_freedom.call(given)
    return _scaled_difference.call((*given, 2 / freedom if freedom else float("inf")))


def _std_grad(g: Tensor, input: Tensor, arguments: Spread, out: Tensor) -> Tensor:
    return _var_grad(_half_over.call((g, out)), input, arguments)


def _mean_grad(g: Tensor, input: Tensor, arguments: Spread) -> Tensor:
    dims = reduced_dims(arguments.dim, len(input.shape))
    return spread(g / numel_of(tuple(input.shape[d] for d in dims)), input.shape, dims, arguments.keepdim)


def _both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _var_mean_grad(g: tuple[Any, ...], input: Tensor, arguments: Spread) -> Tensor | None:
    moment = None if g[0] is None else _var_grad(g[0], input, arguments)
    return _both(moment, None if g[1] is None else _mean_grad(g[1], input, arguments))


def _std_mean_grad(g: tuple[Any, ...], input: Tensor, arguments: Spread, out: list[Tensor]) -> Tensor | None:
    moment = None if g[0] is None else _std_grad(g[0], input, arguments, out[0])
    return _both(moment, None if g[1] is None else _mean_grad(g[1], input, arguments))


@internal(grads={"input": _var_grad}, quirks=Quirks(label="VarBackward0"), batching="each", sharding="statistics")
def variance(input: Tensor, arguments: Spread) -> Tensor:
    return _compute(input, arguments, False)[0]


@internal(grads={"input": _std_grad}, quirks=Quirks(label="StdBackward0"), batching="each", sharding="statistics")
def deviation(input: Tensor, arguments: Spread) -> Tensor:
    return _compute(input, arguments, True)[0]


def _with_mean(input: Tensor, arguments: Spread, root: bool) -> tuple[Tensor, Tensor]:
    moment, center = _compute(input, arguments, root)
    mean = center.to(input.dtype)
    return moment, mean if arguments.keepdim else mean.reshape(moment.shape)


@internal(grads={"input": _var_mean_grad}, quirks=Quirks(label="VarMeanBackward0"), batching="each")
def variance_and_mean(input: Tensor, arguments: Spread) -> Any:
    return _with_mean(input, arguments, False)


@internal(grads={"input": _std_mean_grad}, quirks=Quirks(label="StdMeanBackward0"), batching="each")
def deviation_and_mean(input: Tensor, arguments: Spread) -> Any:
    return _with_mean(input, arguments, True)


for _operator, _name in ((variance_and_mean, "var_mean"), (deviation_and_mean, "std_mean")):

    @_operator.op.as_aten
    def _(recorder: Any, input: Tensor, arguments: Spread, name: str = _name) -> Any:
        call, dim = getattr(recorder.aten, name).correction, arguments.dim
        dims = dim if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return call(input, dims, correction=arguments.correction, keepdim=arguments.keepdim)


# -- the public functions ----------------------------------------------------------------------------------------------


def _declare(name: str, run: Any, doc: str, method: bool, takes_out: bool) -> Any:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None) if takes_out else None
        arguments = _read(name, input, args, kwargs)
        _check(name, input, arguments)
        result = run(input, arguments)
        return result if out is None else write_out(name, out, result)

    function.__name__, function.__doc__ = name, doc
    function.__annotations__["return"] = "Tensor" if method else "tuple[Tensor, Tensor]"
    return composite(function, method=method)


var = _declare(
    "var",
    variance,
    "var(input, dim=None, *, correction=1, keepdim=False, out=None): the variance, with count - correction as divisor.",
    True,
    True,
)
std = _declare(
    "std",
    deviation,
    "std(input, dim=None, *, correction=1, keepdim=False, out=None): the standard deviation, the root of the variance.",
    True,
    True,
)
var_mean = _declare(
    "var_mean",
    variance_and_mean,
    "var_mean(input, dim=None, *, correction=1, keepdim=False, out=None): the variance and the mean.",
    False,
    False,
)
std_mean = _declare(
    "std_mean",
    deviation_and_mean,
    "std_mean(input, dim=None, *, correction=1, keepdim=False, out=None): the standard deviation and the mean.",
    False,
    False,
)


# -- covariance --------------------------------------------------------------------------------------------------------


def _check_weights(weights: Tensor, name: str, observations: int) -> None:
    if len(weights.shape) > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {len(weights.shape)}"
            " dimensions"
        )
    whole = name == "fweights"
    if (weights.dtype.category == 1) != whole or (not whole and weights.dtype.category != 2):
        kind = "integral" if whole else "floating point"
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {weights.dtype.scalar_type} dtype"
        )
    if numel_of(weights.shape) != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got"
            f" {numel_of(weights.shape)} != {observations}"
        )
    if observations and weights._bare_alias().amin().item() < 0:
        raise RuntimeError(f"cov(): {name} cannot be negative")


def _divisor(weights: Tensor | None, total: Any, correction: int, aweights: Tensor | None, observations: int) -> Any:
    if weights is None:
        return observations - correction
    if correction == 0:
        return total
    if aweights is None:
        return total - correction
    return total - correction * (weights * aweights).sum() / total


@composite
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance matrix of variables in rows, observations in columns."""
    if len(input.shape) > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {len(input.shape)} dimensions"
        )
    if input.dtype is dt.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input if len(input.shape) == 2 else input.reshape(1, -1)
    observations = x.shape[1]
    weights = None
    for given, name in ((fweights, "fweights"), (aweights, "aweights")):
        if given is not None:
            _check_weights(given, name, observations)
            weights = given if weights is None else weights * given
    if weights is not None and observations and weights.sum().item() == 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    total = observations if weights is None else weights.sum()
    mean = (x if weights is None else x * weights).sum(1, keepdim=True) / total
    freedom = _divisor(weights, total, correction, aweights, observations)
    if (freedom if isinstance(freedom, (int, float)) else freedom.item()) <= 0:
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
            stacklevel=3,
        )
        freedom = freedom.new_zeros(()) if isinstance(freedom, Tensor) else 0  # never -0
    centered = x - mean
    other = (centered if weights is None else centered * weights).t()
    product = centered @ (other.conj() if other.dtype.is_complex else other)
    return (product / freedom).squeeze()


@composite
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables in rows."""
    if len(input.shape) > 2:
        raise RuntimeError(
            "corrcoef(): expected input to have two or fewer dimensions but got an input with"
            f" {len(input.shape)} dimensions"
        )
    c = cov(input)
    if not c.shape:
        return c / c
    d = c.diagonal()
    deviations = (d.real if d.dtype.is_complex else d).sqrt()
    c = c / deviations.view(-1, 1) / deviations.view(1, -1)
    return _clip_complex(c) if c.dtype.is_complex else c.clip(-1, 1)


def _clip_complex(c: Tensor) -> Tensor:
    real, imag = c.real.clip(-1, 1), c.imag.clip(-1, 1)
    return real + imag * 1j
