"""Orthogonal factors: QR and products of Householder reflections."""

from __future__ import annotations

import warnings
from typing import Any

from ...backends.cpu import lapack
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..creation.ranges import eye
from ..machinery.declare import composite, internal, primitive
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensors
from ..shape.joining import cat
from . import support
from .triangular import solve_triangular

# -- QR ---------------------------------------------------------------------------------------------------------------


def _hermitian_part_adjoint(x: Tensor) -> Tensor:
    """Return x + x^H with its diagonal halved: the adjoint of taking a triangle of a Hermitian matrix."""
    both = x + x.mH
    return both - both.diagonal(0, -2, -1).real.diag_embed() * 0.5


def _square_gradient(gQ: Tensor | None, gR: Tensor | None, Q: Tensor, R: Tensor) -> Tensor:
    """Return the gradient of A if A = Q R has no more columns than rows."""
    middle: Any = None
    if gR is not None:
        middle = gR @ R.mH
    if gQ is not None:
        middle = -(Q.mH @ gQ) if middle is None else middle - Q.mH @ gQ
    total = Q @ _hermitian_part_adjoint(middle.triu())
    total = total if gQ is None else gQ + total
    return solve_triangular(R.mH, total, upper=False, left=False)


def _qr_gradient(g: tuple[Any, ...], A: Tensor, out: list[Tensor], mode: str) -> Tensor:
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use"
            " linalg.qr(A, mode='reduced') if you are going to require gradients"
        )
    m, n = A.shape[-2:]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols")
    (gQ, gR), (Q, R) = g, out
    if m >= n:
        return _square_gradient(gQ, gR, Q, R)
    # A = [B | C], R = [S | Q^H C]: Q depends on B only, the rest of R on Q and C.
    gS = for_rest = None
    if gR is not None:
        gS, gT = gR[..., :m], gR[..., m:]
        for_rest = Q @ gT
        share = A[..., m:] @ gT.mH
        gQ = share if gQ is None else gQ + share
    first = _square_gradient(gQ, gS, Q, R[..., :m])
    if for_rest is None:
        for_rest = first.new_zeros((*first.shape[:-1], n - m))
    return cat([first, for_rest], -1)


_qr_result = named_result("linalg_qr", "Q", "R")


@internal(returns=_qr_result, grads={"A": _qr_gradient}, quirks=Quirks(label="LinalgQrBackward0"), batching="leading")
def factors_qr(A: Tensor, mode: str) -> NewTensors:
    """Q, which is empty with mode "r", and R."""
    *batch, m, n = A.shape
    inner = m if mode == "complete" else min(m, n)
    d, where = A.dtype, A.device
    q = ((0,), d, where) if mode == "r" else support.columns((*batch, m, inner), d, where)
    return [q, support.columns((*batch, inner, n), d, where)]


@factors_qr.on("cpu")
def _(out: list[Tensor], A: Tensor, mode: str) -> None:
    q, r = lapack.qr(A._array(), "complete" if mode == "complete" else "reduced")
    if mode != "r":
        support.store(out[0], q)
    support.store(out[1], r)


