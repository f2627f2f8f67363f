"""A few eigenvalues of large symmetric matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backends.cpu import lobpcg as solver
from ...core.numeric_limits import finfo
from ...core.tensor import Tensor
from ..creation.ranges import eye
from ..machinery.declare import composite, internal
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensors
from ..random.fills import randn
from . import support
from .spectral import eigh


def _gradient(g: tuple[Any, ...], A: Tensor, out: list[Tensor], largest: bool, needs: dict[str, bool]) -> Tensor:
    """Return the gradient with respect to A of its extreme eigenpairs, computed from all eigenvectors of A."""
    (gE, gX), (E, X) = g, out
    total = None if gE is None else (X * gE.unsqueeze(-2)) @ X.mH
    if gX is not None:
        values, vectors = eigh(A)
        k, m = E.shape[-1], A.shape[-1]
        gap = E.unsqueeze(-2) - values.unsqueeze(-1)
        own = eye(m, k, dtype=E.dtype, device=E.device)
        mask = own.flip(0) if largest else own
        turned = vectors @ (((vectors.mH @ gX) * (1 - mask)) / (gap + mask)) @ X.mH
        total = turned if total is None else total + turned
    return total  # type: ignore[return-value]


@internal(
    grads={"A": _gradient, "B": unknown_derivative("lobpcg with respect to B")},
    quirks=Quirks(label="LOBPCGAutogradFunctionBackward"),
    batching="each",
)
def extreme_eigenpairs(
    A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, largest: bool, tol: float, niter: int
) -> NewTensors:
    """Eigenvalues, as many as X has columns, and their vectors, computed from the guess X."""
    *batch, m, _ = A.shape
    k = X.shape[-1]
    return [((*batch, k), A.dtype.to_real(), A.device), ((*batch, m, k), A.dtype, A.device)]


@extreme_eigenpairs.on("cpu")
def _(
    out: list[Tensor], A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, largest: bool, tol: float, niter: int
) -> None:
    wide = np.complex128 if A.dtype.is_complex else np.float64
    m, k = A.shape[-1], X.shape[-1]
    arrays = [None if t is None else t._array().astype(wide) for t in (A, B, X, iK)]
    batch = A.shape[:-2]
    flat = [
        None if t is None else np.broadcast_to(t, (*batch, *t.shape[-2:])).reshape(-1, *t.shape[-2:]) for t in arrays
    ]
    count = math.prod(batch)
    values, vectors = np.empty((count, k)), np.empty((count, m, k), wide)
    for i in range(count):
        a, b, x, preconditioner = (None if t is None else t[i] for t in flat)
        assert a is not None and x is not None
        values[i], vectors[i] = solver.eigenpairs(a, b, x, preconditioner, largest, tol, niter)
    support.store(out[0], values.reshape(*batch, k))
    support.store(out[1], vectors.reshape(*batch, m, k))


@composite(method=False)
def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None,
    iK: Tensor | None = None, niter: int | None = None, tol: float | None = None, largest: bool | None = None,
    method: str | None = None, tracker: Any = None, ortho_iparams: Any = None, ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k largest (or smallest) eigenvalues of A x = e B x and their vectors, for symmetric A and positive-definite B."""
    support.check_square("lobpcg", A)
    support.check_kernel("lobpcg", A)
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: method must be 'basic' or 'ortho', got {method!r}")
    if tracker is not None:
        raise NotImplementedError("lobpcg: tracker= is not supported")
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if n is None else n) if X is None else X.shape[-1]
    if m < 3 * n:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of"
            f" requested eigenpairs (={n})"
        )
    if X is None:
        X = randn(*A.shape[:-2], m, n, dtype=A.dtype, device=A.device)
    A = (A + A.mH) / 2 if A.requires_grad else A
    tol = finfo(A.dtype).eps if tol is None else tol
    steps = 1000 if niter is None or niter < 0 else niter
    values, vectors = extreme_eigenpairs(A, B, X, iK, largest is not False, float(tol), steps)
    return values[..., :k], vectors[..., :k]
