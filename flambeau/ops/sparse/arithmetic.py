"""Arithmetic with COO tensors: sums, products, quotients, functions that keep zeros, in place too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.graph import grad_mode, gradient_edge
from ...core.layout import broadcast_shapes, contiguous_format
from ...core.layout import strided as strided_layout
from ...core.promotion import can_cast, result_dtype
from ...core.size import make_size
from ...core.sparse import SparseCoo, SparseCsr, SparseRefusal, SparseTensor, new_coo
from ...core.tensor import Tensor
from ..creation import overwrite
from ..creation.filled import full_like, zeros_like
from ..machinery.formula import camel
from ..machinery.inplace import assign, check_history_writable, raw_copy, rebase_history
from ..machinery.quirks import Quirks
from ..machinery.sparse_dispatch import sparse_form
from ..pointwise import activation, comparison, conjugate, rounding, special_functions, unary
from ..pointwise import arithmetic as strided
from ..shape.joining import cat
from .conversion import as_coo, in_layout_of
from .coo import add_at, clone, coalesce, coo_from_parts, layout_word, values_at, values_in_place_of, with_values
from .index import entry_keys, index_tensor, merged, on_host, places_of

# -- sums --------------------------------------------------------------------------------------------------------------


def _reduced(g: Tensor, like: Any, factor: Any = 1) -> Tensor:
    """Return a gradient in an operand's dtype."""
    g = g if factor == 1 else g * factor
    return g if g.dtype is like else g.to(like)


@sparse_form(
    strided.add,
    grads={
        "input": lambda g, input_dtype: _reduced(g, input_dtype),
        "other": lambda g, other_dtype, alpha: _reduced(g, other_dtype, alpha),
    },
    quirks=Quirks(label="AddBackward0"),
)
def add(input: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    if isinstance(input, SparseCsr) and isinstance(other, Tensor) and not isinstance(other, SparseTensor):
        return _strided_plus_sparse(other, input, alpha)  # as in PyTorch, alpha is the factor of the sparse term
    if not isinstance(other, SparseTensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not isinstance(input, SparseTensor):
        return _strided_plus_sparse(input, other, alpha)
    _check_alike(input, other)
    d = result_dtype((input, other))
    if isinstance(input, SparseCoo) and isinstance(other, SparseCoo):
        return _sum(input, other, alpha, d)
    total = _sum(as_coo(input), as_coo(other), alpha, d)
    return in_layout_of(input, total)


def _check_alike(a: SparseTensor, b: SparseTensor) -> None:
    if a.shape != b.shape and isinstance(a, SparseCsr):
        raise RuntimeError(
            f"torch.add: Expected input tensors to have the same shape, but got tensor `self` with shape {list(a.shape)} and"
            f" tensor `other` with shape {list(b.shape)}"
        )
    if a.shape != b.shape:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}"
        )
    if not (isinstance(a, SparseCoo) and isinstance(b, SparseCoo)) or not (
        a._values_part.shape[0] and b._values_part.shape[0]
    ):
        return
    if a._index_part.shape[0] != b._index_part.shape[0]:
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same density, but 'self' has"
            f" {a._index_part.shape[0]} sparse dimensions while 'other' has {b._index_part.shape[0]} sparse dimensions"
        )


def _sum(a: SparseCoo, b: SparseCoo, alpha: Any, d: Any) -> SparseCoo:
    """Return the sum of two COO tensors: equal places that meet share an entry; values that are not stored in order are only concatenated."""
    left, right = a._values_part.to(d), b._values_part.to(d)
    right = right if alpha == 1 else right * alpha
    for nothing, other, values in ((a, b, right), (b, a, left)):
        if not nothing._values_part.shape[0]:
            return new_coo(other._index_part.clone(), values.clone(), a.shape, other._is_coalesced, other._in_bounds)
    if not (a._values_part._contig and b._values_part._contig):
        indices = cat((a._index_part, b._index_part), 1)
        return new_coo(indices, cat((left, right), 0), a.shape, False, a._in_bounds and b._in_bounds)
    keys_a, keys_b = entry_keys(a), entry_keys(b)
    place_a, place_b, keys = merged(keys_a, keys_b)
    values = left.new_zeros((keys.size, *left.shape[1:]))
    add_at(values, place_a, left)
    add_at(values, place_b, right)
    indices = index_tensor(places_of(keys, tuple(a.shape[: a._index_part.shape[0]])))
    return new_coo(indices, values, a.shape, a._is_coalesced and b._is_coalesced)


