"""Reductions: sum, prod, max, min, any, all, argmax and argmin over any dimensions of a mapped expression.

Work is cut into tasks that depend on the shape only, never on the number of threads, so results do not either. Float
sums run in many vector lanes over short blocks, and block sums are added in float64 (float32 data) or as a tree of
partial results: the error stays near that of one rounding per block whatever the length.

Signature of a kernel: kernel(geometry, out, inputs...), inputs in the order of `in_dtypes` (pointers, or values for
kinds "d" and "l"). Geometry is an int64 array: kept sizes, reduced sizes, out's strides over the kept dimensions, then
for each pointer input its strides over the kept and then the reduced dimensions (elements, outermost first).
"""

from __future__ import annotations

from typing import Any

from ..backends.cpu import jit
from ..core.dtype import dtype
from ..expr.node import Expr
from .elementwise import formula_text
from .reduction_columns import build_columns
from .reduction_parts import ARG_COMBINES, COMBINES, Reduction
from .reduction_rows import build_rows

_kernels: dict[tuple, Any] = {}


def reduce_kernel(
    map_root: Expr,
    combine: str,
    final: Expr | None,
    in_dtypes: tuple[dtype, ...],
    out_dtype: dtype,
    acc_dtype: dtype,
    kept_rank: int,
    reduced_rank: int,
    inner: str,
    kinds: str,
) -> Any:
    """The native function that reduces `map_root` (over arg(i) = input i).

    `final`, over arg(0) = the result and arg(1) = the number of elements, is applied once per result. `inner` says
    whether the innermost loop runs over a "reduced" or a "kept" dimension, and `kinds` how each input steps along it:
    "c" by 1, "b" not at all, "s" otherwise ("d", "l": passed by value). argmax and argmin store the position
    among the reduced dimensions, in the order they are given, as int64: the first of equals, and nan before anything.
    """
    if combine not in COMBINES and combine not in ARG_COMBINES:
        raise ValueError(f"unknown reduction {combine!r}")
    if reduced_rank < 1 or inner not in ("reduced", "kept") or (inner == "kept" and kept_rank < 1):
        raise ValueError(f"cannot reduce {reduced_rank} of {kept_rank + reduced_rank} dimensions with inner={inner!r}")
    roots = (map_root,) if final is None else (map_root, final)
    key = (tuple(map(id, roots)), combine, in_dtypes, out_dtype, acc_dtype, kept_rank, reduced_rank, inner, kinds)
    found = _kernels.get(key)
    if found is None:
        reduction = Reduction(map_root, combine, final, in_dtypes, out_dtype, acc_dtype, kept_rank, reduced_rank, kinds)
        letters = "".join(d.letter for d in (out_dtype, acc_dtype, *in_dtypes))
        text = f"reduce {combine} {letters} {kept_rank} {reduced_rank} {inner} {kinds} {formula_text(roots)}"
        builder = build_rows if inner == "reduced" else build_columns
        found = jit.compile(lambda: builder(reduction), text)
        _kernels[key] = found
    return found
