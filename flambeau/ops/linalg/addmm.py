"""Products added to a tensor: addmm, addbmm, baddbmm, addmv, addr."""

from __future__ import annotations

from typing import Any

from ...core.caching import remember
from ...core.dtype import opmath
from ...core.tensor import Tensor
from ..machinery import work
from ..machinery.declare import composite, primitive
from ..machinery.dtype_rules import check_fits
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..methods.attributes import result_type
from ..pointwise.arithmetic import add, addcmul
from .matmul import (
    bmm,
    check_device,
    left_grad,
    mm,
    multiply,
    mv,
    need_dims,
    outer,
    right_grad,
    same_dtype_with_bias,
    shortcut_of,
)


def _scaled(t: Tensor, factor: Any) -> Tensor:
    return t if factor == 1 else t * factor


def whole_factors(t: Tensor, *factors: Any) -> list[Any]:
    """Return the factors as numbers of the tensor's kind: PyTorch truncates them in products of integers."""
    return [f if isinstance(f, Tensor) else check_fits(f, opmath(t.dtype)) for f in factors]


_FACTORS = ("beta", "alpha")


def _combine(input: Tensor, shape: tuple[int, ...], beta: Any, alpha: Any, make: Any) -> Tensor:
    """Return beta * input + alpha * product; with beta == 0 the input is ignored, including NaN."""
    beta, alpha = whole_factors(input, beta, alpha)
    _check_expands(input, shape)
    result = _scaled(make(), alpha)
    if beta == 0:
        return result
    return _scaled(input, beta) + result


def _check_expands(input: Tensor, shape: tuple[int, ...]) -> None:
    extra = len(shape) - len(input.shape)
    if extra < 0 or any(own not in (1, wanted) for own, wanted in zip(input.shape, shape[extra:])):
        raise RuntimeError(
            f"The expanded size of the tensor ({shape[-1]}) must match the existing size"
            f" ({input.shape[-1] if input.shape else 1}) at non-singleton dimension {len(shape) - 1}.  Target sizes: {list(shape)}. "
            f" Tensor sizes: {list(input.shape)}"
        )


_sums: dict[tuple[Any, ...], tuple[Any, ...]] = {}


def _checked_sum(input: Tensor, mat1: Tensor, mat2: Tensor) -> tuple[Any, ...]:
    need_dims(mat1, 2, f"mat1 must be a matrix, got {len(mat1.shape)}-D tensor")
    need_dims(mat2, 2, f"mat2 must be a matrix, got {len(mat2.shape)}-D tensor")
    (n, k), (k2, m) = mat1.shape, mat2.shape
    if k != k2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
    same_dtype_with_bias(input, mat1, mat2)
    _check_expands(input, (n, m))
    check_device(mat1, mat2, input)
    return (n, m), mat1.dtype, mat1.device


_known_addmm = shortcut_of("addmm")


def _addmm_shortcut(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any, alpha: Any) -> Tensor | None:
    return _known_addmm(mat1, mat2, input) if len(input.shape) == 1 and beta == 1 and alpha == 1 else None


@primitive(
    shortcut=_addmm_shortcut,
    grads={
        "input": lambda g, input_shape, beta: _scaled(g, _conj(beta)).sum_to_size(input_shape),
        "mat1": lambda g, mat2, alpha, mat1_shape, mat1_strides: _scaled(
            left_grad(g, mat2, mat1_shape, mat1_strides), _conj(alpha)
        ),
        "mat2": lambda g, mat1, alpha, mat2_shape, mat2_strides: _scaled(
            right_grad(g, mat1, mat2_shape, mat2_strides), _conj(alpha)
        ),
    },
    out="exact",
    inplace=True,
    quirks=Quirks(former=_FACTORS),
    autocast="lower",
    flops=work.addmm,
    sharding="+mn,mk,kn->mn",
)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> NewTensor:
    """beta * input + alpha * mat1 @ mat2"""
    key = (
        input.shape, input.dtype, input.device, mat1.shape, mat1.dtype, mat1.device, mat2.shape, mat2.dtype,
        mat2.device,
    )  # fmt: skip
    return _sums.get(key) or remember(_sums, key, _checked_sum(input, mat1, mat2))


@addmm.on("cpu")
def _(out: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any, alpha: Any) -> None:
    beta, alpha = whole_factors(input, beta, alpha)
    if beta == 1 and alpha == 1 and input.shape == out.shape[1:] and input._contig and input.dtype.category >= 2:
        multiply("addmm", out, mat1, mat2, input, (out, mat1, mat2))
        return
    if out.dtype is not opmath(out.dtype):  # half-width floats: rounded once, at the end
        raw_copy(out, addmm(input.float(), mat1.float(), mat2.float(), beta=beta, alpha=alpha))
        return
    product = _scaled(mm.unseen(mat1, mat2), alpha)
    if beta == 0:
        raw_copy(out, product)
    else:
        _sum_into(out, _scaled(input, beta), product)


