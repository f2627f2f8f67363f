"""Matrix products: mm, bmm, matmul, addmm and relatives, linear."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...backends.cpu import heavy
from ...core.aliases import AnyFunction
from ...core.layout import broadcast_shapes, has_internal_overlap, wrap_dim
from ...core.tensor import Tensor
from ..machinery import work
from ..machinery.arguments import need_tensors
from ..machinery.declare import composite, primitive
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..shape.dimensions import expand_to
from ..shape.reshape import reshaped, unsafe_view


def same_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype.cpp} != {b.dtype.cpp}")


def same_dtype_with_bias(bias: Tensor, mat1: Tensor, mat2: Tensor) -> None:
    for name, t in (("self", bias), ("mat1", mat1)):
        if t.dtype is not mat2.dtype:
            raise RuntimeError(
                f"{name} and mat2 must have the same dtype, but got {t.dtype.scalar_type} and {mat2.dtype.scalar_type}"
            )


def need_dims(t: Tensor, dims: int, message: str) -> None:
    if len(t.shape) != dims:
        raise RuntimeError(message)


def _dense(t: Tensor) -> Tensor:
    """Return a matrix, or a copy of one with repeated rows or columns (the gradient of a sum), which no library accepts."""
    repeats = 0 in t._strides and has_internal_overlap(t.shape[-2:], t._strides[-2:])
    return t.contiguous() if repeats else t


def check_device(a: Tensor, *others: Tensor | None) -> None:
    for t in others:
        if t is not None and t.device is not a.device:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices,"
                f" {a.device} and {t.device}!"
            )


def multiply(form: str, out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None, made: tuple[Any, ...]) -> None:
    """Compute the product of the matrices `made` (result, left, right), which are out, a and b as matrices, and cache it, so that later calls
    like this one use `known_product`."""
    result, left, right = made[0], _dense(made[1]), _dense(made[2])
    if 0 in left.shape:
        raw_copy(out, 0 if bias is None else bias)
        return
    heavy.matmul(result, left, right, bias)
    heavy.keep_product(form, a, b, bias, out, made)


# By type of device: functions (form, a, b, bias) that return the product of operands like those of an earlier one, or None.
known_products: dict[str, Callable[..., Any]] = {"cpu": heavy.known_product}


def shortcut_of(form: str) -> Callable[..., Any]:
    """Return the shortcut of an operator: it computes the whole result if the way to do so is cached."""
    finder = known_products.get

    def known(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor | None:
        find = finder(a.device.type)
        return None if find is None else find(form, a, b, bias)

    return known


def column(vec: Tensor) -> Tensor:
    """Return a vector as a matrix of one column, without recording the view."""
    return vec._view((vec.shape[0], 1), (vec._strides[0], 1), vec._offset)


def _in_columns(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a matrix is stored column by column; its gradient has the same layout."""
    return strides[0] == 1 and strides[1] == shape[0]


def _adjoint(t: Tensor) -> Tensor:
    return _conjugate(t.t())


def _conjugate(t: Tensor) -> Tensor:
    return t.conj() if t.dtype.is_complex else t


