"""Products of vectors, chains of matrices, and tensors as matrices."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...core.layout import broadcast_shapes, wrap_dim
from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..shape.joining import cat
from ..shape.parts import diagonal as diagonal_of
from ..shape.reshape import unsafe_view
from . import support
from .solving import inv, solve

# -- vectors ----------------------------------------------------------------------------------------------------------


@composite(namespaces=("linalg",), method=False, out="disjoint")
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements along `dim`."""
    support.require("linalg.cross", "input", input)
    support.require("linalg.cross", "other", other, 2)
    if len(input.shape) != len(other.shape):
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    d = wrap_dim(dim, len(input.shape))
    if input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[d]} and {other.shape[d]}"
        )
    shape = broadcast_shapes(input.shape, other.shape)
    a, b = input.expand(shape), other.expand(shape)
    return a.roll(-1, d) * b.roll(-2, d) - a.roll(-2, d) * b.roll(-1, d)


@composite(name="cross", out="disjoint", autocast_cuda="widest")
def old_cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along `dim`, by default the first dimension of size three."""
    if dim is None:
        warnings.warn(
            "Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim explicitly or"
            " simply use torch.linalg.cross.\nThe default value of dim will change to agree with that of linalg.cross in"
            " a future release.",
            UserWarning,
            stacklevel=3,
        )
        sizes = tuple(input.shape)
        if 3 not in sizes:
            raise RuntimeError("no dimension of size 3 in input")
        dim = sizes.index(3)
    return cross(input, other, dim=dim)


@composite(namespaces=("linalg",), method=False, out="exact", autocast="lower")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The inner product of vectors along `dim`, the first conjugated."""
    support.require("linalg.vecdot", "x", x)
    support.require("linalg.vecdot", "y", y, 2)
    support.check_floating("linalg.vecdot", x, False)
    if x.dtype is not y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found {x.dtype} and {y.dtype}")
    return (x.conj() * y).sum(dim)


@composite(name="vander", namespaces=("linalg",), method=False)
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of every element, in a new last dimension."""
    support.require("linalg.vander", "x", x)
    x = x if x.shape else x.unsqueeze(0)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError("N must be greater than 1.")
    start = x.dtype if x.dtype.category == 2 or x.dtype.is_complex else None
    column = x.unsqueeze(-1)
    powers = column.expand((*x.shape, count - 1)).cumprod(-1)
    ones = column.new_ones((*x.shape, 1), dtype=start or powers.dtype)
    return cat([ones, powers], -1)


@composite(name="diagonal", namespaces=("linalg",), method=False)
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of a matrix, as a view."""
    return diagonal_of(A, offset, dim1, dim2)


@composite(out=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: every element of input times the whole of other."""
    support.require("kron", "input", input)
    support.require("kron", "other", other, 2)
    rank = max(len(input.shape), len(other.shape))
    a, b = ((1,) * (rank - len(t.shape)) + tuple(t.shape) for t in (input, other))
    left = input.reshape([size for n in a for size in (n, 1)])
    right = other.reshape([size for n in b for size in (1, n)])
    return unsafe_view(left * right, tuple(m * n for m, n in zip(a, b)))


# -- chains -----------------------------------------------------------------------------------------------------------


def _check_chain(tensors: list[Tensor]) -> None:
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    ends = {0: "first", len(tensors) - 1: "last"}
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"linalg_multi_dot(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(t).__name__}"
            )
        rank = len(t.shape)
        if i in ends and rank not in (1, 2):
            raise RuntimeError(f"multi_dot(): the {ends[i]} tensor must be 1D or 2D but got {rank}D")
        if i not in ends and rank != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {rank}D")
        if t.dtype is not tensors[0].dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {tensors[0].dtype} and tensor {i} {t.dtype}"
            )


def _best_splits(sizes: list[int]) -> list[list[int]]:
    """Return where to split each run of matrices so that the number of multiplications is least (matrix i is sizes[i] x sizes[i + 1])."""
    n = len(sizes) - 1
    cost = [[0.0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j] = math.inf
            for k in range(i, j):
                total = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if total < cost[i][j]:
                    cost[i][j], split[i][j] = total, k
    return split


def _chain(tensors: list[Tensor], split: list[list[int]], i: int, j: int) -> Tensor:
    if i == j:
        return tensors[i]
    k = split[i][j]
    return _chain(tensors, split, i, k).mm(_chain(tensors, split, k + 1, j))


@composite(namespaces=("linalg",), method=False, out="exact", autocast_cuda="lower")
def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices in the cheapest order; the first and the last may be vectors."""
    items = list(tensors)
    _check_chain(items)
    row, column = len(items[0].shape) == 1, len(items[-1].shape) == 1
    if row:
        items[0] = items[0].unsqueeze(0)
    if column:
        items[-1] = items[-1].unsqueeze(-1)
    for i in range(len(items) - 1):
        if items[i].shape[-1] != items[i + 1].shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(items[i].shape)} and {list(items[i + 1].shape)}"
                " cannot be multiplied"
            )
    sizes = [items[0].shape[0], *(t.shape[1] for t in items)]
    result = _chain(items, _best_splits(sizes), 0, len(items) - 1)
    if row:
        result = result.squeeze(0)
    return result.squeeze(-1) if column else result


@composite(method=False, autocast_cuda="lower")
def chain_matmul(*matrices: Any, out: Any = None) -> Tensor:
    """The older form of linalg.multi_dot."""
    warnings.warn(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot"
        " instead, which accepts a list of two or more tensors rather than multiple parameters.",
        UserWarning,
        stacklevel=3,
    )
    items = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else matrices
    for i, t in enumerate(items):
        support.require("chain_matmul", "matrices", t, i + 1)
        if len(t.shape) != 2:
            raise RuntimeError(f"Tensor dimension is {len(t.shape)}, expected 2 instead.")
    if not items:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    return items[0] if len(items) == 1 else multi_dot(items, out=out)


# -- tensors as matrices ----------------------------------------------------------------------------------------------


@composite(namespaces=("linalg",), method=False, out="castable", autocast="float32")
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse for tensordot over the first `ind` dimensions."""
    support.require("linalg.tensorinv", "A", A)
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, second = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    rows, columns = math.prod(first), math.prod(second)
    if rows != columns:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {columns}"
            f" != {rows}"
        )
    return inv(A.reshape(rows, columns)).reshape((*second, *first))


@composite(namespaces=("linalg",), method=False, out="castable", autocast="float32")
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X) = B; `dims` of A are moved to its end first."""
    support.require("linalg.tensorsolve", "A", A)
    support.require("linalg.tensorsolve", "B", B, 2)
    if dims is not None:
        moved = [wrap_dim(d, len(A.shape)) for d in dims]
        A = A.permute([d for d in range(len(A.shape)) if d not in moved] + moved)
    rest = tuple(A.shape[len(B.shape) :])
    rows, columns = math.prod(B.shape), math.prod(rest)
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but"
            f" got {columns} != {rows}"
        )
    return solve(A.reshape(rows, columns), B.reshape(-1)).reshape(rest)
