"""Distances and angles between vectors: cosine_similarity, pairwise_distance, cdist, pdist, normalize."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import device
from ...core.graph import unrecorded
from ...core.layout import broadcast_two
from ...core.promotion import promote_types
from ...core.tensor import Tensor, copy_of_array, numel_of
from ...kernels.library import distance as kernels
from ..creation.filled import fill_raw
from ..machinery.declare import composite, internal
from ..machinery.memory import dense
from ..machinery.out import write_out
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor

_BOTH: dict[str, Any] = {"namespaces": ("torch", "nn.functional"), "method": False}


@composite(**_BOTH, autocast_cuda="float32")
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`."""
    common = promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {common.scalar_type}")
    if eps < 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps:g}")
    shape = broadcast_two(x1.shape, x2.shape)
    x1, x2 = (x.to(common).expand(shape) for x in (x1, x2))
    return (_unit(x1, dim, eps) * _unit(x2, dim, eps)).sum(dim)


def _unit(x: Any, dim: int, eps: float) -> Tensor:
    """Return x divided by its norm, or by eps if that is larger; eps is a constant in the derivative."""
    norm = x.norm(2, dim, True).clone()
    return x / unrecorded(norm.clamp_min_, eps)


@composite(**_BOTH)
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    difference = x1 - x2 + eps
    last = max(len(x1.shape), len(x2.shape)) - 1
    return difference.norm(p, last, keepdim)


@composite(namespaces=("nn.functional",), method=False)
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Tensor:
    """input divided by its p-norm along `dim`, or by eps if that is larger."""
    norm = input.norm(p, dim, True).clamp_min(eps)
    result = input / norm
    return result if out is None else write_out("normalize", out, result)


@normalize.op.as_aten
def _(
    recorder: Any, input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    aten = recorder.aten
    dims = [dim]
    if not isinstance(dim, int):
        dims = list(dim)
    norm = aten.linalg_vector_norm.default(input, p, dims, True)
    return aten.div.Tensor(input, aten.expand_as.default(aten.clamp_min.default(norm, eps), input))


# -- all pairs --------------------------------------------------------------------------------------------------------

_ACROSS = 16  # as many second points are a vector
_NORMS = {0.0: "zero", 1.0: "one", 2.0: "two", math.inf: "max"}


def _cdist_grads(g: Tensor, x1: Tensor, x2: Tensor, p: float, out: Tensor, needs: dict[str, bool]) -> tuple[Any, ...]:
    to_first = cdist_backward(g, x1, x2, p, out, False) if needs["x1"] else None
    to_second = cdist_backward(g, x2, x1, p, out, True) if needs["x2"] else None
    return to_first, to_second


@internal(grads={("grad", "x", "other", "distances"): unknown_derivative("_cdist_backward")}, batching="each")
def cdist_backward(grad: Tensor, x: Tensor, other: Tensor, p: float, distances: Tensor, swapped: bool) -> NewTensor:
    """The gradient of the points `x`; `swapped` if they are the second ones of the pairs."""
    sizes = x.shape[-2:-1] + other.shape[-2:-1]
    pairs = x.shape[:-2] + (sizes[::-1] if swapped else sizes)
    fits = len(sizes) == 2 and grad.shape == distances.shape == pairs and other.shape[:-2] == x.shape[:-2]
    if not fits or other.shape[-1] != x.shape[-1] or len({t.dtype for t in (grad, x, other, distances)}) > 1:
        found = ", ".join(f"{list(t.shape)} of {t.dtype.scalar_type}" for t in (grad, x, other, distances))
        raise RuntimeError(f"Expected gradient, points, other points and distances that fit, but got {found}")
    return x.shape, x.dtype, x.device


@cdist_backward.op.as_aten
def _(recorder: Any, grad: Tensor, x: Tensor, other: Tensor, p: float, distances: Tensor, swapped: bool) -> Tensor:
    if swapped:
        grad, distances = grad.mT.contiguous(), distances.mT.contiguous()
    return recorder.aten._cdist_backward.default(grad, x, other, float(p), distances)


@cdist_backward.on("any")
def _(out: Tensor, grad: Tensor, x: Tensor, other: Tensor, p: float, distances: Tensor, swapped: bool) -> None:
    norm = _NORMS.get(float(p), "p")
    if norm == "zero" or not numel_of(other.shape):
        fill_raw(out, 0)
        return
    *_, first, second = distances.shape
    rows, columns = (second, first) if swapped else (first, second)
    steps = (first * second, 1, second) if swapped else (first * second, second, 1)
    kernels.pair_distances_backward(
        out, dense(grad), dense(distances), dense(x), dense(other), numel_of(x.shape[:-2]), rows, columns,
        x.shape[-1], *steps, float(p), norm=norm,
    )  # fmt: skip


@internal(
    grads={("x1", "x2"): _cdist_grads}, aten="_cdist_forward(x1, x2, float(p), None)",
    quirks=Quirks(label="CdistBackward0"), batching="leading",
)  # fmt: skip
def all_distances(x1: Tensor, x2: Tensor, p: float) -> NewTensor:
    """Distances between rows of x1 (..., P, M) and x2 (..., R, M), batches already equal."""
    return (*x1.shape[:-1], x2.shape[-2]), x1.dtype, x1.device


@all_distances.on("any")
def _(out: Tensor, x1: Tensor, x2: Tensor, p: float) -> None:
    across = x2.shape[-2] >= _ACROSS and out.dtype.itemsize >= 4  # sums are kept in the result
    kernel = kernels.pair_distances_across if across else kernels.pair_distances
    second = dense(x2.mT) if across else dense(x2)
    kernel(
        out, dense(x1), second, numel_of(x1.shape[:-2]), x1.shape[-2], x2.shape[-2], x1.shape[-1],
        float(p), norm=_NORMS.get(float(p), "p"),
    )  # fmt: skip


_COMPUTE_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@composite(method=False, autocast="float32", aten="cdist(x1, x2, float(p))")
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norm distance of every row of x1 (..., P, M) to every row of x2 (..., R, M)."""
    if compute_mode not in _COMPUTE_MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for name, x in (("X1", x1), ("X2", x2)):
        if not x.dtype.is_floating_point:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype.scalar_type}")
        if len(x.shape) < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {len(x.shape)}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if x1.dtype is not x2.dtype:
        raise RuntimeError(f"expected scalar type {x1.dtype.scalar_type} but found {x2.dtype.scalar_type}")
    batch = broadcast_two(x1.shape[:-2], x2.shape[:-2])
    x1, x2 = (x if x.shape[:-2] == batch else x.expand(*batch, *x.shape[-2:]) for x in (x1, x2))
    return all_distances(x1, x2, p)


@composite(**_BOTH, autocast_cuda="float32")
def pdist(input: Any, p: float = 2) -> Tensor:
    """The distances between all pairs of rows of `input`, each pair once."""
    if len(input.shape) != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {len(input.shape)}D")
    if not input.dtype.is_floating_point:
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    return all_distances(input, input, p).reshape(-1).index_select(0, _pairs(input.shape[0], input.device))


@lru_cache(4)
def _pairs(rows: int, where: device) -> Tensor:
    """Return the positions above the diagonal of a square matrix."""
    first, second = np.triu_indices(rows, 1)
    return copy_of_array((first * rows + second).astype(np.int64), dt.int64).to(where)