def _check_strided(input: Tensor, other: Tensor) -> None:
    if input.shape != other.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(input.shape)} while other has"
            f" size {list(other.shape)} (FYI: dense-sparse addition does not currently support broadcasting)"
        )


def _strided_plus_sparse(input: Tensor, other: SparseTensor, alpha: Any) -> Tensor:
    _check_strided(input, other)
    d = result_dtype((input, other))
    return _accumulate(input.to(d, memory_format=contiguous_format, copy=True), other, alpha)


def _accumulate(out: Tensor, other: SparseTensor, alpha: Any) -> Tensor:
    """Compute out += alpha * other for contiguous memory."""
    coo = as_coo(other)
    values = coo._values_part.to(out.dtype)
    return add_at(out, entry_keys(coo), values if alpha == 1 else values * alpha)


@sparse_form(strided.sub)
def sub(input: Any, other: Any, alpha: Any = 1) -> Tensor:
    return add(input, other, alpha=-alpha)


# -- products ----------------------------------------------------------------------------------------------------------


def _mul_grad(g: Tensor, other: Any, header: tuple[Any, ...], index: int) -> Tensor:
    """Return the gradient of factor number `index`, whose shape, dtype and layout are known."""
    shape, d, arrangement = header
    result = g * (other.conj() if isinstance(other, Tensor) and other.dtype.is_complex else other)
    if isinstance(result, SparseCsr) and arrangement is strided_layout:
        raise RuntimeError(
            f"Function MulBackward0 returned an invalid gradient at index {index} - expected layout Strided but got"
            f" {layout_word(result)}"
        )
    if result.shape != shape:
        result = result.to_dense().sum_to_size(shape) if result.is_sparse else result.sum_to_size(shape)
    return result if result.dtype is d else result.to(d)


@sparse_form(
    strided.mul,
    grads={
        "input": lambda g, other, input_shape, input_dtype, input_layout: _mul_grad(
            g, other, (input_shape, input_dtype, input_layout), 0
        ),
        "other": lambda g, input, other_shape, other_dtype, other_layout: _mul_grad(
            g, input, (other_shape, other_dtype, other_layout), 1
        ),
    },
    quirks=Quirks(label="MulBackward0"),
)
def mul(input: Any, other: Any) -> Tensor:
    if not isinstance(input, SparseTensor) or (isinstance(other, SparseTensor) and not input.shape):
        input, other = other, input
    if isinstance(other, SparseTensor) and not other.shape and input.shape:
        other = other.to_dense()
    if not isinstance(other, Tensor) or not (other.shape or isinstance(other, SparseTensor)):
        return with_values(input, _times(input, other, lambda v, x: v * x))
    if isinstance(input, SparseCsr) or isinstance(other, SparseCsr):
        factor = as_coo(other)
        return in_layout_of(input, mul(as_coo(input), factor))
    if isinstance(other, SparseCoo):
        return _times_sparse(input, other)
    if len(other.shape) > len(input.shape):
        input = _repeated(input, tuple(other.shape[: len(other.shape) - len(input.shape)]))
    if broadcast_shapes(input.shape, other.shape) != input.shape:
        raise NotImplementedError(
            f"mul(): a sparse tensor of shape {list(input.shape)} cannot be broadcast to a dense one of shape"
            f" {list(other.shape)}"
        )
    entry_keys(input)  # checks the bounds
    picked = values_at(other.expand(input.shape), input._index_part, np.zeros(0, np.int64))
    return with_values(input, input._values_part * picked)


def _repeated(t: SparseCoo, sizes: tuple[int, ...]) -> SparseCoo:
    """Return the tensor repeated for each index of new dimensions before its own."""
    count, nnz = math.prod(sizes), t._values_part.shape[0]
    before = np.repeat(np.indices(sizes).reshape(len(sizes), count), nnz, 1)
    rows = np.concatenate([before, np.tile(on_host(t._index_part), count)])
    values = t._values_part.repeat(count, *[1] * (len(t._values_part.shape) - 1))
    return new_coo(index_tensor(rows), values, make_size((*sizes, *t.shape)), t._is_coalesced, t._in_bounds)


