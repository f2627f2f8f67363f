"""Singular values, eigenvalues and their vectors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.cpu import lapack
from ...core.errors import LinAlgError
from ...core.graph import grad_mode
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..creation.ranges import eye
from ..machinery.declare import composite, internal
from ..machinery.memory import raise_if_set
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from . import support
from .solving import solve_ex


def _records(A: Tensor) -> bool:
    """Return whether the vectors will be needed for a derivative although only values are requested."""
    return grad_mode.enabled and A.requires_grad


def _converged(name: str, a: np.ndarray, call: Callable[..., Any], *args: Any) -> Any:
    """Run a NumPy routine; raise PyTorch's error if it does not converge."""
    try:
        return call(a, *args)
    except np.linalg.LinAlgError:
        if name == "linalg.eigh":
            _check_finite_hermitian(a)
        if not np.isfinite(a).all():
            raise LinAlgError(
                f"{name}: The algorithm failed to converge because the input matrix contained non-finite values."
            ) from None
        raise LinAlgError(
            f"{name}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many"
            " repeated eigenvalues or singular values."
        ) from None


# -- singular values --------------------------------------------------------------------------------------------------


def _svd_gradient(g: tuple[Any, ...], out: list[Tensor], full_matrices: bool) -> Tensor:
    (gU, gS, gVh), (U, S, Vh) = g, out
    k = S.shape[-1]
    if full_matrices:  # vectors beyond the singular values are arbitrary and have no derivative
        U, Vh = U[..., :k], Vh[..., :k, :]
        gU = None if gU is None else gU[..., :k]
        gVh = None if gVh is None else gVh[..., :k, :]
    if gU is None and gVh is None:
        return (U * gS.unsqueeze(-2)) @ Vh
    rotation = _svd_rotation(gU, gVh, U, S, Vh)
    if gS is not None:
        rotation = rotation + gS.diag_embed()
    total = U @ rotation @ Vh
    if gU is not None and U.shape[-2] > k:
        total = total + ((gU - U @ (U.mH @ gU)) / S.unsqueeze(-2)) @ Vh
    if gVh is not None and Vh.shape[-1] > k:
        total = total + U @ ((gVh - (gVh @ Vh.mH) @ Vh) / S.unsqueeze(-1))
    return total


