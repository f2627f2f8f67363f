"""Matrix products of groups of rows, each with a matrix of its own, as in a mixture of experts."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..machinery.declare import composite, primitive
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from .matmul import mm

_KINDS = {dt.float32, dt.bfloat16, dt.float16}


def _grouped_layout(input: Tensor, mat2: Tensor, offs: Any, bias: Any, out_dtype: Any) -> tuple[Any, ...]:
    for name, t in (("mat_a", input), ("mat_b", mat2)):
        if t.dtype not in _KINDS:
            kind = "Double" if t.dtype is dt.float64 else t.dtype.cpp
            raise RuntimeError(f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {kind}")
        if len(t.shape) not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    a, b = tuple(input.shape), tuple(mat2.shape)
    if len(a) == len(b) == 3 and a[0] != b[0]:
        raise RuntimeError("batched dimension has to match")
    if a[-1] != b[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if (offs is None) != (len(a) == len(b) == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if offs is not None:
        if len(offs.shape) != 1:
            raise RuntimeError("offs has to be 1D")
        if offs.dtype is not dt.int32:
            raise RuntimeError("Offsets have to be int32")
        groups = {t.shape[0] for t in (input, mat2) if len(t.shape) == 3}
        if groups and groups != {offs.shape[0]}:
            raise RuntimeError("matrix batch sizes have to match")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and out_dtype is not input.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if input.dtype is not mat2.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {input.dtype.cpp} != {mat2.dtype.cpp}")
    return _result_shape(a, b, offs), input.dtype, input.device


def _result_shape(a: tuple[Any, ...], b: tuple[Any, ...], offs: Any) -> tuple[int, ...]:
    if len(a) == len(b) == 2:
        return (offs.shape[0], a[0], b[1])
    return (a[-2], b[-1]) if min(len(a), len(b)) == 2 else (a[0], a[1], b[2])


def _left_grad(g: Tensor, mat2: Tensor, offs: Any) -> Tensor:
    return grouped_mm(g, mat2.mT, offs)


def _right_grad(g: Tensor, input: Tensor, offs: Any) -> Tensor:
    return grouped_mm(input.mT, g, offs)


@primitive(
    name="_grouped_mm",
    method=False,
    layout=_grouped_layout,
    grads={"input": _left_grad, "mat2": _right_grad},
    batching="each",
    quirks=Quirks(label="GroupedMmBackward0"),
    onnx="ONNX has no product of groups",
)
def grouped_mm(
    input: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Products of groups: group i ends at `offs[i]` along the rows of a two-dimensional `input` (with a two-dimensional `mat2`: along its
    columns and the rows of mat2). Group i of a three-dimensional factor is its matrix i."""


@grouped_mm.on("any")
def _(out: Tensor, input: Tensor, mat2: Tensor, offs: Any, bias: Any, out_dtype: Any) -> None:
    a, b = input.detach(), mat2.detach()
    start = 0
    ends = range(1, len(a) + 1) if offs is None else offs.tolist()
    for i, end in enumerate(ends):
        if len(a.shape) == 3:
            left, right = a[i], b[i] if len(b.shape) == 3 else b[:, start:end]
        elif len(b.shape) == 3:
            left, right = a[start:end], b[i]
        else:
            left, right = a[:, start:end], b[start:end]
        part = out[i] if len(out.shape) == 3 else out[start:end] if len(a.shape) == 2 else out[:, start:end]
        if part.numel():
            raw_copy(part, mm(left, right))
        start = end
    if offs is not None and len(out.shape) == 2:  # PyTorch leaves the memory after the last group unchanged
        dim = 0 if len(a.shape) == 2 else 1
        out.narrow(dim, start, max(out.shape[dim] - start, 0)).zero_()


@composite(name="grouped_mm", namespaces=("nn.functional",), method=False)
def functional_grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Products of groups: group i ends at `offs[i]` along the rows of a two-dimensional `mat_a` (with a two-dimensional `mat_b`: along its
    columns and the rows of mat_b). Group i of a three-dimensional factor is its matrix i."""
    return grouped_mm(mat_a, mat_b, offs, bias, out_dtype)
