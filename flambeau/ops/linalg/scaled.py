"""Fused matrix products: scaled 8-bit factors, and an activation of the result."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..machinery.declare import composite, internal, primitive
from ..machinery.inplace import raw_copy
from ..machinery.memory import recording
from ..machinery.record import NewTensor
from ..pointwise.activation import gelu, relu
from .addmm import addmm


def is_by_rows(scale_a: Tensor, scale_b: Tensor, rows: int, columns: int) -> bool:
    """Return whether every row of the first factor and every column of the second has a scale of its own."""
    return tuple(scale_a.shape) == (rows, 1) and tuple(scale_b.shape) == (1, columns) and rows * columns > 1


@primitive(name="_scaled_mm", method=False, batching="each")
def scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> NewTensor:
    """(input * scale_a) @ (mat2 * scale_b) + bias, for factors of float8."""
    for name, t in (("mat1", input), ("mat2", mat2)):
        if len(t.shape) != 2:
            raise RuntimeError(f"{name} must be a matrix")
    (n, k), (k2, m) = input.shape, mat2.shape
    if k != k2:
        raise RuntimeError(f"mat_a and mat_b shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
    whole = scale_a.numel() == 1 and scale_b.numel() == 1
    floats = scale_a.dtype is dt.float32 and scale_b.dtype is dt.float32
    eights = input.dtype in dt.FLOAT8 and mat2.dtype in dt.FLOAT8
    if not eights or not floats or not (whole or is_by_rows(scale_a, scale_b, n, m)):
        raise ValueError(
            "Invalid scaling configuration.\n- For TensorWise scaling, a and b should be float8, scales should be float and"
            " singletons.\n- For RowWise scaling, a and b should be float8, scales should be float, scale_a should be"
            f" ({n}, 1) and scale_b should be (1, {m}), and both should be contiguous."
        )
    return (n, m), input.dtype if out_dtype is None else out_dtype, input.device


@scaled_mm.on("any")
def scaled_by_operators(
    out: Tensor, input: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any, out_dtype: Any,
    use_fast_accum: bool,
) -> None:  # fmt: skip
    found = (input.float() * scale_a) @ (mat2.float() * scale_b)
    if bias is not None:
        found = found + bias.float()
    if scale_result is not None and out.dtype in dt.FLOAT8:
        found = found * scale_result
    raw_copy(out, found.to(out.dtype))


# -- activations ------------------------------------------------------------------------------------------------------------


@internal(batching="each")
def activated_product(input: Tensor, mat1: Tensor, mat2: Tensor, use_gelu: bool) -> NewTensor:
    """gelu or relu of a bias row plus a product."""
    return addmm.op.layout(input, mat1, mat2)


@activated_product.on("any")
def _(out: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor, use_gelu: bool) -> None:
    raw_copy(out, _activated(addmm(input, mat1, mat2), use_gelu))


def _activated(t: Any, use_gelu: bool) -> Any:
    return gelu(t) if use_gelu else relu(t)


@composite(name="_addmm_activation", method=False)
def addmm_activation(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Tensor:
    """relu, or gelu, of beta * input + alpha * mat1 @ mat2; one kernel if a library has it."""
    plain = beta == 1 and alpha == 1 and input._contig and len(input.shape) == 1
    if plain and not any(recording(t) for t in (input, mat1, mat2)):
        return activated_product(input, mat1, mat2, use_gelu)
    return _activated(addmm(input, mat1, mat2, beta=beta, alpha=alpha), use_gelu)
