"""Determinants and their logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..creation.ranges import eye
from ..machinery.declare import composite, internal
from ..machinery.memory import tells
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from . import support
from .solving import solve_ex
from .spectral import svd


def _scaled_identity(g: Tensor, A: Tensor) -> Tensor:
    return g.unsqueeze(-1).unsqueeze(-1) * eye(A.shape[-1], dtype=A.dtype, device=A.device)


def _det_gradient(g: Tensor, A: Tensor, out: Tensor) -> Tensor:
    if tells((out == 0).any(), False):
        return _cofactors(A) * g.unsqueeze(-1).unsqueeze(-1)
    return solve_ex(A.mH, _scaled_identity(g * out.conj(), A))[0]


def _cofactors(A: Tensor) -> Tensor:
    """Return conj(det A) A^-H without dividing: from products of all singular values but one."""
    U, S, Vh = svd(A, full_matrices=False)
    n = A.shape[-1]
    one = eye(n, dtype=S.dtype, device=S.device)
    others = (S.unsqueeze(-2) * (1 - one) + one).prod(-1)
    phase = (det(U) * det(Vh)).conj().unsqueeze(-1).unsqueeze(-1)
    return phase * ((U * others.unsqueeze(-2)) @ Vh)


@internal(
    grads={"A": _det_gradient}, aten="_linalg_det(A)[0]", quirks=Quirks(label="LinalgDetBackward0"), batching="leading"
)
def determinant(A: Tensor) -> NewTensor:
    """The determinant of each matrix."""
    return A.shape[:-2], A.dtype, A.device


@determinant.on("cpu")
def _(out: Tensor, A: Tensor) -> None:
    with np.errstate(over="ignore"):
        support.store(out, np.linalg.det(A._array()))


def _check(name: str, A: Tensor) -> None:
    support.check_matrix(name, A)
    support.check_floating(name, A)
    support.check_square(name, A)


@composite(namespaces=("linalg",), method=False, out="exact", batching="leading")
def det(A: Tensor) -> Tensor:
    """The determinant of a square matrix, or of each in a batch."""
    _check("linalg.det", A)
    return determinant(A)


@composite(name="det", batching="leading")
def old_det(input: Tensor) -> Tensor:
    """The determinant of a square matrix, or of each in a batch."""
    return det(input)


# -- logarithms -------------------------------------------------------------------------------------------------------

_slogdet_result = named_result("linalg_slogdet", "sign", "logabsdet")


def _slogdet_gradient(g: tuple[Any, ...], A: Tensor, out: list[Tensor]) -> Tensor:
    g_sign, g_log = g
    if not A.dtype.is_complex:
        return solve_ex(A.mH, _scaled_identity(g_log, A))[0] if g_log is not None else A.new_zeros(A.shape)
    total: Any = 0
    if g_log is not None:
        total = g_log
    if g_sign is not None:  # the sign turns with the imaginary part of the logarithm
        total = total - 1j * (g_sign.conj() * out[0]).imag
    return solve_ex(A.mH, _scaled_identity(total, A))[0]


@internal(
    returns=_slogdet_result, grads={"A": _slogdet_gradient}, aten="_linalg_slogdet(A)[0, 1]",
    quirks=Quirks(label="LinalgSlogdetBackward0"), batching="leading",
)  # fmt: skip
def sign_and_logarithm(A: Tensor) -> NewTensors:
    """The sign of each matrix's determinant, and the logarithm of its absolute value."""
    return [(A.shape[:-2], A.dtype, A.device), (A.shape[:-2], A.dtype.to_real(), A.device)]


@sign_and_logarithm.on("cpu")
def _(out: list[Tensor], A: Tensor) -> None:
    sign, logarithm = np.linalg.slogdet(A._array())
    support.store(out[0], sign)
    support.store(out[1], logarithm)


@composite(namespaces=("linalg",), method=False, out="exact", batching="leading")
def slogdet(A: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its absolute value."""
    _check("linalg.slogdet", A)
    return _slogdet_result(sign_and_logarithm(A))


_old_slogdet_result = named_result("slogdet", "sign", "logabsdet")


@composite(name="slogdet", out="exact", batching="leading")
def old_slogdet(input: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its absolute value."""
    return _old_slogdet_result(slogdet(input))


@composite(batching="leading")
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; nan where a real one is negative."""
    _check("logdet", input)
    sign, logarithm = sign_and_logarithm(input)
    if input.dtype.is_complex:
        return sign.log() + logarithm
    return logarithm.where(sign != -1, float("nan"))