def _times(t: SparseTensor, other: Any, combine: Any) -> Tensor:
    """Combine the values with a number or 0-dim tensor: the tensor's own dimensions decide the dtype, not the values'."""
    d = combine(t._values_part.new_ones((1,) * max(len(t.shape), 1)), other).dtype
    return combine(t._values_part.to(d), other.to(d) if isinstance(other, Tensor) else other)


def _times_sparse(a: SparseCoo, b: SparseCoo) -> SparseCoo:
    sparse = a._index_part.shape[0]
    if a.shape[:sparse] != b.shape[:sparse] or b._index_part.shape[0] != sparse or len(a.shape) != len(b.shape):
        raise RuntimeError(
            "sparse_binary_op_intersection_cpu(): expects sparse inputs with equal dimensionality, number of sparse"
            " dimensions, and shape of sparse dimensions"
        )
    keep, look = _walked(a, b)
    keys, held = entry_keys(keep), coalesce(look)
    at = np.isin(keys, entry_keys(held)) if keep._is_coalesced else np.ones(keys.size, bool)
    kept = index_tensor(np.flatnonzero(at))
    values = keep._values_part.index_select(0, kept)
    indices = keep._index_part.index_select(1, kept)
    shape = make_size(broadcast_shapes(a.shape, b.shape))
    return new_coo(indices, values * values_at(held, indices, keys[at]), shape, keep._is_coalesced)


def _walked(a: SparseCoo, b: SparseCoo) -> tuple[SparseCoo, SparseCoo]:
    """Return the factors, first the one whose entries the product lists: the uncoalesced one, or the shorter."""
    if a._is_coalesced == b._is_coalesced:
        shorter = a._is_coalesced or a._values_part.shape[0] <= b._values_part.shape[0]
        return (a, b) if shorter else (b, a)
    return (b, a) if a._is_coalesced else (a, b)


def _div_grad(g: Tensor, other: Any, d: Any, rounding_mode: Any) -> Tensor:
    if rounding_mode is not None:
        return zeros_like(g)
    result = g / other
    return result if result.dtype is d else result.to(d)


def _divisor_grad(g: Tensor, input: Any, other: Tensor) -> Tensor:
    return -(g * input).sum() / (other * other)


@sparse_form(
    strided.div,
    grads={
        "input": lambda g, other, input_dtype, rounding_mode: _div_grad(g, other, input_dtype, rounding_mode),
        "other": _divisor_grad,
    },
    quirks=Quirks(label="DivBackward0"),
)
def div(input: Any, other: Any, rounding_mode: Any = None) -> Tensor:
    if not isinstance(input, SparseTensor) or (isinstance(other, Tensor) and other.shape):
        shape = list(other.shape) if isinstance(other, Tensor) else []
        raise RuntimeError(
            f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {shape} for divisor)"
        )
    if rounding_mode is not None and isinstance(input, SparseCoo):
        input = coalesce(input)
    divide = strided.div
    return with_values(input, _times(input, other, lambda v, x: divide(v, x, rounding_mode=rounding_mode)))


@sparse_form(strided.floor_divide)
def floor_divide(input: Any, other: Any) -> Tensor:
    if isinstance(other, SparseTensor):
        raise RuntimeError("Sparse floor division requires a scalar or zero-dim dense tensor divisor")
    return div(input, other, rounding_mode="floor")


@sparse_form(strided.neg, grads={"input": lambda g: -g}, quirks=Quirks(label="NegBackward0"))
def neg(input: SparseTensor) -> Tensor:
    return with_values(input, -input._values_part)


@sparse_form(strided.positive, conjugate.conj, conjugate.conj_physical, conjugate._conjugate)
def positive(input: SparseTensor) -> Tensor:
    if not input.dtype.is_complex:
        return input
    return with_values(input, input._values_part.conj())


# -- functions that are zero at zero ---------------------------------------------------------------------------------

