"""Reductions, and operators that run along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

from ...core.tensor import Tensor
from .table import NODES, Call, node, numbers


def _reduction(name: str, function: Callable[[Tensor, Any, bool], Tensor]) -> None:
    def run(
        call: Call, x: Tensor, places: Any = None, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        wanted = axes if places is None else numbers(places)
        if wanted is not None and len(wanted) == 0:
            wanted = None
        if wanted is None and noop_with_empty_axes:
            return function(x.unsqueeze(0), [0], False) if name not in _PLAIN else x
        dims = list(range(x.dim())) if wanted is None else [a % max(x.dim(), 1) for a in wanted]
        if not x.dim():
            return function(x.reshape(1), [0], False)
        made = function(x, dims, bool(keepdims))
        return made.to(x.dtype)

    NODES[name] = run


_PLAIN = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def _product(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keepdim=keep)
    return x


def _mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return x.mean(dims, keepdim=keep) if x.is_floating_point() else x.double().mean(dims, keepdim=keep)


def _extreme(x: Tensor, dims: list[int], keep: bool, biggest: bool) -> Tensor:
    if 0 in [x.shape[d] for d in dims]:
        shape = [1 if i in dims else s for i, s in enumerate(x.shape) if keep or i not in dims]
        if x.dtype == flambeau.bool:
            return flambeau.full(shape, not biggest)
        info = flambeau.finfo(x.dtype) if x.is_floating_point() else flambeau.iinfo(x.dtype)
        edge = float("-inf" if biggest else "inf") if x.is_floating_point() else (info.min if biggest else info.max)
        return flambeau.full(shape, edge, dtype=x.dtype)
    if x.dtype == flambeau.bool:
        return (x.int().amax(dims, keepdim=keep) if biggest else x.int().amin(dims, keepdim=keep)).bool()
    return x.amax(dims, keepdim=keep) if biggest else x.amin(dims, keepdim=keep)


_reduction("ReduceSum", lambda x, d, k: x.sum(d, keepdim=k))
_reduction("ReduceMean", _mean)
_reduction("ReduceProd", _product)
_reduction("ReduceMax", lambda x, d, k: _extreme(x, d, k, True))
_reduction("ReduceMin", lambda x, d, k: _extreme(x, d, k, False))
_reduction("ReduceL1", lambda x, d, k: x.abs().sum(d, keepdim=k))
_reduction("ReduceL2", lambda x, d, k: (x * x).double().sum(d, keepdim=k).sqrt())
_reduction("ReduceSumSquare", lambda x, d, k: (x * x).sum(d, keepdim=k))
_reduction("ReduceLogSum", lambda x, d, k: x.sum(d, keepdim=k).log())
_reduction("ReduceLogSumExp", lambda x, d, k: x.double().logsumexp(d, keepdim=k))


def _arg(name: str, largest: bool) -> None:
    @node(name)
    def run(call: Call, x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        y = x.flip(axis) if select_last_index else x
        made = y.argmax(axis, keepdim=bool(keepdims)) if largest else y.argmin(axis, keepdim=bool(keepdims))
        return x.shape[axis] - 1 - made if select_last_index else made


_arg("ArgMax", True)
_arg("ArgMin", False)


@node("TopK")
def top_k(
    call: Call, x: Tensor, count: Any = None, axis: int = -1, largest: int = 1, sorted: int = 1, k: int | None = None
) -> tuple:
    n: Any = k if count is None else int(count.reshape(-1)[0].item())
    places = flambeau.sort(x, dim=axis, descending=bool(largest), stable=True)
    return tuple(v.narrow(axis, 0, n) for v in places)


def _scan(name: str, function: Callable) -> None:
    @node(name)
    def run(call: Call, x: Tensor, axis: Tensor, exclusive: int = 0, reverse: int = 0) -> Tensor:
        dim = int(axis.reshape(-1)[0].item())
        y = x.flip(dim) if reverse else x
        if exclusive:
            first = flambeau.full_like(y.narrow(dim, 0, 1), 0 if name == "CumSum" else 1)
            y = flambeau.cat([first, y.narrow(dim, 0, y.shape[dim] - 1)], dim)
        made = function(y, dim).to(x.dtype)
        return made.flip(dim) if reverse else made


_scan("CumSum", flambeau.cumsum)
_scan("CumProd", flambeau.cumprod)


@node("Einsum")
def einsum(call: Call, *values: Tensor, equation: str) -> Tensor:
    return flambeau.einsum(equation.replace(" ", ""), *values)


@node("LpNormalization")
def lp_normalization(call: Call, x: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    size = flambeau.linalg.vector_norm(x, p, axis, keepdim=True)
    return flambeau.where(size == 0, flambeau.zeros_like(x), x / size)
