"""Least squares, pseudo-inverses, and the rank and condition of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backends.cpu import lapack
from ...core import dtype as dt
from ...core.aliases import AnyFunction, Values
from ...core.casts import casts
from ...core.layout import broadcast_shapes
from ...core.numeric_limits import finfo
from ...core.return_types import named_result
from ...core.tensor import Tensor, contiguous_strides, from_array
from ..machinery.declare import composite, internal
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..reduce.norms import linalg_norm
from . import support
from .solving import inv_ex, is_vector
from .spectral import eigvalsh, svdvals

# -- tolerances -------------------------------------------------------------------------------------------------------


def _tolerances(name: str, A: Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Return (atol, rtol), numbers or tensors: by default rounding errors of the larger side."""
    for word, value in (("atol", atol), ("rtol", rtol)):
        if isinstance(value, Tensor) and value.dtype.is_complex:
            raise RuntimeError(f"{name}: {word} tensor of complex type is not supported.")
    if rtol is None:
        rtol = finfo(A.dtype).eps * max(A.shape[-2:])
        if isinstance(atol, Tensor):
            rtol = (atol > 0).logical_not().to(A.dtype.to_real()) * rtol
        elif atol is not None and atol > 0:
            rtol = 0.0
    return 0.0 if atol is None else atol, rtol


def _threshold(values: np.ndarray, atol: Any, rtol: Any) -> np.ndarray:
    """Return the size from which a singular value counts, one per matrix."""
    largest = np.abs(values).max(-1, initial=0)
    return np.maximum(atol, rtol * largest)[..., None]


# -- pseudo-inverse ---------------------------------------------------------------------------------------------------


def _pinv_gradient(g: Tensor, A: Tensor, out: Tensor) -> Tensor:
    """Return Golub and Pereyra's derivative, associated so that the smaller side is multiplied first."""
    P, gh = out, g.mH
    if A.shape[-2] <= A.shape[-1]:
        K = gh @ P
        inner = K @ P.mH
        return -(P @ K).mH + inner - (A @ P) @ inner + (P.mH @ P) @ (gh - K @ A)
    K = P @ gh
    inner = P.mH @ K
    return -(K @ P).mH + (gh - A @ K) @ P @ P.mH + inner - (inner @ P) @ A


def _number(tolerance: Any) -> Any:
    return tolerance._array() if isinstance(tolerance, Tensor) else tolerance


def _pseudo_inverse(a: np.ndarray, atol: Any, rtol: Any, hermitian: bool) -> np.ndarray:
    if hermitian:
        values, left = lapack.eigh(a)
        right = np.swapaxes(left, -2, -1).conj()
    else:
        left, values, right = lapack.svd(a, False)
    counts = np.abs(values) > _threshold(values, atol, rtol)
    inverse = np.where(counts, 1 / np.where(counts, values, 1), 0)
    return np.swapaxes(right, -2, -1).conj() @ (inverse[..., None] * np.swapaxes(left, -2, -1).conj())


