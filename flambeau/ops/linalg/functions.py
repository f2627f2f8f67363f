"""Functions of matrices: exp, powers, rank, condition; products of many."""

from __future__ import annotations

from typing import Any

from ...backends.cpu import lapack
from ...core.tensor import Tensor
from ..creation.ranges import eye
from ..machinery.arguments import as_int
from ..machinery.declare import composite, internal
from ..machinery.memory import like_first
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..shape.joining import cat
from . import support
from .solving import inv


def _exp_gradient(g: Tensor, A: Tensor) -> Tensor:
    """Return the derivative of exp at A^H in direction g: the corner of exp of a block matrix (Mathias 1996)."""
    n = A.shape[-1]
    adjoint = A.mH
    top = cat([adjoint, g], -1)
    bottom = cat([adjoint.new_zeros(adjoint.shape), adjoint], -1)
    return matrix_exp(cat([top, bottom], -2))[..., :n, n:]


@internal(
    layout=like_first, grads={"A": _exp_gradient}, quirks=Quirks(label="LinalgMatrixExpBackward0"), batching="leading"
)
def exponential(A: Tensor) -> Tensor:
    """Compute the matrix exponential of each matrix."""


@exponential.on("cpu")
def _(out: Tensor, A: Tensor) -> None:
    support.store(out, lapack.exponential(A._array()))


@composite(namespaces=("linalg",), method=False, autocast="", batching="leading")
def matrix_exp(A: Tensor) -> Tensor:
    """exp of a square matrix, or of each in a batch."""
    support.check_matrix("linalg.matrix_exp", A)
    support.check_floating("linalg.matrix_exp", A, False)
    support.check_square("linalg.matrix_exp", A)
    if A.dtype not in support.SUPPORTED:
        return exponential(A.float()).to(A.dtype)
    return exponential(A)


@composite(name="matrix_exp", autocast="", batching="leading")
def old_matrix_exp(input: Tensor) -> Tensor:
    """exp of a square matrix, or of each in a batch."""
    return matrix_exp(input)


def _power(A: Tensor, n: int) -> Tensor:
    support.check_square("linalg.matrix_power", A)
    n = as_int(n, "linalg_matrix_power", "n", 2)
    if n == 0:
        return A.clone().copy_(eye(A.shape[-1], dtype=A.dtype, device=A.device))
    base = inv(A) if n < 0 else A
    n = abs(n)
    if n == 1:
        return base if base is not A else A.clone()
    if n == 3:
        return base @ base @ base
    result: Any = None
    while n:
        if n & 1:
            result = base if result is None else result @ base
        n >>= 1
        if n:
            base = base @ base
    return result


@composite(namespaces=("linalg",), method=False, batching="leading")
def matrix_power(A: Tensor, n: int, *, out: Any = None) -> Tensor:
    """A multiplied with itself n times; a negative n means the inverse."""
    result = _power(A, n)
    return result if out is None else write_out("linalg_matrix_power", out, result, exact=n not in (0, 1))


@composite(name="matrix_power", batching="leading")
def old_matrix_power(input: Tensor, n: int, *, out: Any = None) -> Tensor:
    """input multiplied with itself n times; a negative n means the inverse."""
    return matrix_power(input, n, out=out)