@composite(namespaces=("linalg",), method=False, out="exact", autocast="float32", batching="leading")
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """A = Q R with orthonormal columns Q and upper triangular R; mode "reduced", "complete" or "r" (R alone)."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    support.check_matrix("linalg.qr", A)
    support.check_floating("linalg.qr", A, False)
    support.check_kernel("geqrf_cpu", A)
    return factors_qr(A, mode)


_old_qr_result = named_result("qr", "Q", "R")


@composite(name="qr", out="exact", autocast="float32", batching="leading")
def old_qr(input: Tensor, some: bool = True) -> Any:
    """The older form of linalg.qr: reduced unless some=False."""
    warnings.warn(
        "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch release.\n"
        "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\n"
        "Q, R = torch.qr(A, some)\nshould be replaced with\n"
        "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')",
        UserWarning,
        stacklevel=3,
    )
    return _old_qr_result(qr(input, "reduced" if some else "complete"))


# -- Householder reflections ------------------------------------------------------------------------------------------

_geqrf_result = named_result("geqrf", "a", "tau")


@primitive(
    returns=_geqrf_result,
    grads={"input": unknown_derivative("geqrf")},
    out=True,
    autocast="float32",
    batching="leading",
)
def geqrf(input: Tensor) -> NewTensors:
    """QR as LAPACK stores it: R above, the Householder vectors below the diagonal, and their factors tau."""
    support.check_matrix("torch.geqrf", input, "input")
    support.check_kernel("geqrf_cpu", input)
    tau = (*input.shape[:-2], min(input.shape[-2:]))
    return [support.columns(input.shape, input.dtype, input.device), (tau, input.dtype, input.device)]


@geqrf.on("cpu")
def _(out: list[Tensor], input: Tensor) -> None:
    for result, array in zip(out, lapack.reflectors(input._array())):
        support.store(result, array)


def reflected(vectors: Tensor, tau: Tensor, C: Tensor | None, adjoint: bool = False, by_columns: bool = True) -> Tensor:
    """H_1 H_2 ... H_k C with H_i = 1 - tau_i v_i v_i^H and v_i the i-th column below a one; C None is the identity.

    The product is 1 - V T V^H with T = D (1 + S D)^-1, D = diag(tau), S the part of V^H V above its diagonal (the compact
    form of Schreiber and Van Loan): matrix products instead of one reflection after the other."""
    m, k = vectors.shape[-2], tau.shape[-1]
    one = eye(m, k, dtype=vectors.dtype, device=vectors.device)
    V = vectors[..., :k].tril(-1) + one
    D = tau.unsqueeze(-2)
    triangle = (V.mH @ V).triu(1) * D
    if adjoint:
        start = V.mH @ C if C is not None else V.mH
        inside = solve_triangular(triangle.mH, start * tau.conj().unsqueeze(-1), upper=False, unitriangular=True)
    else:
        start = V.mH @ C if C is not None else V.mH[..., : vectors.shape[-1]]
        inside = tau.unsqueeze(-1) * solve_triangular(triangle, start, upper=True, unitriangular=True)
    first = C if C is not None else eye(m, vectors.shape[-1], dtype=vectors.dtype, device=vectors.device)
    return (first.mT.contiguous() - inside.mT @ V.mT).mT if by_columns else first.contiguous() - V @ inside


def _check_reflectors(name: str, input: Any, tau: Any) -> None:
    support.require(name, "input", input)
    support.require(name, "tau", tau, 2)
    if len(input.shape) < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if input.shape[-2] < input.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    _check_tau(name, input, tau)


def _check_tau(name: str, input: Tensor, tau: Tensor) -> None:
    if input.shape[-1] < tau.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if len(input.shape) - len(tau.shape) != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {len(tau.shape)} and"
            f" input.ndim is equal to {len(input.shape)}"
        )
    if tau.shape[:-1] != input.shape[:-2]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(tau.shape[:-1])}"
        )
    if tau.dtype is not input.dtype:
        raise RuntimeError(f"{name}: tau dtype {tau.dtype} does not match input dtype {input.dtype}")
    support.check_kernel("orgqr_cpu", input)


@composite(namespaces=("linalg",), method=False, out="castable", autocast="float32")
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of Householder reflections, given in geqrf's form."""
    _check_reflectors("torch.linalg.householder_product", input, tau)
    return reflected(input, tau, None)


@composite(out="castable", autocast="float32")
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """Alias of linalg.householder_product."""
    return householder_product(input, input2)


@composite(out="exact", autocast="float32")
def ormqr(input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """A matrix times the full orthogonal matrix of Householder reflections, from the left or the right."""
    name = "torch.ormqr"
    tau, other = input2, input3
    support.require(name, "input", input)
    support.require(name, "tau", tau, 2)
    support.require(name, "other", other, 3)
    for label, t in (("input", input), ("other", other)):
        if len(t.shape) < 2:
            raise RuntimeError(f"{name}: {label} must have at least 2 dimensions.")
    side = -2 if left else -1
    if other.shape[side] < tau.shape[-1]:
        raise RuntimeError(f"{name}: other.shape[{side}] must be greater than or equal to tau.shape[-1]")
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(f"{name}: other.shape[{side}] must be equal to input.shape[-2]")
    if tau.shape[-1] != min(other.shape[side], input.shape[-1]):
        raise RuntimeError(f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])")
    _check_tau(name, input, tau)
    if other.shape[:-2] != input.shape[:-2]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of other to be equal to input.shape[:-2], but got {list(other.shape[:-2])}"
        )
    if other.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but input has dtype {input.dtype} and other has"
            f" dtype {other.dtype}"
        )
    if left:
        return reflected(input, tau, other, transpose)
    return reflected(input, tau, other.mH, not transpose, False).mH
