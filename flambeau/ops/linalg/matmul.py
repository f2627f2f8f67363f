"""Matrix products: mm, bmm, matmul, addmm and relatives, linear."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...backends.cpu import heavy
from ...core import modes
from ...core.caching import remember
from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.layout import broadcast_shapes, has_internal_overlap
from ...core.tensor import Tensor
from ..machinery import work
from ..machinery.arguments import need_tensors
from ..machinery.declare import composite, internal, primitive
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..methods.attributes import result_type
from ..pointwise.arithmetic import add, addcmul
from ..reduce.sums import sum_
from ..shape.reshape import unsafe_view


def _same_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype.cpp} != {b.dtype.cpp}")


def _same_dtype_with_bias(bias: Tensor, mat1: Tensor, mat2: Tensor) -> None:
    for name, t in (("self", bias), ("mat1", mat1)):
        if t.dtype is not mat2.dtype:
            raise RuntimeError(
                f"{name} and mat2 must have the same dtype, but got {t.dtype.scalar_type} and {mat2.dtype.scalar_type}"
            )


def _need_dims(t: Tensor, dims: int, message: str) -> None:
    if len(t.shape) != dims:
        raise RuntimeError(message)


def _dense(t: Tensor) -> Tensor:
    """Matrices with repeated rows or columns (the gradient of a sum) are written out: no library takes them as they lie."""
    repeats = 0 in t._strides and has_internal_overlap(t.shape[-2:], t._strides[-2:])
    return t.contiguous() if repeats else t


def _check_device(a: Tensor, *others: Tensor | None) -> None:
    for t in others:
        if t is not None and t.device is not a.device:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices,"
                f" {a.device} and {t.device}!"
            )


def _multiply(form: str, out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None, made: tuple) -> None:
    """The product of the matrices `made` (result, left, right), which are out, a and b seen as matrices. Calls like this one find
    their way by `known_product` from now on."""
    result, left, right = made
    if 0 in left.shape:
        raw_copy(out, 0 if bias is None else bias)
        return
    heavy.matmul(result, _dense(left), _dense(right), bias)
    heavy.keep_product(form, a, b, bias, out, made)


# By type of device: functions (form, a, b, bias) that give the product of operands like those of an earlier one, or None.
known_products: dict[str, Callable[..., Any]] = {"cpu": heavy.known_product}


def _known(form: str) -> Callable[..., Any]:
    """The shortcut of an operator: the whole result, where how to compute it was kept."""
    finder = known_products.get

    def known(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor | None:
        find = finder(a.device.type)
        return None if find is None else find(form, a, b, bias)

    return known


def _column(vec: Tensor) -> Tensor:
    return vec._view((vec.shape[0], 1), (vec._strides[0], 1), vec._offset)


def _in_columns(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a matrix lies in memory column by column; its gradient is laid out like it."""
    return strides[0] == 1 and strides[1] == shape[0]


def _adjoint(t: Tensor) -> Tensor:
    return _conjugate(t.t())


def _conjugate(t: Tensor) -> Tensor:
    return t.conj() if t.dtype.is_complex else t