# Applied to the values of the coalesced tensor: f(a + b) is not f(a) + f(b).
_KEEP_ZERO = (
    conjugate.abs, unary.asin, unary.asinh, unary.atan, unary.atanh, rounding.ceil, unary.deg2rad, special_functions.erf,
    special_functions.erfinv, unary.expm1, rounding.floor, rounding.frac, comparison.isinf, comparison.isnan,
    comparison.isneginf, comparison.isposinf, unary.log1p, rounding.nan_to_num, unary.rad2deg, activation.relu,
    rounding.round, rounding.sgn, rounding.sign, rounding.signbit, unary.sin, unary.sinh, unary.sqrt, unary.tan, unary.tanh,
    rounding.trunc,
)  # fmt: skip


def apply_to_values(input: SparseTensor, function: Any, name: str) -> Tensor:
    """Return a tensor with the same places and function(values): differentiable through the values. `name` is the operator's."""
    t: Any = coalesce(input) if isinstance(input, SparseCoo) else input
    changed = function(t.values())
    if isinstance(t, SparseCoo):
        result = coo_from_parts(changed, t._index_part, t.shape, True, True)
        if result.grad_fn is not None:
            result.grad_fn.label = camel(name) + "Backward0"  # what users know this step as
        return result
    return values_in_place_of(changed, t.detach())


