"""Norms of vectors and matrices, and functions of them: norm, dist, renorm."""

from __future__ import annotations

import math
from typing import Any

from ...core.dtype import dtype as dtype_type
from ...core.dtype import opmath
from ...core.promotion import promote_types
from ...core.tensor import Tensor, numel_of
from ...core.typenames import type_name
from ...expr import functions as f
from ..machinery.arguments import as_dtype, need_tensor
from ..machinery.declare import composite, internal, primitive
from ..machinery.formula import Pointwise
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..machinery.record import lookup
from ..machinery.reduction import Reduction, plain_dim, real_result, reduced_dims, restored
from .extremes import amax, amin
from .sums import sum_

# -- forward -----------------------------------------------------------------------------------------------------------


def _unrounded_real(
    op: Reduction, d: dtype_type, requested: dtype_type | None
) -> tuple[dtype_type, dtype_type, dtype_type]:
    """Return the dtypes of norms: sums of powers may leave the range of half-width floats where their roots do not."""
    real = opmath(d.to_real())
    return d, real, real


BY_ORDER = {
    0.0: Reduction("norm0", lambda x: f.where(x == 0, 0, 1), "sum", rule=real_result),
    1.0: Reduction("norm1", f.abs_, "sum", rule=real_result),
    2.0: Reduction("norm2", lambda x: f.real(x * f.conj(x)), "sum", lambda s, n: f.sqrt(s), rule=real_result),
    math.inf: Reduction("norm_inf", f.abs_, "max", rule=real_result),
    -math.inf: Reduction("norm_minus_inf", f.abs_, "min", rule=real_result),
}
_power_sum = Reduction("power_sum", lambda x, p: f.abs_(x) ** p, "sum", rule=_unrounded_real)
_root = Pointwise("norm_root", lambda s, p: s ** (1 / p))


def _norm(input: Tensor, order: float, dim: Any, keepdim: bool) -> Tensor:
    dims = dim if input.shape else None
    known = BY_ORDER.get(order)
    if known is not None:
        return known.call(input, dims, keepdim)
    return _root.call((_power_sum.over((input, order), dims, keepdim), order), (), input.dtype.to_real())


# -- derivative --------------------------------------------------------------------------------------------------------


def _divisor(n: Any) -> Any:
    return f.where(
        n == 0, 1, n
    )  # in a branch that is not taken: its derivative must not be nan there, for forward derivatives


_grad_1 = Pointwise("norm1_backward", lambda g, x: g * f.sign(x))
_grad_2 = Pointwise("norm2_backward", lambda g, x, n: f.where(n == 0, 0, x * (g / _divisor(n))))
_grad_low = Pointwise(
    "norm_backward",
    lambda g, x, n, p: f.where(x == 0, 0, f.sign(x) * f.abs_(x) ** (p - 1)) * g * f.where(n == 0, 0, n ** (1 - p)),
)
_grad_high = Pointwise(
    "norm_backward", lambda g, x, n, p: x * f.abs_(x) ** (p - 2) * f.where(n == 0, 0, g / _divisor(n) ** (p - 1))
)
_grad_extreme = Pointwise(
    "norm_inf_backward", lambda g, x, n, count: f.where(f.abs_(x) == n, f.sign(x) * (g / count), 0)
)


def _norm_backward(g: Tensor, input: Tensor, order: float, dim: Any, keepdim: bool, out: Tensor) -> Tensor | None:
    if order == 0:
        return None
    rank = len(input.shape)
    dims = reduced_dims(dim, rank)
    g, n = restored(g, rank, dims, keepdim), restored(out, rank, dims, keepdim)
    if order == 1:
        return g * input.sgn() if input.dtype.is_complex else _grad_1.call((g, input))
    if order == 2:
        return _grad_2.call((g, input, n))
    if math.isinf(order):
        count = (input._bare_alias().abs() == n._bare_alias()).sum(dims, True)
        if input.dtype.is_complex:
            return input.sgn() * ((input.abs() == n) * (g / count))
        return _grad_extreme.call((g, input, n, count))
    if input.dtype.is_complex:
        return _complex_power_grad(g, input, n, order)
    return (_grad_low if order < 2 else _grad_high).call((g, input, n, order))


def _complex_power_grad(g: Tensor, input: Tensor, n: Tensor, order: float) -> Tensor:
    size = input.abs()
    zero = size == 0
    scaled = (input.sgn() * size ** (order - 1)).masked_fill(zero, 0) if order < 2 else input * size ** (order - 2)
    return scaled * (g * n ** (1 - order)).masked_fill(n == 0, 0)


@internal(
    grads={"input": _norm_backward},
    quirks=Quirks(label="LinalgVectorNormBackward0"),
    batching="along",
    aten="linalg_vector_norm(input, order, dim, keepdim)",
    reduces=lambda input, order, dim, keepdim: (BY_ORDER[order], dim) if order in BY_ORDER else None,
)
def norm_of_order(input: Tensor, order: float, dim: Any, keepdim: bool) -> Tensor:
    return _norm(input, order, dim, keepdim)


# -- vector_norm -------------------------------------------------------------------------------------------------------


