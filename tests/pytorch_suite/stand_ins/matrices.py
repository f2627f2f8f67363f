"""Random matrices with a property."""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "make_fullrank_matrices_with_distinct_singular_values",
    "random_fullrank_matrix_distinct_singular_value",
    "random_hermitian_matrix",
    "random_hermitian_pd_matrix",
    "random_hermitian_psd_matrix",
    "random_lowrank_matrix",
    "random_matrix",
    "random_matrix_with_scaled_reduction_dim",
    "random_square_matrix_of_rank",
    "random_symmetric_matrix",
    "random_symmetric_pd_matrix",
    "random_symmetric_psd_matrix",
    "random_well_conditioned_matrix",
]


def _random(*shape: int, **kind: Any) -> Any:
    return torch.randn(*shape, dtype=kind.get("dtype"), device=kind.get("device"))


def _with_values(values: Any, rows: int, columns: int, batch: tuple, kind: dict) -> Any:
    """Random singular vectors, and these singular values."""
    u, _, vh = torch.linalg.svd(_random(*batch, rows, columns, **kind), full_matrices=False)
    return (u * values.unsqueeze(-2).to(u.dtype)) @ vh


def make_fullrank_matrices_with_distinct_singular_values(
    *shape: int, device: Any, dtype: Any, requires_grad: bool = False
) -> Any:
    rows, columns = shape[-2:]
    values = torch.arange(2, min(rows, columns) + 2, device=device).flip(0)
    result = _with_values(values.double(), rows, columns, shape[:-2], {"device": device, "dtype": dtype})
    return result.detach().requires_grad_(requires_grad)


def random_fullrank_matrix_distinct_singular_value(matrix_size: int, *batch_dims: int, **kind: Any) -> Any:
    kind.pop("silent", None)
    return make_fullrank_matrices_with_distinct_singular_values(*batch_dims, matrix_size, matrix_size, **kind)


def random_symmetric_matrix(l: int, *batches: int, **kind: Any) -> Any:
    a = _random(*batches, l, l, **kind)
    return (a + a.mT) / 2


def random_hermitian_matrix(l: int, *batches: int, **kind: Any) -> Any:
    a = _random(*batches, l, l, **kind)
    return (a + a.mH) / 2


def random_hermitian_psd_matrix(l: int, *batches: int, **kind: Any) -> Any:
    a = _random(*batches, l, l, **kind)
    return a @ a.mH


def random_hermitian_pd_matrix(matrix_size: int, *batch_dims: int, **kind: Any) -> Any:
    identity = torch.eye(matrix_size, dtype=kind.get("dtype"), device=kind.get("device"))
    return random_hermitian_psd_matrix(matrix_size, *batch_dims, **kind) + identity


def random_symmetric_psd_matrix(l: int, *batches: int, **kind: Any) -> Any:
    a = _random(*batches, l, l, **kind)
    return a @ a.mT


def random_symmetric_pd_matrix(matrix_size: int, *batch_dims: int, **kind: Any) -> Any:
    identity = torch.eye(matrix_size, dtype=kind.get("dtype"), device=kind.get("device"))
    return random_symmetric_psd_matrix(matrix_size, *batch_dims, **kind) + identity * 1e-5


def random_square_matrix_of_rank(l: int, rank: int, dtype: Any = torch.double, device: Any = "cpu") -> Any:
    values = torch.zeros(l, dtype=torch.double, device=device)
    values[:rank] = torch.arange(1.0, rank + 1, device=device)
    return _with_values(values, l, l, (), {"dtype": dtype, "device": device})


def random_well_conditioned_matrix(
    *shape: int, dtype: Any, device: Any, mean: float = 1.0, sigma: float = 0.001
) -> Any:
    values = torch.randn(*shape[:-2], min(shape[-2:]), device=device) * sigma + mean
    return _with_values(values, *shape[-2:], shape[:-2], {"dtype": dtype, "device": device})


def random_matrix(rows: int, columns: int, *batch_dims: int, **kind: Any) -> Any:
    """Full rank and well conditioned, or with `singular=True` of a lower rank."""
    k = min(rows, columns)
    values = torch.linspace(1.0, 0.01 if k > 1 else 1.0, k, dtype=torch.double, device=kind.get("device"))
    if kind.get("singular"):
        values[-1] = 0
    return _with_values(values, rows, columns, batch_dims, kind)


def random_lowrank_matrix(rank: int, rows: int, columns: int, *batch_dims: int, **kind: Any) -> Any:
    return random_matrix(rows, rank, *batch_dims, **kind) @ random_matrix(rank, columns, *batch_dims, **kind)


def random_matrix_with_scaled_reduction_dim(*size: int, reduction_dim: int | None = None, **kind: Any) -> Any:
    dtype, device = kind.pop("dtype"), kind.pop("device")
    result = torch.randn(*size, dtype=dtype, device=device)
    if reduction_dim is not None:
        result /= max(size[reduction_dim], 1) ** 0.5
    return result.requires_grad_(kind.get("requires_grad", False))