def _left_grad(g: Tensor, right: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return _conjugate(right).mm(g.t()).t() if _in_columns(shape, strides) else g.mm(_adjoint(right))


def _right_grad(g: Tensor, left: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return g.t().mm(_conjugate(left)).t() if _in_columns(shape, strides) else _adjoint(left).mm(g)


@primitive(
    shortcut=_known("mm"),
    grads={
        "input": lambda g, mat2, input_shape, input_strides: _left_grad(g, mat2, input_shape, input_strides),
        "mat2": lambda g, input, mat2_shape, mat2_strides: _right_grad(g, input, mat2_shape, mat2_strides),
    },
    out="exact",
    autocast="lower",
    flops=work.mm,
    sharding="mk,kn->mn",
)
def mm(input: Tensor, mat2: Tensor) -> NewTensor:
    """The product of two matrices."""
    _need_dims(input, 2, "self must be a matrix")
    _need_dims(mat2, 2, "mat2 must be a matrix")
    (n, k), (k2, m) = input.shape, mat2.shape
    if k != k2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
    _same_dtype(input, mat2)
    _check_device(input, mat2)
    return (n, m), input.dtype, input.device


@mm.on("cpu")
def _(out: Tensor, input: Tensor, mat2: Tensor) -> None:
    _multiply("mm", out, input, mat2, None, (out, input, mat2))


@primitive(
    shortcut=_known("bmm"),
    grads={"input": lambda g, mat2: g.bmm(mat2.mH), "mat2": lambda g, input: input.mH.bmm(g)},
    out="exact",
    autocast="lower",
    flops=work.bmm,
    sharding="bmk,bkn->bmn",
)
def bmm(input: Tensor, mat2: Tensor) -> NewTensor:
    """A batch of matrix products."""
    _need_dims(input, 3, "batch1 must be a 3D tensor")
    _need_dims(mat2, 3, "batch2 must be a 3D tensor")
    (b, n, k), (b2, k2, m) = input.shape, mat2.shape
    if b != b2 or k != k2:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: [{b2}, {k2}]."
        )
    _same_dtype(input, mat2)
    _check_device(input, mat2)
    return (b, n, m), input.dtype, input.device


@bmm.on("cpu")
def _(out: Tensor, input: Tensor, mat2: Tensor) -> None:
    _multiply("bmm", out, input, mat2, None, (out, input, mat2))


@primitive(
    shortcut=_known("mv"),
    grads={"input": lambda g, vec: g.unsqueeze(1) * vec.conj().unsqueeze(0), "vec": lambda g, input: input.mH.mv(g)},
    out="exact",
    autocast_cuda="lower",
    sharding="mk,k->m",
)
def mv(input: Tensor, vec: Tensor) -> NewTensor:
    """A matrix times a vector."""
    if len(input.shape) != 2 or len(vec.shape) != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {len(vec.shape)}, {len(input.shape)}, {len(vec.shape)}"
        )
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({input.shape[0]}), mat ({input.shape[0]}x{input.shape[1]}), vec ({vec.shape[0]})"
        )
    _same_dtype(input, vec)
    _check_device(input, vec)
    return (input.shape[0],), input.dtype, input.device


@mv.on("cpu")
def _(out: Tensor, input: Tensor, vec: Tensor) -> None:
    _multiply("mv", out, input, vec, None, (_column(out), input, _column(vec)))


@primitive(
    shortcut=_known("dot"),
    grads={"input": lambda g, tensor: g * tensor.conj(), "tensor": lambda g, input: g * input.conj()},
    out="exact",
    autocast_cuda="widest",
    sharding="k,k->",
)
def dot(input: Tensor, tensor: Tensor) -> NewTensor:
    """The inner product of two vectors."""
    if len(input.shape) != 1 or len(tensor.shape) != 1:
        raise RuntimeError(f"1D tensors expected, but got {len(input.shape)}D and {len(tensor.shape)}D tensors")
    if input.dtype is not tensor.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {input.dtype.scalar_type} and {tensor.dtype.scalar_type}"
        )
    if input.shape != tensor.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{input.shape[0]}] and src [{tensor.shape[0]}] to have the same number of"
            f" elements, but got {input.shape[0]} and {tensor.shape[0]} elements respectively"
        )
    _check_device(input, tensor)
    return (), input.dtype, input.device


@dot.on("cpu")
def _(out: Tensor, input: Tensor, tensor: Tensor) -> None:
    row = input._view((1, input.shape[0]), (1, input._strides[0]), input._offset)
    _multiply("dot", out, input, tensor, None, (out._view((1, 1), (1, 1), 0), row, _column(tensor)))


