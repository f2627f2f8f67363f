"""Cholesky factors of positive-definite matrices, and systems solved with them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...backends.cpu import lapack
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..creation.ranges import eye
from ..machinery.declare import composite, internal, primitive
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from . import support
from .triangular import check_legacy, solve_triangular


def _gradient(g: tuple[Any, ...], out: list[Tensor], upper: bool) -> Tensor:
    """Return L^-H phi(L^H gL) L^-1, phi the Hermitian matrix whose lower triangle is given."""
    L, gL = (out[0].mH, g[0].mH) if upper else (out[0], g[0])
    lower = (L.mH @ gL).tril()
    inner = lower + lower.tril(-1).mH
    right = solve_triangular(L, inner, upper=False, left=False)
    return solve_triangular(L.mH, right, upper=True) * 0.5


_cholesky_result = named_result("linalg_cholesky_ex", "L", "info")


@internal(
    returns=_cholesky_result, grads={"A": _gradient}, aten="linalg_cholesky_ex(A, upper, False)",
    quirks=Quirks(label="LinalgCholeskyExBackward0"), batching="leading",
)  # fmt: skip
def factor_and_info(A: Tensor, upper: bool) -> NewTensors:
    """The Cholesky factor, and the first leading minor that is not positive."""
    return [support.columns(A.shape, A.dtype, A.device), support.infos(A)]


@factor_and_info.on("cpu")
def _(out: list[Tensor], A: Tensor, upper: bool) -> None:
    a = A._array()
    factor, info = lapack.cholesky(np.swapaxes(a, -2, -1).conj() if upper else a)
    support.store(out[0], np.swapaxes(factor, -2, -1).conj() if upper else factor)
    support.store(out[1], info)


def _checked_factor(name: str, A: Tensor, upper: bool) -> Any:
    support.check_matrix(name, A)
    support.check_floating(name, A, False)
    support.check_square(name, A)
    support.check_kernel("cholesky_cpu", A)
    return factor_and_info(A, bool(upper))


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The Cholesky factor, with matrices that are not positive-definite reported in `info` instead of raising."""
    result = _checked_factor("linalg.cholesky", A, upper)
    if check_errors:
        support.raise_failures("linalg.cholesky_ex", result[1])
    return result


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L with A = L L^H for a positive-definite matrix (with upper=True, U with A = U^H U)."""
    factor, info = _checked_factor("linalg.cholesky", A, upper)
    support.raise_failures("linalg.cholesky", info)
    return factor


@composite(name="cholesky", out="castable", autocast="float32", batching="leading")
def old_cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The older form of linalg.cholesky."""
    warnings.warn(
        "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future PyTorch"
        " release.\nL = torch.cholesky(A)\nshould be replaced with\nL = torch.linalg.cholesky(A)\nand\n"
        "U = torch.cholesky(A, upper=True)\nshould be replaced with\nU = torch.linalg.cholesky(A).mH\n"
        "This transform will produce equivalent results for all valid (symmetric positive definite) inputs.",
        UserWarning,
        stacklevel=3,
    )
    factor, info = _checked_factor("cholesky", input, upper)
    support.raise_failures("cholesky", info)
    return factor


def _solve_gradients(
    g: Tensor, input2: Tensor, out: Tensor, upper: bool, needs: dict[str, bool], input_shape: Any
) -> tuple[Any, ...]:
    back = cholesky_solve(g, input2, upper)
    for_factor = None
    if needs["input2"]:
        inner = back @ out.mH
        inner = -(inner + inner.mH)
        for_factor = (input2 @ inner if upper else inner @ input2).sum_to_size(input2.shape)
    return back.sum_to_size(input_shape) if needs["input"] else None, for_factor


@primitive(grads={("input", "input2"): _solve_gradients}, out="castable", autocast="float32", batching="leading")
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> NewTensor:
    """X with A X = input, A given by its Cholesky factor."""
    support.require("cholesky_solve", "input", input)
    support.require("cholesky_solve", "input2", input2, 2)
    for name, t in (("b", input), ("u", input2)):
        if len(t.shape) < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {len(t.shape)} dimensions instead")
    check_legacy("cholesky_solve", input, input2)
    support.check_kernel("cholesky_solve_cpu", input)
    return support.columns((*support.batch_of(input, input2), *input.shape[-2:]), input.dtype, input.device)


@cholesky_solve.on("cpu")
def _(out: Tensor, input: Tensor, input2: Tensor, upper: bool) -> None:
    factor = input2._array()
    adjoint = np.swapaxes(factor, -2, -1).conj()
    lower, higher = (adjoint, factor) if upper else (factor, adjoint)
    half = lapack.solve_triangular(lower, input._array(), False, False)
    support.store(out, lapack.solve_triangular(higher, half, True, False))


@internal(layout=support.infos, batching="each")
def zero_on_diagonal(A: Tensor) -> Tensor:
    """Return the position of the first zero on the diagonal of each matrix, counted from 1; 0 if there is none."""


@zero_on_diagonal.on("cpu")
def _(out: Tensor, A: Tensor) -> None:
    zero = A._array().diagonal(0, -2, -1) == 0
    support.store(out, np.where(zero.any(-1), zero.argmax(-1) + 1, 0) if zero.size else 0)


@composite(out="castable", autocast="float32", batching="leading")
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix given by its Cholesky factor."""
    support.check_matrix("cholesky_inverse", input)
    support.check_square("cholesky_inverse", input)
    support.check_kernel("cholesky_inverse_out_cpu", input)
    support.raise_failures("cholesky_inverse", zero_on_diagonal(input))
    one = eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape)
    return cholesky_solve(one, input, upper)