def _check_dtype(name: str, x: Tensor, wanted: dtype_type | None) -> None:
    if x.dtype.category < 2:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype.scalar_type}")
    if wanted is None:
        return
    if wanted.category < 2:
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {wanted.scalar_type}")
    if wanted.is_complex != x.dtype.is_complex:
        kind = "complex for complex" if x.dtype.is_complex else "real for real"
        raise RuntimeError(f"{name}: dtype should be {kind} inputs, but got {wanted.scalar_type}")
    if promote_types(x.dtype, wanted) is not wanted:
        raise RuntimeError(
            f"{name}: the dtype of the input ({x.dtype.scalar_type}) should be convertible without narrowing to the"
            f" specified dtype ({wanted.scalar_type})"
        )


def _check_identity(x: Tensor, order: float, dim: Any) -> None:
    """Raise for negative and infinite orders of no elements."""
    if numel_of(x.shape) or not (order < 0 or order == math.inf):
        return
    word = f"{order:g}"
    tail = "because this dimension is empty and the operation does not have an identity"
    if dim is None or dim == ():
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {word} norm on an empty tensor because the operation does not have"
            " an identity"
        )
    for d in reduced_dims(dim, len(x.shape)):
        if x.shape[d] == 0:
            raise RuntimeError(f"linalg.vector_norm cannot compute the {word} norm on the dimension {d} {tail}")


def _refuse_complex(name: str, order: Any) -> None:
    if isinstance(order, complex):
        raise RuntimeError(f"{name}: Expected a non-complex scalar as the order of norm.")


def vector_norm_of(x: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    need_tensor("linalg_vector_norm", x)
    if isinstance(order, Tensor) and order.shape == ():
        order = order.item()
    _refuse_complex("linalg.vector_norm", order)
    if not isinstance(order, (int, float)):
        raise TypeError(f"linalg_vector_norm(): argument 'ord' (position 2) must be Number, not {type_name(order)}")
    wanted = None if dtype is None else as_dtype(dtype, "linalg_vector_norm")
    _check_dtype("linalg.vector_norm", x, wanted)
    dim = plain_dim(dim, "linalg_vector_norm")
    reduced_dims(dim, len(x.shape), "linalg_vector_norm")
    _check_identity(x, float(order), dim)
    return norm_of_order(x if wanted is None else x.to(wanted), float(order), dim, keepdim)


def _deliver(name: str, result: Tensor, out: Any) -> Tensor:
    if out is None:
        return result
    if isinstance(out, Tensor) and out.dtype is not result.dtype:
        raise RuntimeError(f"{name}: expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
    return write_out(name, out, result)


@composite(namespaces=("linalg",), method=False, autocast_cuda="float32")
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """(sum |x|^ord)^(1/ord) over all elements or the given dimensions."""
    return _deliver("linalg.vector_norm", vector_norm_of(x, ord, dim, keepdim, dtype), out)


# -- matrix_norm -------------------------------------------------------------------------------------------------------


def _matrix_dims(dim: Any, rank: int) -> tuple[int, int]:
    if rank < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dims))}")
    first, second = (reduced_dims(d, rank)[0] for d in dims)
    if first == second:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dims[0]}, {dims[1]})")
    return first, second