@composite(out="exact", autocast_cuda="widest")
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The inner product with the first vector conjugated."""
    return dot(input.conj() if input.dtype.is_complex else input, other)


@primitive(
    grads={"input": lambda g: g.unsqueeze(0)},
    quirks=Quirks(label="SqueezeBackward4"),
    function=False,
    method=False,
    name="without_row",
    batching="each",
)
def without_row(input: Tensor) -> Tensor:
    """The only row of a fresh result. PyTorch squeezes it in place, which its version shows."""
    out = input.reshape(input.shape[1:])
    out._base = None
    out._bump("squeeze_")
    return out


@composite(out="exact", aliases=("linalg.matmul",), autocast="lower")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, broadcast over batch dimensions; vectors stand for rows or columns."""
    if not isinstance(other, Tensor) or not isinstance(input, Tensor):
        need_tensors("matmul", input=input, other=other)
    a, b = len(input.shape), len(other.shape)
    if a == 0 or b == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D")
    if a == 1 and b == 1:
        return dot(input, other)
    if a == 2 and b == 1:
        return mv(input, other)
    if a == 2 and b == 2:
        return mm(input, other)
    if a == 1 and b == 2:
        return without_row(mm(input.unsqueeze(0), other))
    if a >= 3 and b <= 2:  # fold the batch into rows
        rows = input.reshape(_numel(input.shape[:-1]), input.shape[-1])
        if b == 1:
            return unsafe_view(mv(rows, other), tuple(input.shape[:-1]))
        return unsafe_view(mm(rows, other), (*input.shape[:-1], other.shape[-1]))
    if a <= 2 and b >= 3 and input.requires_grad:  # a weight: its gradient is one product instead of a batch of them
        return matmul(other.mT, input) if a == 1 else matmul(other.mT, input.t()).mT.contiguous()
    return _batched(input, other)


def _numel(shape: tuple[int, ...]) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def _batched(input: Tensor, other: Tensor) -> Tensor:
    row = len(input.shape) == 1
    left = input.unsqueeze(0) if row else input
    column = len(other.shape) == 1
    right = other.unsqueeze(1) if column else other
    if left.shape[-1] != right.shape[-2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{_numel(left.shape[:-2])}, {left.shape[-1]}] but got:"
            f" [{_numel(right.shape[:-2])}, {right.shape[-2]}]."
        )
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    n = _numel(batch)
    left3 = left.expand((*batch, *left.shape[-2:])).reshape((n, *left.shape[-2:]))
    right3 = right.expand((*batch, *right.shape[-2:])).reshape((n, *right.shape[-2:]))
    kept = (() if row else (left.shape[-2],)) + (() if column else (right.shape[-1],))
    return unsafe_view(bmm(left3, right3), (*batch, *kept))


def _scaled(t: Tensor, factor: Any) -> Tensor:
    return t if factor == 1 else t * factor


def _whole(t: Tensor, *factors: Any) -> list[Any]:
    """The factors as numbers of the tensor's kind: PyTorch cuts off the fraction in products of integers."""
    return [int(f) if isinstance(f, float) else f for f in factors] if t.dtype.category == 1 else list(factors)


_FACTORS = ("beta", "alpha")


def _combine(input: Tensor, shape: tuple[int, ...], beta: Any, alpha: Any, make: Any) -> Tensor:
    """beta * input + alpha * product; with beta == 0 the input is ignored, NaN and all."""
    beta, alpha = _whole(input, beta, alpha)
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


_sums: dict[tuple, tuple] = {}


def _checked_sum(input: Tensor, mat1: Tensor, mat2: Tensor) -> tuple:
    _need_dims(mat1, 2, f"mat1 must be a matrix, got {len(mat1.shape)}-D tensor")
    _need_dims(mat2, 2, f"mat2 must be a matrix, got {len(mat2.shape)}-D tensor")
    (n, k), (k2, m) = mat1.shape, mat2.shape
    if k != k2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
    _same_dtype_with_bias(input, mat1, mat2)
    _check_expands(input, (n, m))
    _check_device(mat1, mat2, input)
    return (n, m), mat1.dtype, mat1.device


