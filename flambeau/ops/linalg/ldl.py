"""Factors of symmetric and Hermitian matrices that need not be positive-definite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backends.cpu import lapack, ldl
from ...core import dtype as dt
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ..machinery.declare import composite, primitive
from ..machinery.record import NewTensor, NewTensors
from . import support

_factor_ex_result = named_result("linalg_ldl_factor_ex", "LD", "pivots", "info")
_factor_result = named_result("linalg_ldl_factor", "LD", "pivots")


@primitive(returns=_factor_ex_result, namespaces=("linalg",), method=False, out="exact", batching="leading")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> NewTensors:
    """The factors of linalg.ldl_factor, with zero pivots reported in `info` instead of raising."""
    support.check_square("torch.linalg.ldl_factor_ex", A)
    support.check_kernel("ldl_factor_cpu", A)
    return [support.columns(A.shape, A.dtype, A.device), (A.shape[:-1], dt.int32, A.device), support.infos(A)]


@ldl_factor_ex.on("cpu")
def _(out: list[Tensor], A: Tensor, *, hermitian: bool, check_errors: bool) -> None:
    a = A._array()
    n = a.shape[-1]
    flat = [ldl.factor(m, hermitian and A.dtype.is_complex) for m in a.reshape(math.prod(a.shape[:-2]), n, n)]
    support.store(out[0], np.stack([f[0] for f in flat]).reshape(a.shape))
    support.store(out[1], np.array([f[1] for f in flat], np.int32).reshape(a.shape[:-1]))
    support.store(out[2], np.array([f[2] for f in flat], np.int32).reshape(a.shape[:-2]))
    if check_errors:
        support.raise_failures("torch.linalg.ldl_factor_ex", out[2])


@composite(namespaces=("linalg",), method=False, out="exact")
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """A = L D L^T (with hermitian=True L D L^H) in one matrix, and the pivots, as linalg.ldl_solve takes them."""
    packed, pivots, info = ldl_factor_ex(A, hermitian=hermitian)
    support.raise_failures("torch.linalg.ldl_factor", info)
    return _factor_result((packed, pivots))


@primitive(namespaces=("linalg",), method=False, out="exact", batching="each")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> NewTensor:
    """X with A X = B, A given by linalg.ldl_factor."""
    name = "torch.linalg.ldl_solve"
    support.check_square(name, LD, "LD")
    support.require(name, "pivots", pivots, 2)
    support.require(name, "B", B, 3)
    if len(B.shape) < 2:
        raise RuntimeError(
            f"{name}: Expected B to have at least 2 dimensions, but it has {len(B.shape)} dimensions instead"
        )
    if LD.shape[:-1] != pivots.shape:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape"
            f" {list(pivots.shape)} instead"
        )
    if pivots.dtype.category != 1 or pivots.dtype is not dt.int32:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    support.check_same_dtype(name, LD, B, "LD", "B")
    support.check_equation(name, LD, B, True)
    support.check_kernel("ldl_solve_cpu", LD)
    return support.columns((*support.batch_of(LD, B), *B.shape[-2:]), LD.dtype, LD.device)


@ldl_solve.on("cpu")
def _(out: Tensor, LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool) -> None:
    *batch, n, k = out.shape
    _check_pivots(pivots._array(), n)
    count = math.prod(batch)
    packed, b = lapack.broadcast_batches(LD._array(), B._array())
    swaps = np.broadcast_to(pivots._array(), (*batch, n)).reshape(count, n)
    x = np.empty((count, n, k), b.dtype)
    for i, (m, s, r) in enumerate(zip(packed.reshape(count, n, n), swaps, b.reshape(count, n, k))):
        x[i] = ldl.solve(m, s, r, hermitian and LD.dtype.is_complex)
    support.store(out, x.reshape(out.shape))


def _check_pivots(pivots: np.ndarray, n: int) -> None:
    """Raise unless the pivots could come from a factorization: in range, negative ones in pairs."""
    for wrong, wanted in ((pivots == 0, "|pivot| >= 1"), (np.abs(pivots) > n, "|pivot| <= LD.size(-2)")):
        if wrong.any():
            raise RuntimeError(
                f"Pivots given to ldl_solve must all satisfy {wanted}. Did you properly pass the result of ldl_factor?"
            )
    for row in pivots.reshape(-1, n) if n else ():
        runs = np.split(row, np.flatnonzero((row[1:] > 0) | (row[:-1] > 0)) + 1)
        if any(r[0] < 0 and len(r) % 2 for r in runs if len(r)):
            raise RuntimeError("torch.linalg.ldl_solve: pivots must be those that torch.linalg.ldl_factor returned")
