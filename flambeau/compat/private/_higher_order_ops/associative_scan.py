"""Scans with any associative function of two elements.

>>> x = flambeau.arange(1.0, 5)
>>> associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic")
tensor([ 1.,  2.,  6., 24.])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

from ....core import pytree
from ....core.tensor import Tensor

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Scan along `dim`: element i of the result is combine_fn applied to the elements 0 to i (with `reverse`: to all from i on).

    `xs` is a tensor or a tree of tensors, which combine_fn takes and returns. A call handles many positions at once: a scan of n elements
    takes about 2 log2(n) calls. `combine_mode` chooses how PyTorch compiles it; the result is the same.
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError("Dim must be an int, but got " + str(type(dim)))
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if any(not isinstance(x, Tensor) for x in leaves):
        raise ValueError("All xs leaves must be a Tensor")
    dim = dim % max(leaves[0].dim(), 1)
    if any(x.shape[dim] == 0 for x in leaves):
        raise ValueError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    first = [x.movedim(dim, 0).flip(0) if reverse else x.movedim(dim, 0) for x in leaves]

    def combine(a: list, b: list) -> list:
        result = combine_fn(pytree.tree_unflatten(a, spec), pytree.tree_unflatten(b, spec))
        return pytree.tree_leaves(result)

    scanned = [y.flip(0) if reverse else y for y in _scan(combine, first)]
    return pytree.tree_unflatten([y.movedim(0, dim) for y in scanned], spec)


def _scan(combine: Callable, xs: list) -> list:
    """Scan by halves: totals of pairs are scanned, which gives every second result; those between take one more element."""
    n = xs[0].shape[0]
    if n < 2:
        return xs
    pairs = combine([x[0 : n - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = _scan(combine, pairs)  # the results at 1, 3, 5, ...
    even = [x[:1] for x in xs]
    if n > 2:
        before = [y[: (n - 1) // 2] for y in odd]
        rest = combine(before, [x[2::2] for x in xs])
        even = [flambeau.cat([head, tail]) for head, tail in zip(even, rest)]
    return [_interleave(a, b) for a, b in zip(even, odd)]


def _interleave(even: Tensor, odd: Tensor) -> Tensor:
    both = flambeau.stack([even[: odd.shape[0]], odd], dim=1).flatten(0, 1)
    return both if even.shape[0] == odd.shape[0] else flambeau.cat([both, even[-1:]])