_known_addmm = _known("addmm")


def _addmm_shortcut(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any, alpha: Any) -> Tensor | None:
    return _known_addmm(mat1, mat2, input) if len(input.shape) == 1 and beta == 1 and alpha == 1 else None


@primitive(
    shortcut=_addmm_shortcut,
    grads={
        "input": lambda g, input_shape, beta: _scaled(g, _conj(beta)).sum_to_size(input_shape),
        "mat1": lambda g, mat2, alpha, mat1_shape, mat1_strides: _scaled(
            _left_grad(g, mat2, mat1_shape, mat1_strides), _conj(alpha)
        ),
        "mat2": lambda g, mat1, alpha, mat2_shape, mat2_strides: _scaled(
            _right_grad(g, mat1, mat2_shape, mat2_strides), _conj(alpha)
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
    beta, alpha = _whole(input, beta, alpha)
    if beta == 1 and alpha == 1 and input.shape == out.shape[1:] and input._contig and input.dtype.category >= 2:
        _multiply("addmm", out, mat1, mat2, input, (out, mat1, mat2))
        return
    if out.dtype is not opmath(out.dtype):  # half-width floats: rounded once, at the end
        raw_copy(out, addmm(input.float(), mat1.float(), mat2.float(), beta=beta, alpha=alpha))
        return
    product = _scaled(mm.unseen(mat1, mat2), alpha)
    if beta == 0:
        raw_copy(out, product)
    else:
        _sum_into(out, _scaled(input, beta), product)


_sum_plans: dict[tuple, Any] = {}


def _sum_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out = a + b, where b lies like out. How that is done is kept for each layout: finding it takes longer than a small sum."""
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
    _need_dims(batch1, 3, "batch1 must be a 3D tensor")
    _need_dims(batch2, 3, "batch2 must be a 3D tensor")
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
    _need_dims(batch1, 3, "batch1 must be a 3D tensor")
    _need_dims(batch2, 3, "batch2 must be a 3D tensor")
    if batch1.shape[0] != batch2.shape[0]:
        raise RuntimeError(
            f"batch1 and batch2 must have same number of batches, got {batch1.shape[0]} and {batch2.shape[0]}"
        )
    _same_dtype_with_bias(input, batch1, batch2)
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


@composite(out=True, aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of one vector with an element of the other."""
    if len(input.shape) != 1:
        raise RuntimeError(f"outer: Expected 1-D argument self, but got {len(input.shape)}-D")
    if len(vec2.shape) != 1:
        raise RuntimeError(f"outer: Expected 1-D argument vec2, but got {len(vec2.shape)}-D")
    return input.unsqueeze(1) * vec2


def _autocast_inner(run: Callable, args: tuple, kwargs: dict) -> tuple[str, Callable]:
    """A product of matrices chooses; the inner product of two vectors is a dot product, which does not."""
    operands = (*args, *kwargs.values())
    return ("" if all(len(getattr(t, "shape", ())) < 2 for t in operands) else "parts"), run


@composite(out="exact", autocast=_autocast_inner)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimensions."""
    if not input.shape or not other.shape:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


def _autocast_tensordot(run: Callable, args: tuple, kwargs: dict) -> tuple[str, Callable]:
    """Choose the precision of tensordot under autocast: that of `inner` where nothing of either tensor is left over."""
    bound = dict(zip(("a", "b", "dims"), args), **kwargs)
    a, b, dims = bound.get("a"), bound.get("b"), bound.get("dims", 2)
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return "parts", run  # the operator's to report
    if isinstance(dims, int):
        pair: Any = (range(len(a.shape) - dims, len(a.shape)), range(dims))
    else:
        pair = dims.tolist() if isinstance(dims, Tensor) else dims
    left_over = [_left_over(t, d) for t, d in zip((a, b), pair)]
    return ("" if left_over == [1, 1] else "parts"), run


def _left_over(t: Tensor, contracted: Any) -> int:
    rank = len(t.shape)
    gone = {d % rank for d in ([contracted] if isinstance(contracted, int) else contracted)} if rank else set()
    return math.prod(n for d, n in enumerate(t.shape) if d not in gone)


@composite(method=False, out="exact", autocast=_autocast_tensordot, autocast_cuda="widest")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Contract dimensions of a with dimensions of b."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(len(a.shape), len(b.shape)):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims_a, dims_b = list(range(len(a.shape) - dims, len(a.shape))), list(range(dims))
    else:
        dims_a, dims_b = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(dims_a) != len(dims_b):
        raise RuntimeError("both dimension lists should have same length")
    dims_a, dims_b = [d % len(a.shape) for d in dims_a], [d % len(b.shape) for d in dims_b]
    for x, y in zip(dims_a, dims_b):
        if a.shape[x] != b.shape[y] and 1 not in (a.shape[x], b.shape[y]):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[x]} in dim {x} and second has size {b.shape[y]} in"
                f" dim {y}"
            )
        if a.shape[x] != b.shape[y]:  # a size-one side broadcasts: sum the other first
            # in their own dtype: sums of integers would be int64
            a, b = (a.sum(x, True, dtype=a.dtype), b) if b.shape[y] == 1 else (a, b.sum(y, True, dtype=b.dtype))
    free_a = [d for d in range(len(a.shape)) if d not in dims_a]
    free_b = [d for d in range(len(b.shape)) if d not in dims_b]
    k = _numel(tuple(a.shape[d] for d in dims_a))
    left = a.permute(*free_a, *dims_a).reshape(_numel(tuple(a.shape[d] for d in free_a)), k)
    right = b.permute(*dims_b, *free_b).reshape(k, _numel(tuple(b.shape[d] for d in free_b)))
    return mm(left, right).reshape([a.shape[d] for d in free_a] + [b.shape[d] for d in free_b])


def _linear_input_grad(g: Tensor, weight: Tensor) -> Tensor:
    return g.matmul(weight.conj() if weight.dtype.is_complex else weight)


def _linear_weight_grad(g: Tensor, input: Tensor) -> Tensor:
    input = input.conj() if input.dtype.is_complex else input
    count = _numel(g.shape[:-1])
    rows = g.reshape(count, g.shape[-1])
    return rows.mT.mm(input.reshape(count, input.shape[-1])) if len(g.shape) != 1 else g.outer(input)


def _linear_parameter_grads(g: Tensor, input: Tensor, bias_shape: Any) -> tuple:
    """The gradients of bias and weight: together where a library sums rows while it multiplies, and nobody differentiates them."""
    if not _fused or g.device.type not in _fused or grad_mode.enabled or not type(g) is type(input) is Tensor:
        return g.sum_to_size(bias_shape), _linear_weight_grad(g, input)
    count = _numel(g.shape[:-1])
    return linear_grads(g.reshape(count, g.shape[-1]), input.reshape(count, input.shape[-1]))[::-1]


@internal(returns=tuple, batching="each", flops=work.mm, beside=True)
def linear_weight_grads(g: Tensor, input: Tensor) -> NewTensors:
    """The gradient of a linear layer's weight: g.T @ input."""
    return [((g.shape[1], input.shape[1]), g.dtype, g.device)]


@linear_weight_grads.on("any")
def _(out: list[Tensor], g: Tensor, input: Tensor) -> None:
    raw_copy(out[0], g._bare_alias().mT.mm(input._bare_alias()))


@internal(
    returns=tuple,
    sums=True,
    batching="each",
    aten="mm",
    flops=work.mm,
    summed=("g", linear_weight_grads, sum_),
    beside=True,
)
def linear_grads(g: Tensor, input: Tensor) -> NewTensors:
    """The gradients of a linear layer's weight and bias, from that of its result and the input, both as matrices: g.T @ input, and the
    sum of g's rows."""
    return [((g.shape[1], input.shape[1]), g.dtype, g.device), ((g.shape[1],), g.dtype, g.device)]


_fused = linear_grads.op.kernels  # of devices whose library does both


@internal(
    shortcut=_known("linear"),
    grads={
        "bias": lambda g, bias_shape: g.sum_to_size(bias_shape),
        "input": _linear_input_grad,
        "weight": _linear_weight_grad,
        ("bias", "weight"): _linear_parameter_grads,
    },
    quirks=Quirks(label="AddmmBackward0"),
    aten="addmm",
    flops=work.linear,
    sharding="...k,nk,+n->...n",
)
def linear_matrix(input: Tensor, weight: Tensor, bias: Tensor | None) -> NewTensor:
    """input @ weight.T + bias for a weight of two dimensions, batch dimensions folded into rows."""
    _check_linear(input, weight, bias)
    _check_device(input, weight, bias)
    return (*input.shape[:-1], weight.shape[0]), input.dtype, input.device


@linear_matrix.op.as_aten
def _(recorder: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    aten, rank = recorder.aten, len(input.shape)
    if rank != 2 and not input.is_contiguous():
        product = recorder.again(matmul if weight.requires_grad else _batched, (input, aten.t.default(weight)), {})
        return product if bias is None else aten.add.Tensor(product, bias)
    rows = input if rank == 2 else aten.view.default(input, [_numel(input.shape[:-1]), input.shape[-1]])
    turned = aten.t.default(weight)
    product = aten.mm.default(rows, turned) if bias is None else aten.addmm.default(bias, rows, turned)
    return product if rank == 2 else aten.view.default(product, [*input.shape[:-1], weight.shape[0]])


@linear_matrix.on("cpu")
def _(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    k, m = input.shape[-1], weight.shape[0]
    rows = input if len(input.shape) == 2 else input.reshape(_numel(input.shape[:-1]), k)
    result = out if len(input.shape) == 2 else out._view((rows.shape[0], m), (m, 1), 0)
    _multiply("linear", out, input, weight, bias, (result, rows, weight.t()))


@composite(method=False, namespaces=("nn.functional",), out="exact", autocast="lower", sharding="...k,nk,+n->...n")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias"""
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        need_tensors("linear", input=input, weight=weight)
    if len(weight.shape) == 1:
        out = input.matmul(weight)
        return out if bias is None else out + bias
    if len(weight.shape) != 2:
        raise RuntimeError(f"linear(): weight must be a matrix or a vector, got shape {list(weight.shape)}")
    if bias is None or (isinstance(bias, Tensor) and bias.shape == (weight.shape[0],) and _is_dense(bias)):
        return linear_matrix(input, weight, bias)
    need_tensors("linear", input=input, weight=weight, bias=bias)
    _check_linear(input, weight, bias)
    return linear_matrix(input, weight, None) + bias.expand((*input.shape[:-1], weight.shape[0]))


def _is_dense(t: Tensor) -> bool:
    return t.is_contiguous() if modes.active else t._contig  # a tensor that only a mode knows may have no memory


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """PyTorch's errors about shapes and dtypes that do not fit together."""
    if not input.shape:
        raise RuntimeError("both arguments to linear need to be at least 1D, but they are 0D and 2D")
    if input.shape[-1] != weight.shape[1]:
        rows, cols = _numel(input.shape[:-1]), input.shape[-1]
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{cols} and {weight.shape[1]}x{weight.shape[0]})"
        )
    if bias is None:
        _same_dtype(input, weight)
    else:
        _same_dtype_with_bias(bias, input, weight)