def left_grad(g: Tensor, right: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return _conjugate(right).mm(g.t()).t() if _in_columns(shape, strides) else g.mm(_adjoint(right))


def right_grad(g: Tensor, left: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return g.t().mm(_conjugate(left)).t() if _in_columns(shape, strides) else _adjoint(left).mm(g)


@primitive(
    shortcut=shortcut_of("mm"),
    grads={
        "input": lambda g, mat2, input_shape, input_strides: left_grad(g, mat2, input_shape, input_strides),
        "mat2": lambda g, input, mat2_shape, mat2_strides: right_grad(g, input, mat2_shape, mat2_strides),
    },
    out="exact",
    autocast="lower",
    flops=work.mm,
    sharding="mk,kn->mn",
    beside=lambda input, mat2: input._strides[0] == 1 < input._strides[1],  # as the gradient of a weight is
)
def mm(input: Tensor, mat2: Tensor) -> NewTensor:
    """The product of two matrices."""
    need_dims(input, 2, "self must be a matrix")
    need_dims(mat2, 2, "mat2 must be a matrix")
    (n, k), (k2, m) = input.shape, mat2.shape
    if k != k2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
    same_dtype(input, mat2)
    check_device(input, mat2)
    return (n, m), input.dtype, input.device


@mm.on("cpu")
def _(out: Tensor, input: Tensor, mat2: Tensor) -> None:
    multiply("mm", out, input, mat2, None, (out, input, mat2))


@primitive(
    shortcut=shortcut_of("bmm"),
    grads={"input": lambda g, mat2: g.bmm(mat2.mH), "mat2": lambda g, input: input.mH.bmm(g)},
    out="exact",
    autocast="lower",
    flops=work.bmm,
    sharding="bmk,bkn->bmn",
)
def bmm(input: Tensor, mat2: Tensor) -> NewTensor:
    """A batch of matrix products."""
    need_dims(input, 3, "batch1 must be a 3D tensor")
    need_dims(mat2, 3, "batch2 must be a 3D tensor")
    (b, n, k), (b2, k2, m) = input.shape, mat2.shape
    if b != b2 or k != k2:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: [{b2}, {k2}]."
        )
    same_dtype(input, mat2)
    check_device(input, mat2)
    return (b, n, m), input.dtype, input.device


@bmm.on("cpu")
def _(out: Tensor, input: Tensor, mat2: Tensor) -> None:
    multiply("bmm", out, input, mat2, None, (out, input, mat2))


@primitive(
    shortcut=shortcut_of("mv"),
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
    same_dtype(input, vec)
    check_device(input, vec)
    return (input.shape[0],), input.dtype, input.device


@mv.on("cpu")
def _(out: Tensor, input: Tensor, vec: Tensor) -> None:
    multiply("mv", out, input, vec, None, (column(out), input, column(vec)))


@primitive(
    shortcut=shortcut_of("dot"),
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
    check_device(input, tensor)
    return (), input.dtype, input.device


@dot.on("cpu")
def _(out: Tensor, input: Tensor, tensor: Tensor) -> None:
    row = input._view((1, input.shape[0]), (1, input._strides[0]), input._offset)
    multiply("dot", out, input, tensor, None, (out._view((1, 1), (1, 1), 0), row, column(tensor)))


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
    """Return the only row of a new result. PyTorch squeezes it in place, which its version shows."""
    out = input.reshape(input.shape[1:])
    out._base = None
    out._bump("squeeze_")
    return out


@without_row.op.as_aten
def _(recorder: Any, input: Tensor) -> Tensor:
    return recorder.aten.squeeze.dim(input, 0)


@composite(out="exact", aliases=("linalg.matmul",), autocast="lower")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, broadcast over batch dimensions; vectors count as rows or columns."""
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
        rows = input.reshape(numel(input.shape[:-1]), input.shape[-1])
        if b == 1:
            return unsafe_view(mv(rows, other), tuple(input.shape[:-1]))
        return unsafe_view(mm(rows, other), (*input.shape[:-1], other.shape[-1]))
    if a <= 2 and b >= 3 and input.requires_grad:  # a weight: its gradient is one product instead of a batch of them
        return matmul(other.mT, input) if a == 1 else matmul(other.mT, input.t()).mT.contiguous()
    return batched(input, other)


def numel(shape: Sequence[int]) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def batched(input: Tensor, other: Tensor) -> Tensor:
    row = len(input.shape) == 1
    left = input.unsqueeze(0) if row else input
    column = len(other.shape) == 1
    right = other.unsqueeze(1) if column else other
    *left_batch, m, k = left.shape
    *right_batch, expected, n = right.shape
    if k != expected:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{numel(left_batch)}, {k}] but got:"
            f" [{numel(right_batch)}, {expected}]."
        )
    batch = left_batch if left_batch == right_batch else broadcast_shapes(tuple(left_batch), tuple(right_batch))
    count = numel(batch)
    left3 = reshaped(expand_to(left, (*batch, m, k)), (count, m, k))
    right3 = reshaped(expand_to(right, (*batch, k, n)), (count, k, n))
    kept = (() if row else (m,)) + (() if column else (n,))
    return unsafe_view(bmm(left3, right3), (*batch, *kept))


@composite(out=True, aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of one vector with an element of the other."""
    if len(input.shape) != 1:
        raise RuntimeError(f"outer: Expected 1-D argument self, but got {len(input.shape)}-D")
    if len(vec2.shape) != 1:
        raise RuntimeError(f"outer: Expected 1-D argument vec2, but got {len(vec2.shape)}-D")
    return input.unsqueeze(1) * vec2


def _autocast_inner(run: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, AnyFunction]:
    """Choose the precision of inner under autocast: that of a matrix product; for two vectors it is a dot product, which is not cast."""
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


def _autocast_tensordot(run: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, AnyFunction]:
    """Choose the precision of tensordot under autocast: that of `inner` if no dimensions of either tensor remain."""
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
    dims_a, dims_b = ([wrap_dim(d, len(t.shape)) for d in dims] for t, dims in ((a, dims_a), (b, dims_b)))
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
    k = numel(tuple(a.shape[d] for d in dims_a))
    left = a.permute(*free_a, *dims_a).reshape(numel(tuple(a.shape[d] for d in free_a)), k)
    right = b.permute(*dims_b, *free_b).reshape(k, numel(tuple(b.shape[d] for d in free_b)))
    return mm(left, right).reshape([a.shape[d] for d in free_a] + [b.shape[d] for d in free_b])


@tensordot.op.in_script
def _(recorder: Any, a: Tensor, b: Tensor, dims: int = 2) -> Tensor:
    return recorder.aten.tensordot(a, b, list(range(a.dim() - dims, a.dim())), list(range(dims)))


@tensordot.op.in_script
def _(recorder: Any, a: Tensor, b: Tensor, dims: tuple[list[int], list[int]]) -> Tensor:
    return recorder.aten.tensordot(a, b, dims[0], dims[1])


@tensordot.op.in_script
def _(recorder: Any, a: Tensor, b: Tensor, dims: list[list[int]]) -> Tensor:
    return recorder.aten.tensordot(a, b, dims[0], dims[1])


@tensordot.op.in_script
def _(recorder: Any, a: Tensor, b: Tensor, dims: Tensor) -> Tensor:
    pair: list[list[int]] = dims.tolist()
    return recorder.aten.tensordot(a, b, pair[0], pair[1])
