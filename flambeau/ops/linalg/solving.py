"""Systems of linear equations and inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.cpu import lapack
from ...core import dtype as dt
from ...core.layout import broadcast_shapes
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..machinery.declare import composite, internal
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensors
from . import support

# -- solve ------------------------------------------------------------------------------------------------------------


def is_vector(A: Tensor, B: Tensor) -> bool:
    """Return whether B is one right-hand side per matrix instead of a matrix of them."""
    return len(B.shape) == 1 or (len(A.shape) - 1 == len(B.shape) and B.shape == A.shape[:-1])


def _gradients(
    g: tuple[Any, ...], A: Tensor, out: list[Tensor], left: bool, needs: dict[str, bool], B_shape: Any
) -> tuple[Any, ...]:
    back, X = solve(A.mH, g[0], left=left), out[0]
    vector = len(B_shape) == 1 or (len(A.shape) - 1 == len(B_shape) and B_shape == A.shape[:-1])
    for_a = None
    if needs["A"]:
        product = back.unsqueeze(-1) * X.conj().unsqueeze(-2) if vector else back @ X.mH if left else X.mH @ back
        for_a = (-product).sum_to_size(A.shape)
    return for_a, back.sum_to_size(B_shape) if needs["B"] else None


_solve_result = named_result("linalg_solve_ex", "result", "info")


@internal(
    returns=_solve_result, grads={("A", "B"): _gradients}, aten="_linalg_solve_ex(A, B, left, False)[0, 3]",
    quirks=Quirks(label="LinalgSolveExBackward0"), batching="leading",
)  # fmt: skip
def solution(A: Tensor, B: Tensor, left: bool) -> NewTensors:
    """X with A X = B (or X A = B), and the first zero pivot of each matrix."""
    own = B.shape[-1:] if is_vector(A, B) else B.shape[-2:]
    batch = tuple(broadcast_shapes(A.shape[:-2], B.shape[: -len(own)]))
    shape = (*batch, *own)
    by_columns = left and len(shape) > 1
    found = support.columns(shape, A.dtype, A.device) if by_columns else (shape, A.dtype, A.device)
    return [found, (batch, dt.int32, A.device)]


@solution.on("cpu")
def _(out: list[Tensor], A: Tensor, B: Tensor, left: bool) -> None:
    a, b = A._array(), B._array()
    vector = is_vector(A, B)
    if vector:
        b = b[..., None]
    if left:
        x, info = lapack.solve(a, b)
    else:
        x, info = lapack.solve(np.swapaxes(a, -2, -1), np.swapaxes(b, -2, -1))
        x = np.swapaxes(x, -2, -1)
    support.store(out[0], x[..., 0] if vector else x)
    support.store(out[1], info)


def _checked_solution(name: str, A: Tensor, B: Tensor, left: bool) -> Any:
    support.check_square(name, A)
    support.require(name, "B", B, 2)
    support.check_floating(name, A, False)
    support.check_same_dtype(name, A, B)
    vector = is_vector(A, B)
    if vector and not left:
        raise RuntimeError(f"{name}: Vector broadcasting of the left hand side is not supported for left=False")
    columns = B.unsqueeze(-1) if vector else B
    support.check_matrix(name, columns, "B")
    support.check_equation(name, A, columns, left)
    support.batch_of(A, columns)
    support.check_kernel("lu_factor_cpu", A)
    return solution(A, B, left)


@composite(namespaces=("linalg",), method=False, out="exact")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution of linalg.solve, with singular matrices reported in `info` instead of raising."""
    result = _checked_solution("linalg.solve", A, B, left)
    if check_errors:
        support.raise_failures("torch.linalg.solve", result[1])
    return _solve_result(result)


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", sharding="matrices")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (or X A = B with left=False) for a square matrix, or each of a batch."""
    result, info = _checked_solution("linalg.solve", A, B, left)
    support.raise_failures("torch.linalg.solve", info)
    return result


# -- inverse ----------------------------------------------------------------------------------------------------------

_inverse_result = named_result("linalg_inv_ex", "inverse", "info")


@internal(
    returns=_inverse_result, grads={"A": lambda g, out: -(out[0].mH @ (g[0] @ out[0].mH))},
    aten="linalg_inv_ex(A, False)", quirks=Quirks(label="LinalgInvExBackward0"), batching="leading",
)  # fmt: skip
def inverse_and_info(A: Tensor) -> NewTensors:
    """The inverse, and the first zero pivot of each matrix."""
    return [support.columns(A.shape, A.dtype, A.device), support.infos(A)]


@inverse_and_info.on("cpu")
def _(out: list[Tensor], A: Tensor) -> None:
    for result, array in zip(out, lapack.inverse(A._array())):
        support.store(result, array)


def _checked_inverse(A: Tensor) -> Any:
    support.check_matrix("linalg.inv", A)
    support.check_floating("linalg.inv", A)
    support.check_square("linalg.inv", A)
    return inverse_and_info(A)


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse of linalg.inv, with singular matrices reported in `info` instead of raising."""
    result = _checked_inverse(A)
    if check_errors:
        support.raise_failures("linalg.inv_ex", result[1])
    return result


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def inv(A: Tensor) -> Tensor:
    """The inverse of a square matrix, or of each in a batch."""
    result, info = _checked_inverse(A)
    support.raise_failures("linalg.inv", info)
    return result


@composite(out="exact", autocast="float32", batching="leading")
def inverse(input: Tensor) -> Tensor:
    """The inverse of a square matrix, or of each in a batch."""
    return inv(input)
