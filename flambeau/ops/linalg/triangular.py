"""Systems with triangular matrices."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...backends.cpu import lapack
from ...core.layout import contiguous_format
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..machinery.declare import composite, internal
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from . import support


def _triangle(A: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    return A.triu(int(unitriangular)) if upper else A.tril(-int(unitriangular))


def _gradients(
    g: Tensor,
    A: Tensor,
    out: Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
    needs: dict[str, bool],
    B_shape: Any,
) -> tuple[Any, ...]:
    back = solve_triangular(A.mH, g, upper=not upper, left=left, unitriangular=unitriangular)
    for_a = None
    if needs["A"]:
        product = back @ out.mH if left else out.mH @ back
        for_a = _triangle((-product).sum_to_size(A.shape), upper, unitriangular)
    return for_a, back.sum_to_size(B_shape) if needs["B"] else None


@internal(grads={("A", "B"): _gradients}, quirks=Quirks(label="LinalgSolveTriangularBackward0"), batching="leading")
def triangular_solution(A: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> NewTensor:
    """X with A X = B (or X A = B), A triangular."""
    return support.columns((*support.batch_of(A, B), *B.shape[-2:]), A.dtype, A.device)


@triangular_solution.on("cpu")
def _(out: Tensor, A: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> None:
    a, b = A._array(), B._array()
    if left:
        support.store(out, lapack.solve_triangular(a, b, upper, unitriangular))
        return
    a, b = np.swapaxes(a, -2, -1), np.swapaxes(b, -2, -1)
    support.store(out, np.swapaxes(lapack.solve_triangular(a, b, not upper, unitriangular), -2, -1))


@composite(namespaces=("linalg",), method=False, out="exact", batching="leading")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with A X = B (or X A = B), A triangular; the other triangle is not read."""
    name = "linalg.solve_triangular"
    support.check_square(name, A)
    support.check_matrix(name, B, "B")
    support.check_same_dtype(name, A, B)
    support.check_equation(name, A, B, left)
    support.check_kernel("triangular_solve_cpu", A)
    return triangular_solution(A, B, bool(upper), bool(left), bool(unitriangular))


_triangular_result = named_result("triangular_solve", "solution", "cloned_coefficient")


@composite(out="exact", autocast="float32")
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """The older form of linalg.solve_triangular: (solution, a copy of A)."""
    warnings.warn(
        "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular and will be removed in a future"
        " PyTorch release.",
        UserWarning,
        stacklevel=3,
    )
    support.require("triangular_solve", "input", input)
    support.require("triangular_solve", "A", A, 2)
    if len(input.shape) < 2 or len(A.shape) < 2:
        which, t = ("b", input) if len(input.shape) < 2 else ("A", A)
        raise RuntimeError(
            f"torch.triangular_solve: Expected {which} to have at least 2 dimensions, but it has {len(t.shape)} dimensions"
            " instead"
        )
    check_legacy("triangular_solve", input, A)
    copy = A.expand((*support.batch_of(A, input), *A.shape[-2:])).mT.clone(memory_format=contiguous_format).mT
    matrix = copy.mT if transpose else copy
    upper = upper != transpose
    return _triangular_result((solve_triangular(matrix, input, upper=upper, unitriangular=unitriangular), copy))


def check_legacy(name: str, b: Tensor, A: Tensor) -> None:
    """Check the shapes of the older solvers."""
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} matrices"
        )
    if A.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {A.shape[-1]} by {A.shape[-1]} but each b matrix is"
            f" {b.shape[-2]} by {b.shape[-1]}"
        )
    support.check_same_dtype(name, b, A, "b", "A")