_sum_plans: dict[tuple[Any, ...], Any] = {}


def _sum_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Compute out = a + b, where b has the layout of out. The kernel is cached for each layout: finding it takes longer than a small sum."""
    key = (a.shape, a._strides, out.shape, out.dtype)
    plan = _sum_plans.get(key)
    if plan is None:
        remember(_sum_plans, key, add.op.impl.into(out, (a, b), (1,)))
    else:
        plan.run(out, (a, b, *add.op.impl.runtime_params((1,))))


def _conj(value: Any) -> Any:
    return value.conjugate() if isinstance(value, complex) else value


@composite(
    out="exact",
    inplace=True,
    quirks=Quirks(former=_FACTORS),
    autocast="lower",
    flops=work.baddbmm,
    sharding="+bmn,bmk,bkn->bmn",
)
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * batch1 @ batch2, batch by batch"""
    need_dims(batch1, 3, "batch1 must be a 3D tensor")
    need_dims(batch2, 3, "batch2 must be a 3D tensor")
    shape = (batch1.shape[0], batch1.shape[1], batch2.shape[2])
    _check_input_dtype(input, batch1)
    return _combine(input, shape, beta, alpha, lambda: bmm(batch1, batch2))


def _check_input_dtype(input: Tensor, other: Tensor) -> None:
    if input.dtype is not other.dtype:
        first, second = input.dtype.cpp, other.dtype.cpp
        raise RuntimeError(f"Input dtypes must be the same, got: input {first}, batch1: {second}, batch2: {second}")


@composite(out="exact", inplace=True, quirks=Quirks(former=_FACTORS), autocast="lower")
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * the sum of batch1[i] @ batch2[i]"""
    need_dims(batch1, 3, "batch1 must be a 3D tensor")
    need_dims(batch2, 3, "batch2 must be a 3D tensor")
    if batch1.shape[0] != batch2.shape[0]:
        raise RuntimeError(
            f"batch1 and batch2 must have same number of batches, got {batch1.shape[0]} and {batch2.shape[0]}"
        )
    same_dtype_with_bias(input, batch1, batch2)
    shape = (batch1.shape[1], batch2.shape[2])
    return _combine(input, shape, beta, alpha, lambda: bmm(batch1, batch2).sum(0, dtype=batch1.dtype))


@composite(out="exact", inplace=True, quirks=Quirks(former=_FACTORS, inplace_function=True), autocast_cuda="lower")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat @ vec"""
    if len(mat.shape) != 2 or len(vec.shape) != 1 or len(input.shape) > 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {len(input.shape)}, {len(mat.shape)}, {len(vec.shape)}"
        )
    if mat.shape[1] != vec.shape[0] or (input.shape and input.shape[0] not in (1, mat.shape[0])):
        raise RuntimeError(
            f"size mismatch, got input ({input.numel()}), mat ({mat.shape[0]}x{mat.shape[1]}), vec ({vec.shape[0]})"
        )
    if not input.dtype is mat.dtype is vec.dtype:
        first, second, third = (t.dtype.scalar_type for t in (input, mat, vec))
        raise RuntimeError(f"addmv input tensors must have the same dtype, but got {first}, {second}, and {third}")
    return _combine(input, (mat.shape[0],), beta, alpha, lambda: mv(mat, vec))


@composite(out=True, inplace=True, quirks=Quirks(former=_FACTORS), autocast_cuda="lower")
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)"""
    for name, vec in (("vec1", vec1), ("vec2", vec2)):
        if len(vec.shape) != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {len(vec.shape)}-D")
    shape, d = (vec1.shape[0], vec2.shape[0]), input.dtype
    plain = d is vec1.dtype is vec2.dtype and d.is_floating_point and d is opmath(d)
    if plain and beta == 1 and beta is not True and alpha is not True and input.shape == shape:
        return addcmul(input, vec1.unsqueeze(1), vec2, value=alpha)
    kind = d if plain else result_type(input, vec1.to(result_type(vec1, vec2)))
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, (float, complex)) and kind.category < 2:
            raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")
        if isinstance(factor, bool) and kind.category:
            raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
    bias = input.expand(shape)
    result = outer(_scaled(vec1.to(kind), alpha).to(kind), vec2.to(kind))  # in this order it is rounded
    if beta == 0:
        return result
    return bias | result if kind.category == 0 else _scaled(bias.to(kind), beta) + result