def matrix_norm_of(A: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    need_tensor("linalg_matrix_norm", A)
    _refuse_complex("linalg.matrix_norm", order)
    wanted = None if dtype is None else as_dtype(dtype, "linalg_matrix_norm")
    rows, columns = _matrix_dims(dim, len(A.shape))
    _check_dtype("linalg.matrix_norm", A, wanted)
    if order == "fro":
        return vector_norm_of(A, 2, (rows, columns), keepdim, dtype)
    if order == "nuc" or (not isinstance(order, str) and abs(order) == 2):
        return _singular_norm(A if wanted is None else A.to(wanted), order, rows, columns, keepdim)
    if isinstance(order, str) or abs(order) not in (1, math.inf):
        word = order if isinstance(order, str) else f"{order:g}"
        raise RuntimeError(f"linalg.matrix_norm: Order {word} not supported.")
    if math.isinf(order):
        rows, columns = columns, rows
    sums = vector_norm_of(A, 1, rows, keepdim, dtype)
    over = columns if keepdim or columns < rows else columns - 1
    if order > 0 and not A.shape[columns]:  # a matrix without elements has norm zero
        return sum_(sums, over, keepdim)
    return (amax if order > 0 else amin)(sums, over, keepdim)


def _singular_norm(A: Tensor, order: Any, rows: int, columns: int, keepdim: bool) -> Tensor:
    rank = len(A.shape)
    order_of_dims = [d for d in range(rank) if d not in (rows, columns)] + [rows, columns]
    values = lookup("linalg.svdvals").function(A.permute(order_of_dims))
    if order == "nuc" or (order > 0 and not values.shape[-1]):  # a matrix without elements has norm zero
        result = sum_(values, -1, keepdim)
    else:
        result = (amax if order > 0 else amin)(values, -1, keepdim)
    if not keepdim:
        return result
    back = [0] * rank
    for position, d in enumerate(order_of_dims):
        back[d] = position
    return result.unsqueeze(-1).permute(back)


@composite(namespaces=("linalg",), method=False, autocast_cuda="float32")
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """A norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    return _deliver("linalg.matrix_norm", matrix_norm_of(A, ord, dim, keepdim, dtype), out)


# -- norm --------------------------------------------------------------------------------------------------------------


def _either_norm(A: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    """Return a vector or a matrix norm, by the number of dimensions."""
    dims = None if dim is None else (tuple(dim) if isinstance(dim, (tuple, list)) else (dim,))
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    rank = len(A.shape)
    if dims is None and order is not None and rank not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {rank}D.")
    if order is None:
        return vector_norm_of(A, 2, dims, keepdim, dtype)
    if isinstance(order, str) or (len(dims) if dims is not None else rank) == 2:
        return matrix_norm_of(A, order, dims if dims is not None else (-2, -1), keepdim, dtype)
    return vector_norm_of(A, order, dims, keepdim, dtype)


@composite(name="norm", namespaces=("linalg",), method=False, autocast_cuda="float32")
def linalg_norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Any = None, dtype: Any = None
) -> Tensor:
    """A norm of a vector or a matrix."""
    return _deliver("linalg.norm", _either_norm(A, ord, dim, keepdim, dtype), out)


@composite(autocast_cuda="float32")
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Tensor:
    """The p-norm of all elements or over the given dimensions ("fro" is 2, "nuc" the sum of singular values)."""
    if isinstance(p, str) and p != "fro":
        dims = dim if dim is not None else (-2, -1)
        result = matrix_norm_of(input, p, dims, keepdim, dtype)
    else:
        result = vector_norm_of(input, 2 if p is None or p == "fro" else p, dim, keepdim, dtype)
    return result if out is None else write_out("norm", out, result, exact=True)


@norm.op.as_aten
def _(
    recorder: Any, input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    if p == "nuc":
        dims = [-2, -1] if dim is None else list(dim)
        return recorder.aten.linalg_matrix_norm.str_ord(input, p, dims, keepdim, dtype=dtype)
    given = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
    power = 2.0 if p in ("fro", None) else p
    return recorder.aten.linalg_vector_norm.default(input, power, given, keepdim, dtype=dtype)


# -- distances from norms ----------------------------------------------------------------------------------------------


def _dist_grad(g: Tensor, input: Tensor, other: Tensor, p: float, out: Tensor) -> Tensor:
    share = _norm_backward(g, input - other, float(p), None, False, out)
    return input.new_zeros(input.shape) if share is None else share


@primitive(
    grads={
        "input": lambda g, input, other, p, out: _dist_grad(g, input, other, p, out).sum_to_size(input.shape),
        "other": lambda g, input, other, p, out: -_dist_grad(g, input, other, p, out).sum_to_size(other.shape),
    },
    batching="each",
    autocast_cuda="float32",
)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other."""
    return _norm(input - other, float(p), None, False)


_factor = Pointwise("renorm_factor", lambda n, limit: f.where(n > limit, limit / (n + 1e-7), 1))
_shrink_grad = Pointwise(
    "renorm_backward",
    lambda g, direction, along, n, limit: f.where(
        n > limit, limit / (n + 1e-7) * (g - direction * (along / (n + 1e-7))), g
    ),
)


def _renorm_grad(g: Tensor, input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    dims = tuple([d for d in range(len(input.shape)) if d != dim % len(input.shape)])
    n = norm_of_order(input, float(p), dims, True)
    ones = n._bare_alias().new_ones(n.shape)
    direction = _norm_backward(ones, input, float(p), dims, True, n)
    product = g * input.conj() if input.dtype.is_complex else g * input
    along = sum_(product, dims, True)
    along = along.real if along.dtype.is_complex else along
    if input.dtype.is_complex:
        inverse = 1 / (n + 1e-7)
        return ((g - direction * (along * inverse)) * (float(maxnorm) * inverse)).where(n > float(maxnorm), g)
    return _shrink_grad.call((g, direction, along, n, float(maxnorm)))


@primitive(grads={"input": _renorm_grad}, out="exact", inplace=True, batching="each", autocast_cuda="float32")
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along `dim` scaled so that their p-norm is at most maxnorm."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if len(input.shape) < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {len(input.shape)} dimensions")
    _check_dtype("linalg.vector_norm", input, None)
    (kept,) = reduced_dims(dim, len(input.shape), "renorm")
    dims = tuple([d for d in range(len(input.shape)) if d != kept])
    n = _norm(input, float(p), dims, True)
    return input * _factor.call((n, float(maxnorm)))


@composite(method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one, which keeps its place; over all of them for dim=-1."""
    if dim == -1:
        return vector_norm(v, pow)
    (kept,) = reduced_dims(dim, len(v.shape), "norm_except_dim")
    others = tuple([d for d in range(len(v.shape)) if d != kept])
    return vector_norm(v, pow, others, keepdim=True) if others else v.abs()


@composite(method=False)
def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """The weight with the direction of `v` and the length `g`."""
    return v * (g / norm_except_dim(v, 2, dim))