@internal(grads={"A": _pinv_gradient}, quirks=Quirks(label="LinalgPinvBackward0"))
def pseudo_inverse(A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> NewTensor:
    """The pseudo-inverse; tolerances are numbers, or tensors with one for each matrix."""
    *batch, m, n = A.shape
    return (*batch, n, m), A.dtype, A.device


@pseudo_inverse.op.as_aten
def _(recorder: Any, A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Any:
    aten, options = recorder.aten, {"dtype": dt.float64, "device": A.device, "pin_memory": False}
    atol, rtol = (t if isinstance(t, Tensor) else aten.full.default([], t, **options) for t in (atol, rtol))
    return aten.linalg_pinv.atol_rtol_tensor(A, atol=atol, rtol=rtol, hermitian=hermitian)


@pseudo_inverse.on("cpu")
def _(out: Tensor, A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> None:
    support.store(out, _pseudo_inverse(A._array(), _number(atol), _number(rtol), hermitian))


def _autocast_pinv(run: AnyFunction, args: Values, kwargs: dict[str, Any]) -> tuple[str, AnyFunction]:
    """Choose a decomposition in float32 whose factors are multiplied in the lower precision."""
    lower = casts.dtype

    def rounded(*args: Any, **kwargs: Any) -> Tensor:
        result = run(*args, **kwargs)
        return result.to(lower) if result.dtype is dt.float32 else result

    return "float32", rounded


@composite(namespaces=("linalg",), method=False, out="castable", autocast=_autocast_pinv)
def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The pseudo-inverse; singular values up to max(atol, rtol * largest) count as zero."""
    support.require("linalg.pinv", "input", A)
    if len(A.shape) < 2 or A.dtype.category < 2:
        raise RuntimeError(
            f"linalg.pinv({A.dtype.scalar_type}{{{list(A.shape)}}}): expected a tensor with 2 or more dimensions of float,"
            " double, cfloat or cdouble types"
        )
    if hermitian:
        support.check_square("linalg.pinv", A)
    support.check_kernel("linalg_svd_cpu", A)
    if rcond is not None:
        atol, rtol = 0.0, rcond
    return pseudo_inverse(A, *_tolerances("linalg.pinv", A, atol, rtol), bool(hermitian))


@composite(autocast="float32")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The older form of linalg.pinv."""
    return pinv(input, rcond)


# -- rank and condition -----------------------------------------------------------------------------------------------


@composite(namespaces=("linalg",), method=False, out="castable", autocast="float32")
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The number of singular values above max(atol, rtol * largest)."""
    name = "linalg.matrix_rank"
    support.check_matrix(name, A, "input")
    if tol is not None:
        atol, rtol = tol, 0.0
    atol, rtol = _tolerances(name, A, atol, rtol)
    plain = A.detach()
    values = eigvalsh(plain).abs() if hermitian else svdvals(plain)
    if not values.shape[-1]:
        return values.new_zeros(values.shape[:-1], dtype=dt.int64)
    atol, rtol = (t.unsqueeze(-1) if isinstance(t, Tensor) else t for t in (atol, rtol))
    return (values > (values.amax(-1, True) * rtol).clamp(min=atol)).sum(-1)


@composite(namespaces=("linalg",), method=False, out="castable", autocast="float32")
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number norm(A) norm(A^-1): how much solving with a matrix can amplify errors."""
    support.check_matrix("linalg.cond", A)
    if p is None or (not isinstance(p, str) and abs(p) == 2):
        support.check_floating("linalg.cond", A, False)
        S = svdvals(A)
        if not S.shape[-1]:
            return S.new_zeros(S.shape[:-1])
        return S[..., -1] / S[..., 0] if p == -2 else S[..., 0] / S[..., -1]
    if isinstance(p, str) and p not in ("fro", "nuc"):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if not isinstance(p, str) and abs(p) not in (1, math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    support.check_square("linalg.cond", A)
    support.check_floating("linalg.cond", A, False)
    if not A.shape[-1]:
        return A.new_zeros(A.shape[:-2], dtype=A.dtype.to_real())
    inverse, info = inv_ex(A)
    singular = info != 0
    inverse = inverse.masked_fill(singular.unsqueeze(-1).unsqueeze(-1), 0)
    number = linalg_norm(A, p, dim=(-2, -1)) * linalg_norm(inverse, p, dim=(-2, -1))
    return number.masked_fill(singular, math.inf)


# -- least squares ----------------------------------------------------------------------------------------------------

_lstsq_result = named_result("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")
_USUAL_DRIVER = {"cuda": "gels"}  # by type of device; elsewhere "gelsy"


def _lstsq_gradients(g: Values, A: Tensor, B: Tensor, out: list[Tensor], needs: dict[str, bool]) -> tuple[Any, ...]:
    """Return the gradients of the solution pinv(A) B; the residuals change to first order only with A and B themselves."""
    vector = is_vector(A, B)
    X, right = (t.unsqueeze(-1) if vector else t for t in (out[0], B))
    for_a = for_b = None
    if g[0] is not None:
        gX = g[0].unsqueeze(-1) if vector else g[0]
        P = pinv(A)
        for_a = _pinv_gradient(gX @ right.mH, A, P) if needs["A"] else None
        for_b = P.mH @ gX
    if g[1] is not None and out[1].numel():
        slope = 2 * (A @ X - right) * g[1].unsqueeze(-2)
        share = slope @ X.mH
        for_a = share if for_a is None else for_a + share
        for_b = -slope if for_b is None else for_b - slope
    if for_a is not None:
        for_a = for_a.sum_to_size(A.shape)
    if for_b is not None:
        for_b = (for_b.squeeze(-1) if vector else for_b).sum_to_size(B.shape)
    return for_a, for_b


def _lstsq_arrays(a: np.ndarray, b: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    left, values, right = lapack.svd(a, False)
    if not b.shape[-1]:  # LAPACK does not even read the matrix
        values = np.zeros_like(values)
    counts = values > _threshold(values, 0.0, tolerance)
    scale = np.where(counts, 1 / np.where(counts, values, 1), 0)
    inside = scale[..., None] * (np.swapaxes(left, -2, -1).conj() @ b)
    return np.swapaxes(right, -2, -1).conj() @ inside, counts.sum(-1), values


def _relative_tolerance(a: np.ndarray, rcond: float, driver: str) -> float:
    """Return the share of the largest singular value from which one counts; LAPACK's drivers replace invalid ones by rounding precision."""
    sensible = 0 < rcond < 1 if driver == "gelsd" else rcond >= 0
    return 0.0 if driver == "gels" else rcond if sensible else float(np.finfo(a.dtype).eps)


@internal(
    returns=_lstsq_result,
    grads={("A", "B"): _lstsq_gradients},
    quirks=Quirks(label="LinalgLstsqBackward0"),
    batching="each",
)
def least_squares(A: Tensor, B: Tensor, rcond: float, driver: str) -> NewTensors:
    """Solutions, residuals, ranks and singular values; those that the driver does not compute are empty."""
    m, n = A.shape[-2:]
    vector = is_vector(A, B)
    width = () if vector else B.shape[-1:]
    batch = tuple(broadcast_shapes(A.shape[:-2], B.shape[: -1 - len(width)]))
    k = 1 if vector else B.shape[-1]
    # LAPACK leaves a solution in the first rows of columns that are as long as the right-hand side was.
    *outer, column, _ = contiguous_strides((*batch, k, max(m, n)))
    strides = (*outer, 1) if vector else (*outer, 1, column)
    d, w = A.dtype.to_real(), A.device
    values = (*A.shape[:-2], min(m, n))
    return [
        ((*batch, n, *width), A.dtype, w, strides),
        ((*batch, k) if m > n and driver != "gelsy" else (0,), d, w),
        ((0,) if driver == "gels" else A.shape[:-2], dt.int64, w),
        (values if driver in ("gelsd", "gelss") else (0,), d, w),
    ]


@least_squares.on("cpu")
def _(out: list[Tensor], A: Tensor, B: Tensor, rcond: float, driver: str) -> None:
    a, b = A._array(), B._array()
    vector = is_vector(A, B)
    solution, residuals, ranks, singular_values = out
    b = b[..., None] if vector else b
    a_batch, batch = a.shape[:-2], np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    plain = driver == "gels"
    if driver in ("gels", "gelsy") and lapack.can_factor(a, b):
        x, rank = lapack.least_squares(a, b, None if plain else rcond)
        if plain and rank.any():
            support.raise_failures("torch.linalg.lstsq", from_array(rank))
        rank = rank[tuple(slice(size) for size in a_batch)]
    else:
        x, rank, values = _lstsq_arrays(a, b, _relative_tolerance(a, rcond, driver))
        if driver in ("gelsd", "gelss"):
            support.store(singular_values, values)
    support.store(solution, x[..., 0] if vector else x)
    if not plain:
        support.store(ranks, rank)
    if residuals.shape != (0,):
        support.store(residuals, (np.abs(b - a @ x) ** 2).sum(-2))


@composite(namespaces=("linalg",), method=False, out=True, autocast="float32")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """X that minimises the norm of A X - B; the shortest of them if there are several."""
    name = "torch.linalg.lstsq"
    support.require(name, "input", A)
    support.require(name, "b", B, 2)
    support.check_floating("linalg.lstsq", A)
    support.check_same_dtype(name, A, B, "input", "other")
    if len(A.shape) < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if not B.shape:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if len(A.shape) - len(B.shape) not in (0, 1):
        raise RuntimeError(
            f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
        )
    vector = is_vector(A, B)
    if A.shape[-2] != B.shape[-1 if vector else -2]:
        dimension = "-1" if vector else "-2"
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({dimension})")
    chosen = _USUAL_DRIVER.get(A.device.type, "gelsy") if driver is None else driver
    if chosen not in _DRIVERS:
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    if rcond is None:
        rcond = finfo(A.dtype).eps * max(A.shape[-2:])
    found = least_squares(A, B, float(rcond), chosen)
    if found.residuals.shape != (0,) and found.rank.shape != (0,) and bool((found.rank != A.shape[-1]).any()):
        # There are residuals only where all matrices have full rank.
        return _lstsq_result((found[0], found[1].reshape(-1)[:0], *found[2:]))
    return found