def _svd_rotation(gU: Tensor | None, gVh: Tensor | None, U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
    """Return the rotation of the singular vectors, in their own coordinates: skew parts over differences of squared singular values."""
    squares = S * S
    gap = squares.unsqueeze(-2) - squares.unsqueeze(-1) + eye(S.shape[-1], dtype=S.dtype, device=S.device)
    left = None if gU is None else _skew(U.mH @ gU)
    right = None if gVh is None else _skew(Vh @ gVh.mH)
    if S.dtype is not U.dtype:
        phases = [t.diagonal(0, -2, -1).imag for t in (left, right) if t is not None]
        _check_phase("svd_backward", "singular vectors", sum(phases[1:], phases[0]))
    turned = None
    if left is not None:
        turned = left * S.unsqueeze(-2)
    if right is not None:
        share = S.unsqueeze(-1) * right
        turned = share if turned is None else turned + share
    turned = turned / gap
    if left is not None and S.dtype is not U.dtype:
        turned = turned + (left.diagonal(0, -2, -1) / (2 * S)).diag_embed()
    return turned


def _skew(x: Tensor) -> Tensor:
    return x - x.mH


def _check_phase(name: str, what: str, imaginary: Tensor) -> None:
    """Raise if a loss depends on the phase of complex vectors, up to which they are unique."""
    error = RuntimeError(
        f"{name}: The {what} in the complex case are specified up to multiplication by e^{{i phi}}. The specified"
        " loss function depends on this quantity, so it is ill-defined."
    )
    raise_if_set((imaginary.abs() <= 1e-2).logical_not().any(), error)


_svd_result = named_result("linalg_svd", "U", "S", "Vh")


def _values_layout(A: Tensor) -> tuple[Any, ...]:
    return (*A.shape[:-2], min(A.shape[-2:])), A.dtype.to_real(), A.device


@internal(
    returns=_svd_result, grads={"A": _svd_gradient}, aten="_linalg_svd(A, full_matrices, True, None)",
    quirks=Quirks(label="LinalgSvdBackward0"), batching="leading",
)  # fmt: skip
def singular(A: Tensor, full_matrices: bool) -> NewTensors:
    """Compute singular vectors and values."""
    *batch, m, n = A.shape
    rows, width = (m, n) if full_matrices else (min(m, n),) * 2
    return [
        support.columns((*batch, m, rows), A.dtype, A.device),
        _values_layout(A),
        support.columns((*batch, width, n), A.dtype, A.device),
    ]


@singular.on("cpu")
def _(out: list[Tensor], A: Tensor, full_matrices: bool) -> None:
    for result, array in zip(out, _converged("linalg.svd", A._array(), lapack.svd, full_matrices)):
        support.store(result, array)


@internal(layout=_values_layout, aten="_linalg_svd(A, False, False, None)[1]", batching="each")
def singular_values(A: Tensor) -> Tensor:
    """Compute singular values only."""


@singular_values.on("cpu")
def _(out: Tensor, A: Tensor) -> None:
    support.store(out, _converged("linalg.svd", A._array(), lapack.singular_values))


def _check_svd(name: str, A: Tensor, driver: str | None) -> None:
    support.check_matrix(name, A)
    support.check_floating(name, A, False)
    support.check_kernel("linalg_svd_cpu", A)
    if driver is not None:
        raise RuntimeError(
            f"torch.{name}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """A = U diag(S) Vh: orthonormal vectors on both sides, singular values in descending order."""
    _check_svd("linalg.svd", A, driver)
    return _svd_result(singular(A, bool(full_matrices)))


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values of a matrix, or of each in a batch, in descending order."""
    _check_svd("linalg.svd", A, driver)
    return singular(A, False)[1] if _records(A) else singular_values(A)


_old_svd_result = named_result("svd", "U", "S", "V")


@composite(name="svd", out="exact", autocast="float32", batching="leading")
def old_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """The older form of linalg.svd: reduced unless some=False, and V instead of its adjoint."""
    warnings.warn(
        "torch.svd is deprecated in favor of torch.linalg.svd and will be removed in a future PyTorch release.\n"
        "U, S, V = torch.svd(A, some=some, compute_uv=True) (default)\nshould be replaced with\n"
        "U, S, Vh = torch.linalg.svd(A, full_matrices=not some)\nV = Vh.mH\nand\n"
        "_, S, _ = torch.svd(A, some=some, compute_uv=False)\nshould be replaced with\nS = torch.linalg.svdvals(A)",
        UserWarning,
        stacklevel=3,
    )
    support.check_matrix("linalg.svd", input, "input")
    if not compute_uv:
        m, n = input.shape[-2:]
        batch = input.shape[:-2]
        U, V = input.detach().new_zeros((*batch, m, m)), input.detach().new_zeros((*batch, n, n))
        return _old_svd_result((U, svdvals(input), V))
    U, S, Vh = svd(input, full_matrices=not some)
    return _old_svd_result((U, S, Vh.mH))


# -- eigenvalues of Hermitian matrices --------------------------------------------------------------------------------


def _eigh_gradient(g: tuple[Any, ...], out: list[Tensor]) -> Tensor:
    (gL, gV), (L, V) = g, out
    if gV is None:
        return (V * gL.unsqueeze(-2)) @ V.mH
    inner = V.mH @ gV
    if V.dtype.is_complex:
        _check_phase("linalg_eigh_backward", "eigenvectors", inner.diagonal(0, -2, -1).imag)
    one = eye(L.shape[-1], dtype=L.dtype, device=L.device)
    inner = 0.5 * _skew(inner) * (1 - one) / (L.unsqueeze(-2) - L.unsqueeze(-1) + one)
    if gL is not None:
        inner = inner + gL.diag_embed()
    return V @ inner @ V.mH


_eigh_result = named_result("linalg_eigh", "eigenvalues", "eigenvectors")


@internal(
    returns=_eigh_result, grads={"A": _eigh_gradient}, aten="_linalg_eigh(A, uplo, True)",
    quirks=Quirks(label="LinalgEighBackward0"), batching="leading",
)  # fmt: skip
def hermitian_eigen(A: Tensor, uplo: str) -> NewTensors:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return [_values_layout(A), support.columns(A.shape, A.dtype, A.device)]


@hermitian_eigen.on("cpu")
def _(out: list[Tensor], A: Tensor, uplo: str) -> None:
    for result, array in zip(out, _converged("linalg.eigh", A._array(), lapack.eigh, uplo)):
        support.store(result, array)


@internal(aten="_linalg_eigh(A, uplo, False)[0]", batching="each")
def hermitian_eigenvalues(A: Tensor, uplo: str) -> NewTensor:
    """Eigenvalues of Hermitian matrices alone."""
    return _values_layout(A)


@hermitian_eigenvalues.on("cpu")
def _(out: Tensor, A: Tensor, uplo: str) -> None:
    support.store(out, _converged("linalg.eigh", A._array(), lapack.eigenvalues, uplo))


def _check_finite_hermitian(a: np.ndarray) -> None:
    if a.shape[-1] > 1 and not np.isfinite(a).all():
        raise LinAlgError(
            "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned or has too many"
            f" repeated eigenvalues (error code: {a.shape[-1] - 1})."
        )


def _check_eigh(name: str, A: Tensor, uplo: Any) -> str:
    support.check_square(name, A)
    support.check_floating(name, A, False)
    letter = str(uplo).upper()
    if letter not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    support.check_kernel("linalg_eigh_cpu", A)
    return letter


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian matrix, of which one triangle is read."""
    return _eigh_result(hermitian_eigen(A, _check_eigh("linalg.eigh", A, UPLO)))


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of a Hermitian matrix, ascending."""
    letter = _check_eigh("linalg.eigvalsh", A, UPLO)
    return hermitian_eigen(A, letter)[0] if _records(A) else hermitian_eigenvalues(A, letter)


# -- eigenvalues of any square matrix ---------------------------------------------------------------------------------


def _eig_gradient(g: tuple[Any, ...], A_dtype: Any, out: list[Tensor]) -> Tensor:
    (gL, gV), (L, V) = g, out
    if gV is None:
        inner = gL.unsqueeze(-1) * V.mH
    else:
        product = V.mH @ gV
        _check_phase("linalg_eig_backward", "eigenvectors", product.diagonal(0, -2, -1).imag)
        # Eigenvectors have length one: what would stretch them is taken out.
        product = product - (V.mH @ V) * product.diagonal(0, -2, -1).real.unsqueeze(-2)
        one = eye(L.shape[-1], dtype=L.dtype.to_real(), device=L.device)
        turned = product * (1 - one) / ((L.unsqueeze(-2) - L.unsqueeze(-1)).conj() + one)
        inner = (turned if gL is None else turned + gL.diag_embed()) @ V.mH
    total = solve_ex(V.mH, inner)[0]
    return total if A_dtype.is_complex else total.real


_eig_result = named_result("linalg_eig", "eigenvalues", "eigenvectors")


@internal(
    returns=_eig_result, grads={"A": _eig_gradient}, quirks=Quirks(label="LinalgEigBackward0"), batching="leading"
)
def general_eigen(A: Tensor, name: str) -> NewTensors:
    """Eigenvalues and eigenvectors of square matrices; failures are those of the operator `name`."""
    d = A.dtype.to_complex()
    return [(A.shape[:-1], d, A.device), support.columns(A.shape, d, A.device)]


general_eigen.op.as_aten(lambda recorder, A, name: recorder.aten.linalg_eig.default(A))


@general_eigen.on("cpu")
def _(out: list[Tensor], A: Tensor, name: str) -> None:
    for result, array in zip(out, _converged("linalg.eig", _finite(A, name), np.linalg.eig)):
        support.store(result, array)


@internal(aten="_linalg_eigvals(A)", batching="each")
def general_eigenvalues(A: Tensor) -> NewTensor:
    """Eigenvalues of square matrices alone."""
    return A.shape[:-1], A.dtype.to_complex(), A.device


@general_eigenvalues.on("cpu")
def _(out: Tensor, A: Tensor) -> None:
    support.store(out, _converged("linalg.eigvals", _finite(A, "linalg.eigvals"), np.linalg.eigvals))


def _finite(A: Tensor, name: str) -> np.ndarray:
    a = A._array()
    if not np.isfinite(a).all():
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs.")
    return a


def _check_eig(name: str, A: Tensor) -> None:
    support.check_square(name, A)
    support.check_floating(name, A, False)
    support.check_kernel("linalg_eig_cpu", A)


@composite(namespaces=("linalg",), method=False, out="castable", autocast="float32", batching="leading")
def eig(A: Tensor) -> Any:
    """Eigenvalues and eigenvectors of a square matrix, always complex."""
    _check_eig("linalg.eig", A)
    return _eig_result(general_eigen(A, "linalg.eig"))


@composite(namespaces=("linalg",), method=False, out="castable", autocast="float32", batching="leading")
def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of a square matrix, always complex."""
    _check_eig("linalg.eigvals", A)
    return general_eigen(A, "linalg.eigvals")[0] if _records(A) else general_eigenvalues(A)