def _declare_unary(function: Any) -> None:
    name = function.op.name
    changing = conjugate.abs_ if function is conjugate.abs else function.op.inplace

    @sparse_form(function)
    def apply(input: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
        return apply_to_values(input, lambda v: function(v, *args, **kwargs), name)

    @sparse_form(*[] if changing is None else [changing])
    def apply_inplace(self: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
        check_history_writable(self)
        if isinstance(self, SparseCoo) and not self._is_coalesced:
            raise RuntimeError(f"{name}_ requires coalesced input")
        return become(self, apply(self, *args, **kwargs), name + "_")


for _function in _KEEP_ZERO:
    _declare_unary(_function)


@sparse_form(strided.pow)
def power(input: Any, exponent: Any) -> Tensor:
    if not isinstance(input, SparseTensor) or isinstance(exponent, Tensor):
        raise NotImplementedError("pow() of sparse tensors takes a number as exponent")
    if exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    return apply_to_values(input, lambda v: v**exponent, "pow")


@sparse_form(strided.square)
def square(input: SparseTensor) -> Tensor:
    return power(input, 2)


# -- in place ----------------------------------------------------------------------------------------------------------


def become(t: Any, result: Any, name: str) -> Any:
    """Give `t` the entries and the history of `result`: the in-place form for sparse tensors."""
    check_history_writable(t)
    if type(result) is not type(t):
        raise RuntimeError(f"{name}: the result has layout {result.layout!r}, not {t.layout!r}")
    if not can_cast(result.dtype, t.dtype):
        raise RuntimeError(
            f"result type {result.dtype.scalar_type} can't be cast to the desired output type {t.dtype.scalar_type}"
        )
    if result.dtype is not t.dtype:
        result = result.to(t.dtype)
    edge = gradient_edge(result) if grad_mode.enabled and result._autograd is not None else None
    if edge is None and isinstance(t, SparseCsr) and t._plain_part is result._plain_part:
        raw_copy(t._values_part, result._values_part)  # seen by views: values(), transpose()
        t._values_part._bump(name)
    else:
        t.shape, t._base = result.shape, None
        t._take_parts(result)
    t._bump(name)
    if edge is not None:
        rebase_history(t, edge[0], edge[1])
    return t


@sparse_form(strided.add.op.inplace)
def add_(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return _added(self, other, alpha, "add_")


@sparse_form(strided.sub.op.inplace)
def sub_(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return _added(self, other, -alpha, "sub_")


def _added(self: Tensor, other: Any, alpha: Any, name: str) -> Tensor:
    if isinstance(other, Tensor):
        d = result_dtype((self, other))
        if not can_cast(d, self.dtype):
            raise RuntimeError(
                f"Can't convert result type {d.scalar_type} to output {self.dtype.scalar_type} in add operation"
            )
    if isinstance(self, SparseTensor):
        check_history_writable(self)
        return become(self, add(self, other, alpha=alpha), name)
    check_history_writable(self)
    _check_strided(self, other)
    records = grad_mode.enabled and (self.requires_grad or other.requires_grad)
    if records or not self._contig:
        return assign(self, add(self, other, alpha=alpha), name)
    _accumulate(self, other, alpha)
    self._bump(name)
    return self


@sparse_form(strided.mul.op.inplace)
def mul_(self: Tensor, other: Any) -> Tensor:
    if not isinstance(self, SparseTensor):
        check_history_writable(self)
        return assign(self, mul(self, other).to_dense(), "mul_")
    return _rescaled(self, other, mul, "mul_")


@sparse_form(strided.div.op.inplace)
def div_(self: Tensor, other: Any, rounding_mode: Any = None) -> Tensor:
    return _rescaled(self, other, lambda a, b: div(a, b, rounding_mode=rounding_mode), "div_")


def _rescaled(self: Any, other: Any, combine: Any, name: str) -> Any:
    check_history_writable(self)
    result = combine(self, other)
    if isinstance(result, SparseTensor) and not can_cast(result.dtype, self.dtype):
        raise RuntimeError(
            f"dtype of values ({result.dtype.scalar_type}) must match dtype of sparse tensor ({self.dtype.scalar_type})"
        )
    return become(self, result, name)


@sparse_form(strided.floor_divide.op.inplace)
def floor_divide_(self: Tensor, other: Any) -> Tensor:
    return _rescaled(self, other, floor_divide, "floor_divide_")


@sparse_form(strided.neg.op.inplace)
def neg_(self: Any) -> Any:
    check_history_writable(self)
    return become(self, neg(self), "neg_")


@sparse_form(conjugate.conj_physical_, conjugate._conjugate.op.inplace)
def _conjugate_in_place(self: Tensor) -> Tensor:
    if self.dtype.is_complex:
        raise RuntimeError(
            "conj_physical_(): a sparse complex tensor cannot be conjugated in place; use conj_physical()"
        )
    return self


@sparse_form(overwrite.zero_)
def zero_(self: Any) -> Any:
    check_history_writable(self)
    return become(self, zeros_like(self), "zero_")


@sparse_form(overwrite.fill_)
def fill_(self: Any, value: Any) -> Any:
    """Set the listed values of a compressed tensor."""
    if not isinstance(self, SparseCsr):
        raise SparseRefusal("Could not run 'aten::fill_.Scalar' with arguments from the 'SparseCPU' backend.")
    check_history_writable(self)
    return become(self, with_values(self, full_like(self._values_part, value)), "fill_")


def _check_copied(self: Any, src: Any) -> None:
    """Raise unless the entries of one compressed tensor fit another of the same layout."""
    if self._nnz() != src._nnz():
        raise RuntimeError(
            "torch.copy_: only sparse compressed tensors with the same number of specified elements are supported."
        )
    for i, (a, b) in enumerate(zip(self.shape, src.shape)):
        if a != b:
            raise RuntimeError(
                f"torch.copy_: expected shapes of self and src to match along dimension {i} for {layout_word(self)} layout but"
                f" the corresponding dimensions of self and src are {a} and {b}, respectively."
            )
    if self._blocksize != src._blocksize:
        raise RuntimeError(
            "torch.copy_: copy of sparse compressed tensors having different block sizes is not supported. self and src block"
            f" sizes are {list(self._blocksize)} and {list(src._blocksize)}, respectively."
        )


@sparse_form(overwrite.copy_)
def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    if isinstance(self, SparseCsr) and self.layout is not src.layout:
        raise RuntimeError(
            "torch.copy_: copy of sparse compressed tensors having different layouts is not supported. self layout is"
            f" {layout_word(self.layout)} and src layout is {layout_word(src.layout)}"
        )
    if isinstance(self, SparseTensor) and type(self) is type(src):
        check_history_writable(self)
        if isinstance(self, SparseCsr):
            _check_copied(self, src)
        elif self.shape != src.shape:
            self.sparse_resize_(src.shape, src.sparse_dim(), src.dense_dim())  # raises if entries would be lost
        return become(self, clone(src).to(self.dtype), "copy_")
    raise RuntimeError(
        "copy_() between dense and sparse Tensors is not implemented! Found self type = "
        f"{self.type()} and src type = {src.type()}"
    )
