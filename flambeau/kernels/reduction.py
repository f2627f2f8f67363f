"""Reductions: sum, prod, max, min, any, all, argmax and argmin over any dimensions of a mapped expression.

Work is divided into tasks that depend on the shape only, not on the number of threads, so results do not either. Float sums run in many
vector lanes over short blocks, and block sums are added in float64 (float32 data) or as a tree of partial results: the error stays near that
of one rounding per block whatever the length.

Signature of a kernel: kernel(geometry, out, inputs...), inputs in the order of `in_dtypes` (pointers, or values for
kinds "d", "l" and "z"). Geometry is an int64 array: kept sizes, reduced sizes, out's strides over the kept dimensions, then
for each pointer input its strides over the kept and then the reduced dimensions (elements, outermost first).
"""

from __future__ import annotations

from .ir import Kernel
from .reduction_columns import build_columns
from .reduction_parts import ARG_COMBINES, COMBINES, Reduction
from .reduction_rows import build_rows


def build(reduction: Reduction, inner: str) -> Kernel:
    """Return the loops of a reduction; `inner` says whether the innermost runs over a "reduced" or a "kept" dimension."""
    kernel = build_rows(reduction) if inner == "reduced" else build_columns(reduction)
    kernel.recipe = (reduction, inner)
    return kernel


__all__ = ["ARG_COMBINES", "COMBINES", "Reduction", "build"]
