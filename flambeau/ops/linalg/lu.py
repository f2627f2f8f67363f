"""LU factors with partial pivoting."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...backends.cpu import lapack
from ...core import dtype as dt
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..creation.ranges import eye
from ..machinery.declare import composite, internal
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..shape.joining import cat
from . import support
from .triangular import check_legacy, solve_triangular

# -- derivative -------------------------------------------------------------------------------------------------------


def _unpermuted_gradient(gL: Tensor, gU: Tensor, L: Tensor, U: Tensor) -> Tensor:
    """Return the gradient of P^T A for A = P L U. Rows below and columns beside the square part follow from it: L = [L1; A2 U^-1] or U = [U1
    | L^-1 A2]."""
    m, n = L.shape[-2], U.shape[-1]
    k = min(m, n)
    L1, U1, gL1, gU1 = L[..., :k, :], U[..., :, :k], gL[..., :k, :], gU[..., :, :k]
    lower, upper = L1.mH @ gL1, gU1 @ U1.mH
    if n > k:
        lower = lower - gU[..., k:] @ U[..., k:].mH
    if m > k:
        upper = upper - L[..., k:, :].mH @ gL[..., k:, :]
    inner = lower.tril(-1) + upper.triu()
    square = solve_triangular(L1.mH, inner, upper=True, unitriangular=True)
    if n > k:
        beside = solve_triangular(L1.mH, gU[..., k:], upper=True, unitriangular=True)
        return cat([solve_triangular(U1.mH, square, upper=False, left=False), beside], -1)
    square = solve_triangular(U1.mH, square, upper=False, left=False)
    if m > k:
        below = solve_triangular(U1.mH, gL[..., k:, :], upper=False, left=False)
        return cat([square, below], -2)
    return square


def _packed_parts(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Return L and U of a packed LU factorization."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    one = eye(m, k, dtype=packed.dtype, device=packed.device)
    return packed[..., :k].tril(-1) + one, packed[..., :k, :].triu()


def _factor_gradient(g: tuple[Any, ...], out: list[Tensor]) -> Tensor:
    P, L, U = lu_unpack(out[0], out[1])
    k = U.shape[-2]
    return P @ _unpermuted_gradient(g[0][..., :k], g[0][..., :k, :], L, U)


@internal(batching="each")
def permutation_matrix(pivots: Tensor, m: int, d: dt.dtype, outside: str = "") -> NewTensor:
    """The permutation matrix P of a list of swaps, whose numbers are not checked unless `outside` is the error for those that are not between
    1 and m."""
    return (*pivots.shape[:-1], m, m), d, pivots.device


@permutation_matrix.on("cpu")
def _(out: Tensor, pivots: Tensor, m: int, d: dt.dtype, outside: str) -> None:
    swaps = pivots._array()
    if outside and swaps.size and (swaps.min() < 1 or swaps.max() > m):
        wanted = "greater or equal to 1" if swaps.min() < 1 else "smaller or equal to LU.size(-2)"
        raise RuntimeError(outside.format(wanted))
    order = lapack.permutation(swaps, m)
    support.store(out, np.swapaxes(np.eye(m, dtype=d.numpy)[order], -2, -1))


# -- factors ----------------------------------------------------------------------------------------------------------

_factor_ex_result = named_result("linalg_lu_factor_ex", "LU", "pivots", "info")
_factor_result = named_result("linalg_lu_factor", "LU", "pivots")
_lu_result = named_result("linalg_lu", "P", "L", "U")


@internal(
    returns=_factor_ex_result, grads={"A": _factor_gradient}, aten="linalg_lu_factor_ex(A, pivot, False)",
    quirks=Quirks(label="LinalgLuFactorExBackward0"), batching="leading",
)  # fmt: skip
def packed_factors(A: Tensor, pivot: bool) -> NewTensors:
    """L and U in one matrix, the row swaps (none without `pivot`), and where the first zero pivot is."""
    pivots = (*A.shape[:-2], min(A.shape[-2:]))
    return [support.columns(A.shape, A.dtype, A.device), (pivots, dt.int32, A.device), support.infos(A)]


@packed_factors.on("cpu")
def _(out: list[Tensor], A: Tensor, pivot: bool) -> None:
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    for result, array in zip(out, lapack.lu(A._array())):
        support.store(result, array)


def _checked_factors(name: str, A: Tensor, pivot: bool) -> Any:
    support.check_matrix(name, A)
    support.check_floating(name, A, False)
    support.check_kernel("lu_factor_cpu", A)
    return packed_factors(A, bool(pivot))


@composite(namespaces=("linalg",), method=False, out="exact", batching="leading")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """The factors of linalg.lu_factor, with zero pivots reported in `info` instead of raising."""
    result = _checked_factors("torch.linalg.lu_factor_ex", A, pivot)
    if check_errors:
        support.raise_failures("torch.linalg.lu_factor_ex", result[2])
    return result


@composite(namespaces=("linalg",), method=False, out="exact", batching="leading")
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """L and U in one matrix, and the row swaps, as linalg.lu_solve takes them."""
    packed, pivots, info = _checked_factors("torch.linalg.lu_factor", A, pivot)
    support.raise_failures("torch.linalg.lu_factor", info)
    return _factor_result((packed, pivots))


@composite(namespaces=("linalg",), method=False, out="exact", batching="leading")
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """A = P L U: a permutation, a unit lower and an upper triangular matrix."""
    packed, pivots, _ = _checked_factors("linalg.lu", A, pivot)
    L, U = _packed_parts(packed)
    P = permutation_matrix(pivots, A.shape[-2], A.dtype) if pivot else packed.detach().new_empty((0,))
    return _lu_result((P, L, U))


@composite(name="lu", autocast="float32")
def old_lu(
    input: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """The older form of linalg.lu_factor: (LU, pivots), with get_infos also the place of a zero pivot."""
    warnings.warn(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be removed in a"
        " future PyTorch release.\nLU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\n"
        "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\n"
        "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\nshould be replaced with\n"
        "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)",
        UserWarning,
        stacklevel=3,
    )
    result = _checked_factors("torch.lu", input, pivot)
    if not get_infos:
        result = result[:2]
    if out is None:
        return result
    if not isinstance(out, (tuple, list)) or len(out) != len(result):
        raise TypeError(f"expected tuple of {len(result)} elements for out=, got {type(out).__name__}")
    for o, r in zip(out, result):
        o.resize_as_(r).copy_(r)
    return tuple(out)


_unpack_result = named_result("lu_unpack", "P", "L", "U")
_UNPACKED_OUTSIDE = "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you properly pass the result of lu_factor?"
_SOLVED_OUTSIDE = "Pivots given to lu_solve must all be {}. Did you properly pass the result of lu_factor?"


@composite(method=False, out="exact")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """P, L and U from the results of linalg.lu_factor."""
    support.require("lu_unpack", "LU_data", LU_data)
    support.require("lu_unpack", "LU_pivots", LU_pivots, 2)
    if len(LU_data.shape) < 2:
        raise RuntimeError("torch.lu_unpack: The input tensor LU_data must have at least 2 dimensions.")
    if unpack_pivots and LU_pivots.dtype is not dt.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this function"
            " is intended to be used with the output produced by torch.linalg.lu_factor"
        )
    P = L = U = None
    if unpack_pivots:
        m = LU_data.shape[-2]
        wanted = (*LU_data.shape[:-2], min(LU_data.shape[-2:]))
        if tuple(LU_pivots.shape) != wanted:
            raise ValueError(
                f"torch.lu_unpack: Expected LU_pivots to have shape {list(wanted)}, but got {list(LU_pivots.shape)}"
            )
        P = permutation_matrix(LU_pivots, m, LU_data.dtype, _UNPACKED_OUTSIDE)
    if unpack_data:
        L, U = _packed_parts(LU_data)
    return _unpack_result([LU_data.detach().new_empty((0,)) if t is None else t for t in (P, L, U)])


# -- solving ----------------------------------------------------------------------------------------------------------


@composite(namespaces=("linalg",), method=False, out="exact", autocast="")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A X = B (or X A = B, or with A^H), A given by linalg.lu_factor."""
    name = "linalg.lu_solve"
    support.check_matrix(name, LU, "LU")
    support.check_floating(name, LU, False)
    if pivots.dtype is not dt.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    support.check_square(name, LU, "LU")
    support.check_matrix(name, B, "B")
    support.check_same_dtype(name, LU, B, "LU", "B")
    support.check_equation(name, LU, B, left)
    if pivots.shape[-1] != LU.shape[-1]:
        raise RuntimeError("linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix")
    if LU.shape[:-2] != pivots.shape[:-1]:
        raise RuntimeError(
            f"linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape"
            f" {list(pivots.shape)} instead"
        )
    support.batch_of(LU, B)
    support.check_kernel("lu_solve_cpu", LU)
    if not left:  # X A = B is A^H X^H = B^H
        return _lu_solution(LU, pivots, B.mH, not adjoint).mH
    return _lu_solution(LU, pivots, B, adjoint)


def _lu_solution(LU: Tensor, pivots: Tensor, B: Tensor, adjoint: bool) -> Tensor:
    P = permutation_matrix(pivots, LU.shape[-1], LU.dtype, _SOLVED_OUTSIDE)
    if adjoint:
        half = solve_triangular(LU.mH, B, upper=False)
        moved = solve_triangular(LU.mH, half, upper=True, unitriangular=True)
        return (moved.mT @ P.mT).mT  # laid out by columns
    half = solve_triangular(LU, P.mT @ B, upper=False, unitriangular=True)
    return solve_triangular(LU, half, upper=True)


@composite(name="lu_solve", out="exact", autocast="float32")
def old_lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The older form of linalg.lu_solve, right-hand side first."""
    warnings.warn(
        "torch.lu_solve is deprecated in favor of torch.linalg.lu_solveand will be removed in a future PyTorch release.",
        UserWarning,
        stacklevel=3,
    )
    support.require("lu_solve", "input", input)
    if len(input.shape) >= 2 and len(LU_data.shape) >= 2:
        check_legacy("lu_solve", input, LU_data)
    return lu_solve(LU_data, LU_pivots, input)
