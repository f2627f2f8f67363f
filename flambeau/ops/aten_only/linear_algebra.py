"""Decompositions of matrices as PyTorch's graphs call them: together with the factors that its own gradients read."""

from __future__ import annotations

from typing import Any

from ...core.graph import unrecorded
from ...core.tensor import Tensor
from ..linalg.determinant import det, slogdet
from ..linalg.lu import lu_factor_ex
from ..linalg.solving import solve_ex
from ..linalg.spectral import eigh, eigvalsh, svd, svdvals
from ..linalg.support import raise_failures
from ..machinery.aten_form import aten_only

aten_only("_linalg_check_errors")(lambda info, api_name, *, is_matrix: raise_failures(api_name, info))


def _factors(A: Tensor) -> tuple[Tensor, Tensor]:
    packed, pivots, _ = unrecorded(lu_factor_ex, A)
    return packed, pivots


aten_only("_linalg_det")(lambda A: (det(A), *_factors(A)))
aten_only("_linalg_slogdet")(lambda A: (*slogdet(A), *_factors(A)))


@aten_only("_linalg_solve_ex")
def _solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    result, info = solve_ex(A, B, left=left, check_errors=check_errors)
    return result, *_factors(A), info


@aten_only("_linalg_svd")
def _svd(A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> tuple[Tensor, ...]:
    if compute_uv:
        return tuple(svd(A, full_matrices, driver=driver))
    return A.new_empty((0,)), svdvals(A, driver=driver), A.new_empty((0,))


@aten_only("_linalg_eigh")
def _eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, ...]:
    return tuple(eigh(A, UPLO)) if compute_v else (eigvalsh(A, UPLO), A.new_empty((0,)))
