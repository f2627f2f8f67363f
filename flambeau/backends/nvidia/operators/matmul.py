"""Matrix products on NVIDIA GPUs, by cuBLASLt."""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor, empty
from ....ops.linalg.addmm import addmm
from ....ops.linalg.linear import linear_grads, linear_matrix, linear_weight_grads
from ....ops.linalg.matmul import bmm, column, dot, known_products, mm, mv
from ....ops.linalg.scaled import activated_product, is_by_rows, scaled_by_operators, scaled_mm
from ....ops.machinery.dtype_rules import unsupported
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense
from .. import cublas, cublaslt

known_products["cuda"] = cublaslt.known_product


def _takes(name: str, t: Tensor) -> None:
    """Raise PyTorch's error for dtypes without matrix products in the library, such as integers."""
    if t.dtype not in cublaslt.DATA_TYPES or t.dtype.itemsize == 1:
        raise unsupported(name, t.dtype)


def _matrix(t: Tensor) -> Tensor:
    return t if cublaslt.matrix_order(t.shape, t._strides) is not None else dense(t)


def product(
    name: str, out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None = None, alpha: Any = 1, beta: Any = 0
) -> Any:
    """Compute out = alpha * a @ b + beta * out, plus a row of bias. Return the plan, if it is known and has no other operands."""
    plan = cublaslt.known_plan(out, a, b, bias, alpha, beta)
    if plan is not None:
        cublaslt.run(plan, out, a, b, bias)
        return plan
    _takes(name, a)
    if 0 in a.shape:
        if bias is not None or beta == 0:
            raw_copy(out, 0 if bias is None else bias)
        elif beta != 1:
            out.mul_(beta)
        return None
    if cublaslt.matrix_order(out.shape, out._strides) is None:  # written elsewhere first
        whole = dense(out)
        product(name, whole, a, b, bias, alpha, beta)
        raw_copy(out, whole)
        return None
    a, b = _matrix(a), _matrix(b)
    if bias is not None and (a.dtype not in cublaslt.BIASED or not _by_rows(out) or 1 in b.shape[-2:]):
        raw_copy(out, bias)
        bias, beta = None, 1
    cublaslt.matmul(out, a, b, bias, "", alpha, beta)
    return None


def _by_rows(t: Tensor) -> bool:
    order = cublaslt.matrix_order(t.shape, t._strides)
    return order is not None and order[0]


@mm.on("cuda")
def _(out: Tensor, input: Tensor, mat2: Tensor) -> None:
    cublaslt.keep_product("mm", input, mat2, None, out, product("addmm_cuda", out, input, mat2))


@bmm.on("cuda")
def _(out: Tensor, input: Tensor, mat2: Tensor) -> None:
    cublaslt.keep_product("bmm", input, mat2, None, out, product("baddbmm_cuda", out, input, mat2))


@mv.on("cuda")
def _(out: Tensor, input: Tensor, vec: Tensor) -> None:
    product("addmv_impl_cuda", column(out), input, column(vec))


@dot.on("cuda")
def _(out: Tensor, input: Tensor, tensor: Tensor) -> None:
    _takes("dot", input)
    n = input.shape[0]
    if not n:
        raw_copy(out, 0)
        return
    x, y = (t if t._strides[0] > 0 or n == 1 else dense(t) for t in (input, tensor))
    steps = [max(t._strides[0], 1) for t in (x, y)]
    cublas.dot(out.data_ptr(), n, x.data_ptr(), steps[0], y.data_ptr(), steps[1], out.dtype, out.device)


@addmm.on("cuda")
def _(out: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any, alpha: Any) -> None:
    if beta == 1 and alpha == 1 and input.shape == out.shape[1:] and input._contig:
        cublaslt.keep_product("addmm", mat1, mat2, input, out, product("addmm_cuda", out, mat1, mat2, input))
        return
    if beta != 0:
        raw_copy(out, input)
    product("addmm_cuda", out, mat1, mat2, None, alpha, beta)


@linear_matrix.on("cuda")
def _(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    k, m = weight.shape[1], weight.shape[0]
    turned = weight._view((k, m), (weight._strides[1], weight._strides[0]), weight._offset)
    if len(input.shape) == 2:
        cublaslt.keep_product("linear", input, weight, bias, out, product("addmm_cuda", out, input, turned, bias))
        return
    n = 1
    for size in input.shape[:-1]:
        n *= size
    rows = input._view((n, k), (k, 1), input._offset) if input._contig else input.reshape(n, k)
    plan = product("addmm_cuda", out._view((n, m), (m, 1), out._offset), rows, turned, bias)
    if rows._storage is input._storage:
        cublaslt.keep_product("linear", input, weight, bias, out, plan)


def _turned(g: Tensor) -> Tensor:
    return g._view((g.shape[1], g.shape[0]), (g._strides[1], g._strides[0]), g._offset)


@linear_weight_grads.on("cuda")
def _(out: list[Tensor], g: Tensor, input: Tensor) -> None:
    product("addmm_cuda", out[0], _turned(g), input)


@linear_grads.on("cuda")
def _(out: list[Tensor], g: Tensor, input: Tensor) -> None:
    weight, bias = out
    turned = _turned(g)
    if not cublaslt.sum_columns(weight, turned, input, bias):
        product("addmm_cuda", weight, turned, input)
        raw_copy(bias, g._bare_alias().sum(0))


@activated_product.on("cuda")
def _(out: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor, use_gelu: bool) -> None:
    if 0 in mat1.shape or out.dtype not in cublaslt.BIASED or 1 in (*out.shape, mat2.shape[0]):
        activated_product.op.kernels["any"](out, input, mat1, mat2, use_gelu)
    else:
        cublaslt.matmul(out, _matrix(mat1), _matrix(mat2), input, "gelu" if use_gelu else "relu")


@scaled_mm.on("cuda")
def _(
    out: Tensor, input: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any, out_dtype: Any,
    use_fast_accum: bool,
) -> None:  # fmt: skip
    (n, k), m = input.shape, mat2.shape[1]
    for name, size, shape in (("mat1", k, (n, k)), ("mat2", m, (k, m))):
        if size % 16:
            raise RuntimeError(
                f"Trailing dimension of {name} must be divisible by 16 but got {name} shape: ({shape[0]}x{shape[1]})"
            )
    if input.dtype is mat2.dtype is _E5M2:  # no kernel of the library takes two of these
        scaled_by_operators(out, input, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
        return
    if is_by_rows(scale_a, scale_b, n, m) or out.dtype in dt.FLOAT8:
        wide: Any = empty((n, m), dt.float32, out.device)
        ones = scale_a.new_ones(())
        _eight_bits(wide, input, mat2, (ones, ones))
        found: Any = wide * scale_a * scale_b if bias is None else wide * scale_a * scale_b + bias
        if scale_result is not None and out.dtype in dt.FLOAT8:
            found = found * scale_result
        raw_copy(out, found)
        return
    _eight_bits(out, input, mat2, (dense(scale_a), dense(scale_b)))
    if bias is not None:
        out.add_(bias)


_E5M2 = dt.BY_NAME["float8_e5m2"]


def _eight_bits(out: Tensor, a: Any, b: Any, scales: tuple[Any, ...]) -> None:
    """Multiply a, stored by rows, by b, stored by columns: the only layouts in which the library takes 8-bit factors."""
    a = a if a._strides[1] == 1 else a.contiguous()
    b = b if b._strides[0] == 1 else b.t().contiguous().t()
    cublaslt.matmul(out, a, b, scales=scales)
